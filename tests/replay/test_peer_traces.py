"""Traces that a prefill and a decode worker left on the testbed, judged by their own profiles; and what is no run.

They showed what the spec did not say: a request waits for its peer before it is admitted; what a retract takes from a
decode worker is in no queue until the engine is resumed; KV that was received enters the tree as its request is
admitted.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from replay_traces import (
    PEERS,
    Change,
    assert_diverges_where_changed,
    load,
    numbered,
    path_of,
    recorded,
    replayed,
    text_of,
)

from checker.replay.differences import ARRIVES, LANDS
from checker.replay.results import ACCEPTED, DIVERGES, UNKNOWN
from checker.replay.run import Judges, Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_hooks.trace import Step, TraceHeader, TraceState

SEEN = {
    "pd/decode-normal": (1318, {}),
    "pd/decode-overlap-repaired": (1320, {LANDS: 13}),
    "pd/prefill-normal": (1156, {}),
    "pd/prefill-overlap-repaired": (729, {}),
}
"""Steps, and lines that need a known difference."""
ALLOWED = frozenset((LANDS,))
NEVER = {"ArriveLate", "AbortAgain", "DeviceDone(load_back.submitted)", "PeerDone(pd_release.held)"}
"""A race in the tokenizer; an abort of all that wait; a load from the host; an abort in the midst of a transfer."""


@pytest.mark.parametrize("name", PEERS)
def test_the_profile_of_the_worker_accepts_what_it_did(name: str) -> None:
    found = replayed(path_of(name), Judges(load, ALLOWED), Options(coverage=True))
    assert (found.verdict, found.reason, found.ended) == (ACCEPTED, "", True)
    assert (found.steps, found.differences) == SEEN[name]
    assert found.coverage is not None
    assert found.coverage.unreachable == 0
    rest = (
        {"DeferFlush", "DeferredFlushGranted", "DeferredFlushTimesOut", "UpdateRefused"} if "prefill" in name else set()
    )
    assert set(found.coverage.missing) <= NEVER | rest


def test_a_copy_that_lands_in_its_reap_is_a_divergence_unless_it_is_allowed() -> None:
    found = replayed(path_of("pd/decode-overlap-repaired"))
    assert found.divergence is not None
    assert (found.verdict, found.divergence.did, found.divergence.before["write_through_queued"]) == (
        DIVERGES,
        "pass",
        1,
    )


def test_kv_that_is_asked_for_and_polled_in_one_pass_is_a_divergence_unless_it_is_allowed(tmp_path: Path) -> None:
    """A slow engine was seen to do it: of three requests whose peers are met, one runs at the end of the same pass."""
    header, steps = recorded("pd/decode-normal")
    first, last = next(
        (x, y)
        for x, y in pairwise(steps)
        if y.do == "pass" and y.times == 1 and x.state.pd_prealloc_ready == 1 and y.state.pd_transfer_receiving == 1
    )
    x = replace(first.state, waiting=3, pd_prealloc_ready=3)
    in_one = {"last_batch": True, "running": 1, "waiting": 2, "write_through_submitted": 1, "pd_transfer_receiving": 2}
    y = replace(x, **in_one, forwards=x.forwards + 1, pd_prealloc_ready=0)
    path = tmp_path / "in-one-pass.trace.ndjson"

    def verdict(state: TraceState, allowed: frozenset[str]) -> str:
        steps = [replace(first, state=x, times=1), replace(last, state=state, times=1)]
        path.write_bytes(text_of(replace(header, part=2), numbered(steps)))
        return replayed(path, Judges(load, allowed)).verdict

    assert verdict(y, ALLOWED | {ARRIVES}) == ACCEPTED
    assert verdict(y, ALLOWED) == DIVERGES
    # One request goes through; none comes from nowhere.
    assert verdict(replace(y, pd_transfer_receiving=4), ALLOWED | {ARRIVES}) == DIVERGES
    assert verdict(replace(y, waiting=3), ALLOWED | {ARRIVES}) == DIVERGES


def _no_header_says(header: TraceHeader) -> TraceHeader:
    return replace(header, counted=header.counted[:1])


def test_a_trace_that_does_not_count_a_ledger_of_its_profile_cannot_bejudged(tmp_path: Path) -> None:
    header, steps = recorded("pd/prefill-normal")
    path = tmp_path / "uncounted.trace.ndjson"
    path.write_bytes(text_of(_no_header_says(header), steps))
    found = replayed(path)
    assert (found.verdict, found.reason) == (
        UNKNOWN, "the trace was recorded without pd_inflight; record it with this version",
    )  # fmt: skip


def _state(**values: int) -> Callable[[TraceState, Step], Step]:
    return lambda _x, y: replace(y, state=replace(y.state, **values), times=1)


def _kept(x: TraceState, y: Step) -> bool:
    return y.do == "pause" and y.how == "retract" and x.running > 0


CHANGES: dict[str, Change] = {
    "admitted, though its sender has met nobody": (
        "pd/prefill-normal",
        lambda x, y: y.do == "pass" and x.pd_bootstrap_waiting == 1 and y.state.pd_bootstrap_waiting == 1,
        lambda x, y: replace(y, state=replace(y.state, waiting=x.waiting - 1), times=1),
    ),
    "met, and yet neither admitted nor gone on": (
        "pd/prefill-normal",
        lambda x, y: y.do == "pass" and x.pd_bootstrap_ready == 1 and not y.state.paused,
        lambda x, y: replace(y, state=x, times=1),
    ),
    "its KV has arrived, and it waits on": (
        "pd/decode-normal",
        lambda x, y: y.do == "pass" and x.pd_transfer_ready == 1 and not y.state.paused,
        lambda x, y: replace(y, state=x, times=1),
    ),
    "worked off while paused, without the remedy": (
        "pd/decode-normal",
        lambda x, y: y.do == "pass" and x.pd_transfer_ready == 1 and y.state.paused,
        _state(pd_transfer_ready=0),
    ),
    "a flush while KV is on its way": (
        "pd/decode-normal",
        lambda x, y: (y.do, y.how) == ("flush", "refused") and x.pd_transfer_receiving == 1,
        lambda x, y: replace(y, how="granted", state=replace(x, flush_wanted=False)),
    ),
    "a retract that loses a request": ("pd/decode-normal", _kept, _state(pd_held=0)),
    "a retract that queues it at once": ("pd/decode-normal", _kept, _state(pd_held=0, pd_prealloc_waiting=1)),
    "a resume that holds it on": (
        "pd/decode-normal",
        lambda x, y: y.do == "continue" and x.pd_held == 1,
        lambda x, y: replace(y, state=replace(x, paused=False)),
    ),
    "held for its peer, and seen by the gate of a flush": (
        "pd/decode-normal",
        lambda _x, y: y.do == "pass" and y.state.pd_held == 1 and y.state.recorded_idle,
        _state(recorded_idle=False),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_no_worker_does_is_a_divergence(what: str, tmp_path: Path) -> None:
    assert_diverges_where_changed(CHANGES[what], tmp_path)
