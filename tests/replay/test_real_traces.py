"""Traces that the real engine left on the testbed, judged by the spec.

Those with `random` in their names are of tests/engine/test_random_traces.py, the others of record_traces.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from replay_traces import (
    NAMES,
    TRACES,
    evicted,
    header_of,
    load,
    numbered,
    path_of,
    recorded,
    replayed,
    text_of,
    unlaunched,
)

from checker.replay.align import alignments
from checker.replay.differences import DIFFERENCES, IDLES, LOST, WAITS
from checker.replay.reading import traces
from checker.replay.results import ACCEPTED, DIVERGES
from checker.replay.run import Judges, Options, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from checker.replay.results import Replayed
    from engine_hooks.trace import Step, TraceState

STEPS = {
    "normal-file": 4251,
    "normal-file-repaired": 14433,
    "normal-file-repaired-random": 12872,
    "normal-none": 6868,
    "normal-none-repaired": 5844,
    "overlap-file": 9407,
    "overlap-file-random": 13082,
    "overlap-file-repaired": 16969,
    "overlap-none": 13938,
    "overlap-none-repaired": 11027,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_accepts_what_the_engine_did(name: str) -> None:
    found = replayed(path_of(name))
    assert (found.verdict, found.reason, found.ended) == (ACCEPTED, "", True)
    assert (found.steps, found.differences) == (STEPS[name], {})


def _diverging(name: str, made: Callable[[Sequence[Step]], Sequence[Step] | None], tmp_path: Path) -> Replayed:
    """The recorded trace of this name up to a change."""
    header, steps = recorded(name)
    changed = made(steps)
    assert changed is not None, name
    path = tmp_path / "changed.trace.ndjson"
    path.write_bytes(text_of(header, numbered(changed)))
    return replayed(path)


def _waits(steps: Sequence[Step], looks: Callable[[TraceState], bool]) -> Sequence[Step] | None:
    """Up to a running pass that admits a request, which then admits nobody: the first one of this kind."""
    for at, (x, y) in enumerate(pairwise(steps)):
        if y.do == "pass" and not x.state.paused and y.state.waiting < x.state.waiting and looks(x.state):
            state = replace(x.state, last_batch=False, result_pending=False)
            return [*steps[: at + 1], replace(y, state=state, times=1)]
    return None


def _idle(state: TraceState) -> bool:
    """No lookup, no result, no batch: what an admission could wait for."""
    busy = (state.prefetch_query, state.prefetch_hit, state.prefetch_loading, state.prefetch_done, state.running)
    return not any((*busy, state.last_batch, state.result_pending, state.prefetch_retry))


@pytest.mark.parametrize("name", ["normal-none", "normal-file", "overlap-file"])
def test_a_pass_that_admits_nobody_though_no_lookup_keeps_anybody_is_a_divergence(name: str, tmp_path: Path) -> None:
    found = _diverging(name, lambda steps: _waits(steps, _idle), tmp_path)
    assert found.divergence is not None
    wrong = {one.variable: (one.seen, one.low, one.high) for way in found.divergence.ways for one in way.wrong}
    assert wrong["waiting"] == (1, 0, 0)


def test_a_pass_that_launches_nothing_for_requests_that_run_on_is_a_divergence(tmp_path: Path) -> None:
    path = tmp_path / "unlaunched.trace.ndjson"
    path.write_bytes(unlaunched())
    found = replayed(path)
    assert found.divergence is not None
    wrong = {one.variable for way in found.divergence.ways for one in way.wrong}
    assert wrong == {"forwards", "last_batch", "result_pending"}


def test_a_prefix_is_lost_by_a_flush_and_by_an_eviction_only_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "evicted.trace.ndjson"
    path.write_bytes(evicted())
    bare = replayed(path)
    assert bare.verdict == DIVERGES
    assert bare.divergence is not None
    assert (bare.divergence.line, bare.divergence.did) == (bare.lines - 1, "pass")
    allowed = replayed(path, Judges(load, frozenset(DIFFERENCES)))
    assert (allowed.verdict, allowed.differences) == (ACCEPTED, {LOST: 1})


def test_every_action_of_these_loops_was_seen_but_a_late_arrival() -> None:
    """`ArriveLate` is a race in the tokenizer that no test can force; each other action was needed by some line.

    In `overlap-file` one request waits where all are aborted, so that its end is told as that of one: `AbortMine`.
    """
    for name, told in (("normal-file", ()), ("overlap-file", ("AbortAgain",))):
        found = replayed(path_of(name), None, Options(coverage=True))
        assert found.coverage is not None
        assert found.coverage.missing == ("ArriveLate", *told)
        assert (found.coverage.unreachable, found.coverage.states_whole) == (0, True)


def test_the_trace_of_an_engine_without_the_remedy_is_none_of_one_with_it(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    path = tmp_path / "bare.trace.ndjson"
    path.write_bytes(text_of(header_of(remedies=("reap-while-paused",), spec_digest=header.spec_digest), steps))
    found = replayed(path)
    assert found.verdict == DIVERGES
    assert found.divergence is not None
    # Paused, a copy that has landed stays: with the remedy a paused pass retires it.
    assert found.divergence.did == "pass"
    assert found.divergence.after["write_through_ready"] == 1
    assert [way.action for way in found.divergence.ways] == ["PausedPass"]


def test_the_trace_of_one_loop_is_none_of_another(tmp_path: Path) -> None:
    _, steps = recorded("overlap-none")
    path = tmp_path / "other.trace.ndjson"
    path.write_bytes(text_of(header_of("normal"), steps))
    found = replayed(path)
    assert (found.verdict, found.lines) == (DIVERGES, len(steps) + 2)
    assert found.divergence is not None
    assert [wrong.variable for wrong in found.divergence.ways[0].wrong] == ["result_pending"]


def test_a_flush_that_is_granted_while_a_copy_is_under_way_is_explained(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    at = next(i for i, step in enumerate(steps) if (step.do, step.how) == ("flush", "refused"))
    lied = [*steps[:at], type(steps[at])(1, "flush", steps[at - 1].state, "granted")]
    path = tmp_path / "lied.trace.ndjson"
    path.write_bytes(text_of(header, numbered(lied)))
    divergence = replayed(path).divergence
    assert divergence is not None
    assert (divergence.line, divergence.did) == (at + 2, "flush granted")
    (way,) = divergence.ways
    assert (way.action, way.engine) == ("FlushGranted", "srt/managers/scheduler.py:flush_cache")
    # What is submitted may land, but an entry that has landed is still one.
    assert (way.needs, way.wrong) == (("write_through_submitted == 0", "write_through_ready == 0"), ())


@pytest.mark.parametrize(("name", "ranks", "controls", "waits"), [
    ("tp2", ("tp1 pp0 dp0", "tp0 pp0 dp0"), 28, {WAITS: 1}), ("dp2", ("tp0 pp0 dp1", "tp0 pp0 dp0"), 11, {}),
])  # fmt: skip
def test_two_ranks_do_what_the_spec_says_and_are_aligned(
    name: str, ranks: tuple[str, ...], controls: int, waits: dict[str, int]
) -> None:
    """Of two tensor-parallel ranks each waits once with a copy that has landed on it alone."""
    found = traces([TRACES / name])
    judges = Judges(load)
    for trace in found:
        one = replay(trace, judges)
        assert (one.verdict, one.differences, one.ended) == (ACCEPTED, waits, True)
    (alignment,) = alignments(found)
    assert (alignment.verdict, alignment.ranks, alignment.controls) == (ACCEPTED, ranks, controls)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_alone_does_not_wait(rank: int, tmp_path: Path) -> None:
    header, steps = recorded(f"tp2/rank{rank}")
    path = tmp_path / "alone.trace.ndjson"
    path.write_bytes(text_of(replace(header, sizes={"attention": 1, "stages": 1, "micro_batches": 1}), steps))
    found = replayed(path)
    assert found.divergence is not None
    assert (found.divergence.did, found.divergence.before["write_through_ready"]) == ("pass", 1)
    assert [(wrong.variable, wrong.high) for way in found.divergence.ways for wrong in way.wrong] == [
        ("write_through_ready", 0)
    ]


def test_a_rank_of_dp_attention_launches_batches_of_none_while_the_other_works() -> None:
    found = traces([TRACES / "dp2-attention"])
    allowing, bare = Judges(load, frozenset((IDLES,))), Judges(load)
    seen = {}
    for trace in found:
        one = replay(trace, allowing)
        assert (one.verdict, one.ended) == (ACCEPTED, True)
        seen[one.rank["dp"]] = one.differences
        divergence = replay(trace, bare).divergence
        assert divergence is not None
        assert [wrong.variable for way in divergence.ways for wrong in way.wrong] == ["forwards"]
    assert seen == {0: {IDLES: 101}, 1: {IDLES: 324}}
    (alignment,) = alignments(found)
    assert (alignment.verdict, alignment.controls) == (ACCEPTED, 11)
