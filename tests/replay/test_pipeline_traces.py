"""Traces that the two stages of a pipeline left on the testbed, bare and with its remedy; and what is no run.

They showed what the spec did not say: a micro-batch in which nobody runs has its turn too; and with the remedy, a pause
is handled once no micro-batch is under way.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from replay_traces import (
    TRACES,
    Change,
    assert_diverges_where_changed,
    judged,
    load,
    recorded,
)

from checker.replay.align import alignments
from checker.replay.differences import WAITS
from checker.replay.reading import traces
from checker.replay.results import ACCEPTED, DIVERGES, UNKNOWN
from checker.replay.run import Judges, Options, replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_hooks.trace import Step, TraceHeader, TraceState

SEEN = {
    "pp2": [(1972, {}), (1970, {WAITS: 24})],
    "pp2-repaired": [(2696, {}), (2694, {WAITS: 23})],
}
"""Of each stage its steps, and lines that need a known difference: the second reaps what the first has counted."""
NEVER = {"ArriveLate", "AbortAgain"}
"""A race in the tokenizer; an abort of all that wait."""


@pytest.mark.parametrize("name", SEEN)
def test_the_spec_accepts_what_each_stage_did(name: str) -> None:
    found = traces([TRACES / name])
    stages = {trace.header.rank["pp"]: replay(trace, Judges(load), Options(coverage=True)) for trace in found}
    for stage, one in stages.items():
        assert (one.verdict, one.reason, one.ended) == (ACCEPTED, "", True)
        assert (one.steps, one.differences) == SEEN[name][stage]
        assert one.coverage is not None
        assert (set(one.coverage.missing), one.coverage.unreachable) == (NEVER, 0)
    (alignment,) = alignments(found)
    assert (alignment.verdict, len(alignment.ranks)) == (ACCEPTED, 2)


def test_with_the_remedy_no_micro_batch_is_under_way_at_a_pause() -> None:
    under_way = {
        name: [x.state.last_batch for x, y in pairwise(recorded(f"{name}/rank0")[1]) if y.do == "pause"]
        for name in SEEN
    }
    assert any(under_way["pp2"])
    assert under_way["pp2-repaired"]
    assert not any(under_way["pp2-repaired"])


def _one_rank(header: TraceHeader) -> TraceHeader:
    return replace(header, rank={"tp": 0, "pp": 0, "dp": 0})


@pytest.mark.parametrize("name", SEEN)
def test_what_the_second_stage_did_is_nothing_that_the_first_may_do(name: str, tmp_path: Path) -> None:
    header, steps = recorded(f"{name}/rank1")
    found = judged(_one_rank(header), steps, tmp_path)
    assert found.divergence is not None
    assert (found.verdict, found.divergence.did, found.differences) == (DIVERGES, "pass", {})
    assert {wrong.variable for way in found.divergence.ways for wrong in way.wrong} <= {
        "write_through_ready", "write_through_submitted",
    }  # fmt: skip


def test_a_rank_of_two_that_reap_together_may_wait_too(tmp_path: Path) -> None:
    header, steps = recorded("pp2/rank1")
    found = judged(replace(_one_rank(header), sizes={**header.sizes, "attention": 2}), steps, tmp_path)
    assert (found.verdict, found.differences) == (ACCEPTED, SEEN["pp2"][1][1])


@pytest.mark.parametrize(("sizes", "reason"), [
    ({}, "the trace was recorded without its micro-batches; record it with this version"),
    ({"stages": 3, "micro_batches": 3}, "a pipeline of 3 micro-batches; profile sglang-0.5.23-no-flag models 2 in pp"),
])  # fmt: skip
def test_another_pipeline_cannot_bejudged(sizes: dict[str, int], reason: str, tmp_path: Path) -> None:
    header, steps = recorded("pp2/rank0")
    found = judged(replace(header, sizes=sizes), steps[:50], tmp_path)
    assert (found.verdict, found.reason) == (UNKNOWN, reason)


def _launches(x: TraceState, y: Step) -> bool:
    return y.do == "pass" and y.state.forwards > x.forwards


def _state(**values: int) -> Callable[[TraceState, Step], Step]:
    return lambda _x, y: replace(y, state=replace(y.state, **values), times=1)


def _more(x: TraceState, y: Step) -> Step:
    return replace(y, state=replace(y.state, forwards=x.forwards + 1, last_batch=True, result_pending=True), times=1)


CHANGES: dict[str, Change] = {
    "the turn of the only one who runs, and nothing is launched": (
        "pp2/rank0",
        lambda x, y: _launches(x, y) and x.running == 1 and not x.result_pending,
        lambda x, y: replace(y, state=replace(x, last_batch=False), times=1),
    ),
    "a result that nobody processes": (
        "pp2/rank0",
        lambda x, y: y.do == "pass" and x.result_pending and not y.state.result_pending and y.state.running == 1,
        _state(result_pending=True),
    ),
    "a flush while a micro-batch is under way": (
        "pp2/rank0",
        lambda x, y: (y.do, y.how) == ("flush", "refused") and x.result_pending,
        lambda x, y: replace(y, how="granted", state=replace(x, flush_wanted=False)),
    ),
    "a retract of one micro-batch that takes back all": (
        "pp2/rank0",
        lambda _x, y: y.do == "pause" and y.state.result_pending and y.state.running > 1,
        lambda x, y: replace(y, how="retract", state=replace(x, paused=True, running=0, waiting=x.waiting + x.running)),
    ),
    "launched while paused, with the remedy": (
        "pp2-repaired/rank0",
        lambda x, y: y.do == "pass" and x.paused and x.running > 0,
        _more,
    ),
    "paused while a micro-batch is under way, with the remedy": (
        "pp2-repaired/rank0",
        lambda x, y: y.do == "pass" and not x.paused and x.last_batch and x.running > 1 and not y.state.last_batch,
        lambda x, y: replace(y, do="pause", how="in_place", state=replace(x, paused=True), times=1),
    ),
    "a retract that leaves one micro-batch, with the remedy": (
        "pp2-repaired/rank0",
        lambda x, y: (y.do, y.how) == ("pause", "retract") and x.running > 1,
        lambda x, y: replace(y, state=replace(y.state, running=1, waiting=x.waiting + x.running - 1)),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_no_pipeline_does_is_a_divergence(what: str, tmp_path: Path) -> None:
    assert_diverges_where_changed(CHANGES[what], tmp_path)
