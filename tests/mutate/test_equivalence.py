"""A mutant that takes the same steps is proved to be one, with what it follows from; another spec is not."""

from __future__ import annotations

import pytest

from checker.mutate.judge import Judge
from checker.mutate.mutants import Mutant
from spec.profile import Configuration, load_profile

REPAIRED = load_profile("sglang-0.5.23").with_remedies(["reap-while-paused"])


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(REPAIRED, Configuration("normal", "retract", "none"))


def parsed(name: str) -> Mutant:
    kind, _, rest = name.partition(" ")
    place, _, what = rest.partition(": ")
    return Mutant(kind, place, what)


SAME = {
    "update RunningPass: write_through_queued unchanged": "write_through_queued = 0",
    "update PausedPass: mark_write_through_ahead unchanged": "not mark_write_through_queued",
    "update Pause: stale_running unchanged": "not stale_running",
    "gate flush: drop running = 0": "not last_batch implies running = 0; paused implies running = 0",
    "update FlushGranted: watched unchanged": "last_batch or not watched",
    "guard DeferFlush: drop ~deferred_pending": "the same in every state",
    "step pause.retract: drop 1 process": "the same in every state",
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_steps_are_proved_to_be(name: str, judge: Judge) -> None:
    assert parsed(name) in judge.mutants()
    assert judge.same(parsed(name)) == SAME[name]


@pytest.mark.parametrize(
    "name",
    [
        "update Pause: waiting unchanged",
        "gate flush: drop write_through_ready = 0",
        "guard ArriveLate: drop late > 0",
        "fairness Unpark: none",
        "step loops.normal.paused: drop 1 reap",
        "update PausedPass: recorded_idle unchanged",
        # A claim speaks of each of its steps, also of those that change nothing.
        "guard DeferredFlushTimesOut: drop deferred_pending",
    ],
)
def test_another_spec_is_not(name: str, judge: Judge) -> None:
    assert parsed(name) in judge.mutants()
    assert judge.same(parsed(name)) is None


def test_a_spec_with_an_action_less_is_not() -> None:
    """Where a pause in mode abort aborts nothing, nothing is aborted again."""
    without = Mutant("step", "pause.abort", "drop 1 abort_all")
    judge = Judge(REPAIRED, Configuration("normal", "abort", "none"))
    assert without in judge.mutants()
    assert judge.same(without) is None
