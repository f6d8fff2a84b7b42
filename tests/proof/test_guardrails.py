"""Guard rails: a claim that speaks of nothing, an action that is never taken, a fairness that is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proof_toys import NONE, STRONG, TRUE, WEAK, Rule, adds, assert_proved, counter, decide, flag, sets, toy

from checker.proof.guardrails import dead_actions, unneeded_fairness, vacuous
from checker.proof.system import System
from spec.cone import Cones
from spec.draft import Draft
from spec.terms import conj, implies, neg
from spec.tla import Always, EachStep, FinitelyOften, LeadsTo, Spec

if TYPE_CHECKING:
    from proof_desk import Desk

DONE, OPEN, LOST = flag("done"), flag("open"), flag("lost")
X = counter("x")


def _lose(s: Draft) -> None:
    s.when(s.lost)
    s.x += 1


def _spec() -> Spec:
    rules = (Rule("Open", NONE, sets("open")), Rule("Finish", WEAK, sets("done")), Rule("Lose", WEAK, _lose))
    return toy([DONE, OPEN, LOST, X], *rules)


def test_pending_that_is_never_reached() -> None:
    # A proof of it would say nothing: no state is ever pending. So it is not called proved.
    claim = LeadsTo(LOST.now, conj(DONE.now, neg(DONE.now)))
    found = decide(_spec(), claim)
    assert (found.verdict.value, found.method, found.proof) == ("unknown", "vacuous", None)
    assert found.system is not None
    assert not vacuous(found.system, claim, [])  # without the invariant nobody can tell


def test_pending_that_is_reached() -> None:
    claim = LeadsTo(OPEN.now, DONE.now)
    found = decide(_spec(), claim)
    proof = assert_proved(found)
    assert found.system is not None
    assert not vacuous(found.system, claim, proof.lemmas)


@pytest.mark.parametrize(
    ("claim", "empty"),
    [
        (Always(implies(LOST.now, DONE.now)), True),
        (Always(implies(OPEN.now, neg(LOST.now))), False),
        (Always(neg(LOST.now)), False),
        (EachStep(implies(X.next > X.now, DONE.now)), True),
        (EachStep(implies(X.next == X.now, neg(LOST.next))), False),
        (EachStep(implies(conj(OPEN.next, neg(OPEN.now)), neg(LOST.now)), but=frozenset({"Open"})), True),
        (EachStep(implies(conj(OPEN.next, neg(OPEN.now)), neg(LOST.now)), but=frozenset({"Finish"})), False),
        (FinitelyOften(OPEN.now, X.next > X.now), True),
        (FinitelyOften(LOST.now, conj(DONE.next, neg(DONE.now))), True),
        (FinitelyOften(OPEN.now, conj(DONE.next, neg(DONE.now))), False),
    ],
)
def test_antecedent_and_event(claim: Always | EachStep | FinitelyOften, empty: bool) -> None:  # noqa: FBT001
    assert vacuous(System(_spec()), claim, [neg(LOST.now)]) is empty


def test_step_outside_the_slice_meets_an_antecedent() -> None:
    piece = Cones(_spec()).of(OPEN.now)
    assert piece.dropped == {"Finish", "Lose"}
    claim = EachStep(implies(OPEN.now == OPEN.next, TRUE), but=frozenset({"Open"}))
    assert not vacuous(System(piece), claim, [])
    every = EachStep(implies(OPEN.now == OPEN.next, TRUE), but=frozenset({"Open", "Finish", "Lose"}))
    assert vacuous(System(piece), every, [])


def test_dead_actions() -> None:
    system = System(_spec())
    assert dead_actions(system, [neg(LOST.now)]) == ["Lose"]
    assert dead_actions(system, []) == []


def test_unneeded_fairness() -> None:
    # Finish alone suffices; Lose is not used. Of Other and Finish either would do for `done`.
    rules = (Rule("Open", WEAK, sets("open")), Rule("Finish", WEAK, sets("done")), Rule("Lose", WEAK, _lose))
    spec = toy([DONE, OPEN, LOST, X], *rules)
    system = System(spec)
    proof = assert_proved(decide(spec, LeadsTo(TRUE, DONE.now)))
    assert unneeded_fairness(system, proof) == ["Open", "Lose"]
    either = toy([DONE, OPEN], Rule("Finish", WEAK, sets("done")), Rule("Other", WEAK, sets("done")))
    found = decide(either, LeadsTo(TRUE, DONE.now))
    assert found.proof is not None
    assert found.system is not None
    assert unneeded_fairness(found.system, found.proof) == ["Finish", "Other"]


def test_fairness_of_a_nested_proof_is_needed() -> None:
    def toggle(s: Draft) -> None:
        s.open = neg(s.open)

    def finish(s: Draft) -> None:
        s.when(s.open)
        s.done = True

    spec = toy([DONE, OPEN], Rule("Toggle", WEAK, toggle), Rule("Finish", STRONG, finish))
    found = decide(spec, LeadsTo(TRUE, DONE.now))
    assert found.proof is not None
    assert found.system is not None
    assert unneeded_fairness(found.system, found.proof) == []


def test_unit_is_needed_or_not_as_a_whole() -> None:
    def down(s: Draft) -> None:
        s.when(s.x > 0, s.open)
        s.x -= 1

    def down_too(s: Draft) -> None:
        s.when(s.x > 0, neg(s.open))
        s.x -= 1

    rules = (
        Rule("Down", WEAK, down, "Loop"),
        Rule("DownToo", WEAK, down_too, "Loop"),
        Rule("Open", WEAK, sets("open")),
    )
    found = decide(toy([X, OPEN], *rules, init={"x": 3}), LeadsTo(TRUE, X.now == 0))
    proof = assert_proved(found)
    assert found.system is not None
    assert unneeded_fairness(found.system, proof) == ["Open"]


def test_claims_of_safety_need_no_fairness() -> None:
    spec = toy([X], Rule("Grow", WEAK, adds("x")))
    found = decide(spec, Always(X.now >= 0))
    assert found.proof is not None
    assert found.system is not None
    assert unneeded_fairness(found.system, found.proof) == list(found.system.spec.fair_units)


def test_founding_case_says_something(desk: Desk) -> None:
    found = desk("paused-flush-succeeds", "normal retract none", remedies=("reap-while-paused",))
    for one in found:
        assert one.proof is not None
        assert one.system is not None
        assert not vacuous(one.system, one.part.claim, one.proof.lemmas)
        assert dead_actions(one.system, one.proof.lemmas) == []
    assert found[0].proof is not None
    assert found[0].system is not None
    assert unneeded_fairness(found[0].system, found[0].proof) == ["DeferredFlushGranted", "DeferredFlushTimesOut"]
