"""A shrunk run breaks the claim, and does not without any one of its steps."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from checker.confirm import over
from checker.proof.interpreter import Interpreter, Step
from checker.proof.shrink import Breaks, prefix_to, shortest, shrink
from spec.profile import Configuration, load_profile
from spec.properties import catalogue
from spec.protocol import Protocol
from spec.tla import EachStep

# What the breadth-first search of the solver finds, for claims that random runs of the bundled profile break.
SHORTEST = {"no-stale-kv": 6, "versions-agree": 4}


@cache
def _walker() -> tuple[Protocol, Interpreter]:
    protocol = Protocol(load_profile("sglang-0.5.23"), Configuration("normal", "retract", "none"))
    return protocol, Interpreter(protocol.spec())


@cache
def _breaks(name: str) -> Breaks:
    protocol, walker = _walker()
    (claim,) = (p.claim for p in catalogue()[name].claims(protocol, walker.spec))
    if isinstance(claim, EachStep):
        holds_over = over(claim.holds)
        return lambda step, before: not holds_over(before, step.state)
    holds = walker.holds(claim.holds)  # type: ignore[union-attr]
    return lambda step, _before: not holds(step.state)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(SHORTEST)))
def test_no_step_can_be_left_out(seed: int, name: str) -> None:
    _, walker = _walker()
    breaks = _breaks(name)
    (run,) = walker.walks(1, 80, seed)
    shrunk = shrink(walker, run, breaks)
    assert (shrunk is None) == (prefix_to(walker, run, breaks) is None)
    if shrunk is None:
        return
    assert prefix_to(walker, shrunk, breaks) == shrunk
    for place in range(len(shrunk)):
        rest = prefix_to(walker, shrunk[:place] + shrunk[place + 1 :], breaks)
        assert rest is None or len(rest) == len(shrunk)
    assert len(shrunk) >= SHORTEST[name]


def test_of_a_few_random_runs_one_shrinks_to_the_shortest() -> None:
    _, walker = _walker()
    for name, steps in SHORTEST.items():
        found = shortest(walker, walker.walks(12, 80, 0), _breaks(name))
        assert found is not None
        assert len(found) == steps


def test_what_cannot_be_taken_is_skipped() -> None:
    _, walker = _walker()
    run = [Step("Continue", {}, {}), Step("Nonsense", {}, {}), Step("Pause", {"Pause.late": 3}, {})]
    found = prefix_to(walker, run, lambda step, before: bool(step.state["paused"]) and not before["paused"])
    assert found is not None
    assert [(s.action, dict(s.choices)) for s in found] == [("Pause", {"Pause.late": 3})]
    assert shrink(walker, run, lambda _step, _before: False) is None
