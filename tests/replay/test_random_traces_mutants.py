"""Traces of random control of the real engine (tests/engine/test_random_traces.py), and what is no run near to them.

They showed what an aborted request takes with it, and that a copied node which was split is backed up in parts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from replay_traces import load, numbered, recorded, replayed, text_of

from checker.replay.results import ACCEPTED, DIVERGES
from checker.replay.run import Judges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from checker.replay.results import Replayed
    from engine_hooks.trace import Step, TraceState

JUDGES = Judges(load)
"""What one trace teaches serves the next: they are long, and begin alike."""
NAMES = ("normal-file-repaired-random", "overlap-file-random")
LOOKUPS = ("prefetch_query", "prefetch_hit", "prefetch_loading", "prefetch_done", "prefetch_retry")


def _lookups(state: TraceState) -> int:
    return sum(getattr(state, name) for name in LOOKUPS)


def _up_to(name: str, found: Callable[[TraceState, Step], bool]) -> tuple[TraceState, Sequence[Step]]:
    """The trace up to the first line of this kind, and the state before that."""
    _, steps = recorded(name)
    at = next(i for i, (x, y) in enumerate(pairwise(steps), 1) if found(x.state, y))
    return steps[at - 1].state, steps[: at + 1]


def _judged(name: str, steps: Sequence[Step], tmp_path: Path) -> Replayed:
    path = tmp_path / "changed.trace.ndjson"
    path.write_bytes(text_of(recorded(name)[0], numbered(steps)))
    return replayed(path, JUDGES)


def _aborted_lookup(x: TraceState, y: Step) -> bool:
    """All that wait have a lookup, and one of them is aborted."""
    return y.do == "abort" and x.waiting - y.state.waiting == 1 and _lookups(x) == x.waiting


def _split(x: TraceState, y: Step) -> bool:
    """More backups than copied nodes."""
    copied = x.write_through_queued + x.write_through_submitted + x.write_through_ready
    return y.do == "pass" and y.state.backup_queued + y.state.backup_ready > copied > 0 == x.backup_queued


def _fewer(state: TraceState) -> TraceState:
    """One lookup less."""
    name = next(name for name in LOOKUPS if getattr(state, name))
    return replace(state, **{name: getattr(state, name) - 1})


WRONG_ABORTS: dict[str, Callable[[TraceState, TraceState], TraceState]] = {
    "leaves its lookup": lambda x, _y: replace(x, waiting=x.waiting - 1),
    "takes a second lookup": lambda _x, y: _fewer(y),
    "takes the lookup of one that waits on": lambda x, _y: _fewer(x),
    "takes a second request": lambda _x, y: replace(y, waiting=y.waiting - 1),
}
WRONG_BACKUPS: dict[str, Callable[[TraceState], TraceState]] = {
    "none": lambda y: replace(y, backup_queued=0, backup_ready=0),
    "the copy stays": lambda y: replace(y, write_through_ready=1),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", WRONG_ABORTS)
def test_an_abort_takes_the_request_and_its_own_lookup_and_nothing_else(name: str, wrong: str, tmp_path: Path) -> None:
    x, steps = _up_to(name, _aborted_lookup)
    assert _judged(name, steps, tmp_path).verdict == ACCEPTED
    changed = replace(steps[-1], state=WRONG_ABORTS[wrong](x, steps[-1].state))
    found = _judged(name, [*steps[:-1], changed], tmp_path)
    assert found.divergence is not None
    assert (found.divergence.line, found.divergence.did) == (len(steps) + 1, "abort")


@pytest.mark.parametrize("wrong", WRONG_BACKUPS)
def test_a_copied_node_is_backed_up_in_one_part_and_more(wrong: str, tmp_path: Path) -> None:
    name = NAMES[0]
    _, steps = _up_to(name, _split)
    assert _judged(name, steps, tmp_path).verdict == ACCEPTED
    changed = replace(steps[-1], state=WRONG_BACKUPS[wrong](steps[-1].state))
    assert _judged(name, [*steps[:-1], changed], tmp_path).verdict == DIVERGES


def test_where_nothing_was_copied_nothing_is_backed_up(tmp_path: Path) -> None:
    name = NAMES[0]
    _, steps = _up_to(name, _split)
    # The copy is not there: what was launched before it has ended all the same.
    none = {"write_through_submitted": 0, "write_through_ready": 0}
    gone = [replace(step, state=replace(step.state, **none)) for step in steps[-3:]]
    found = _judged(name, [*steps[:-3], *gone], tmp_path)
    assert found.divergence is not None
    assert (found.divergence.line, found.divergence.did) == (len(steps) + 1, "pass")
