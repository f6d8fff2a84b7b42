"""A pipeline: what a retract takes back is of the micro-batch whose turn it is, and no result in flight is of that."""

from itertools import product

import pytest

from checker.proof.interpreter import Interpreter, State
from checker.workbench import Workbench
from spec.profile import load_profile
from spec.properties import catalogue
from spec.protocol import Protocol

PROFILE = load_profile("sglang-0.5.23-no-flag")
PLACE = "pp retract none"
HONOURS = {"honours_pause": True, "paused": ["reap", "record"]}


def after_a_pause(*, pending: bool, running: int = 2) -> set[tuple[int, int, bool, bool]]:
    """Running, waiting, whether a result waits and whether there is a last batch: all that a pause may lead to."""
    runner = Interpreter(Protocol(PROFILE, PROFILE.place(PLACE)).spec())
    before: State = runner.initial() | {"running": running, "last_batch": True, "result_pending": pending}
    found = set()
    choices = [choice.name for choice in runner.actions["Pause"].choices]
    for values in product(range(running + 2), repeat=len(choices)):
        picked = dict(zip(choices, values, strict=True))
        if not picked["Pause.late"] and runner.legal(before, "Pause", picked):
            after = runner.apply(before, "Pause", picked)
            found.add(tuple(after[name] for name in ("running", "waiting", "result_pending", "last_batch")))
    return found


def test_a_result_in_flight_keeps_its_requests() -> None:
    assert after_a_pause(pending=True) == {(2, 0, True, True), (1, 1, True, True)}


def test_with_none_in_flight_all_may_be_of_one() -> None:
    assert after_a_pause(pending=False) == {(2, 0, False, True), (1, 1, False, True), (0, 2, False, False)}


@pytest.mark.parametrize(("waits", "verdict"), [(False, "refuted"), (True, "proved")])
def test_a_flag_alone_is_not_enough(waits: bool, verdict: str) -> None:  # noqa: FBT001 - two of one kind
    """Who stops the loop and takes back one micro-batch leaves the others, whose requests keep the gate closed."""
    profile = PROFILE.with_difference({"loops": {"pp": HONOURS | {"pause_waits": waits}}})
    found = Workbench(profile, profile.place(PLACE)).decide(catalogue()["paused-flush-succeeds"])
    assert found[-1].verdict.value == verdict
