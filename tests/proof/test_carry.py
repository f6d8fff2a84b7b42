"""What carries over from one configuration to the next is a proof there: all its obligations are asked again here."""

from __future__ import annotations

import pytest
from proof_toys import NONE, WEAK, Rule, adds, counter, flag, satisfiable, second_opinion, sets, toy

from checker.decide.decided import Decided
from checker.hints import Hints
from checker.proof.carry import carried, carried_region, changed
from checker.proof.liveness import prove_leads_to
from checker.proof.obligations import Proof
from checker.proof.refute import stuck_region
from checker.proof.safety import prove_each_step
from checker.proof.system import System, Tally
from checker.workbench import Workbench
from spec.profile import Configuration, load_profile
from spec.properties import catalogue
from spec.tla import Draft, EachStep, LeadsTo, Spec

X, DONE, OPEN = counter("x"), flag("done"), flag("open")
FALLS = LeadsTo(X.now > 0, X.now == 0)
PROFILE = load_profile("sglang-0.5.23")


def _fall(s: Draft) -> None:
    s.when(s.x > 0)
    s.x -= 1


def _fall_fast(s: Draft) -> None:
    s.when(s.x > 1)
    s.x -= 2


def _pair(rule: Rule) -> tuple[System, System]:
    """The same but for one action."""
    first = toy([X, DONE], Rule("Fall", WEAK, _fall), Rule("Other", NONE, sets("done")))
    return System(first), System(toy([X, DONE], Rule("Fall", WEAK, _fall), rule))


def test_what_is_changed() -> None:
    old, new = _pair(Rule("Other", NONE, _fall_fast))
    assert changed(old, new) == {"Other"}
    assert changed(old, old) == frozenset()
    fair = System(toy([X, DONE], Rule("Fall", NONE, _fall), Rule("Other", NONE, sets("done"))))
    assert changed(old, fair) == {"Fall"}
    assert changed(old, System(toy([X, OPEN], Rule("Fall", WEAK, _fall)))) is None
    assert changed(old, System(toy([X, DONE], Rule("Fall", WEAK, _fall), init={"x": 3}))) is None


def test_a_harmless_action_and_a_harmful_one() -> None:
    for rule, holds in ((Rule("Other", NONE, _fall_fast), True), (Rule("Other", NONE, adds("x")), False)):
        old, new = _pair(rule)
        proof = prove_leads_to(old, FALLS, [])
        assert isinstance(proof, Proof)
        assert (carried(old, new, proof, FALLS) is not None) == holds
        assert (satisfiable(new, proof) == []) == holds


def test_an_action_that_is_no_longer_fair_proves_nothing() -> None:
    old, _ = _pair(Rule("Other", NONE, _fall_fast))
    proof = prove_leads_to(old, FALLS, [])
    assert isinstance(proof, Proof)
    assert carried(old, System(toy([X, DONE], Rule("Fall", NONE, _fall))), proof, FALLS) is None


def test_another_claim_is_not_the_same() -> None:
    old, new = _pair(Rule("Other", NONE, _fall_fast))
    proof = prove_each_step(old, EachStep(X.next <= X.now), ())
    assert proof is not None
    assert carried(old, new, proof, EachStep(X.next <= X.now)) is not None
    assert carried(old, new, proof, EachStep(X.next < X.now)) is None
    assert carried(old, new, proof, EachStep(X.next <= X.now, but=frozenset({"Fall"}))) is None


def test_a_region_that_a_new_action_leaves_is_not_closed() -> None:
    claim = LeadsTo(OPEN.now, DONE.now)

    def spec(*more: Rule) -> Spec:
        return toy([OPEN, DONE, X], Rule("Open", NONE, sets("open")), Rule("Grow", WEAK, adds("x")), *more)

    old = System(spec())
    stuck = stuck_region(old, claim, [])
    assert stuck is not None
    assert carried_region(old, System(spec(Rule("More", NONE, adds("x")))), stuck, claim) is stuck
    assert carried_region(old, System(spec(Rule("Finish", NONE, sets("done")))), stuck, claim) is None
    assert carried_region(old, System(spec(Rule("Finish", NONE, sets("done"), help=True))), stuck, claim) is stuck


@pytest.mark.parametrize("storage", ["none", "file"])
def test_carried_proofs_of_the_bundled_profile_hold_to_the_last_obligation(storage: str) -> None:
    hints: Hints[Decided] = Hints()
    names = ["control-answered", "requests-return", "paused-work-ends", "flush-only-when-quiescent", "idle-is-true"]
    first = Workbench(PROFILE, Configuration("overlap", "in_place", storage), hints=hints)
    for name in names:
        assert [d.verdict.value for d in first.decide(catalogue()[name])] == ["proved"]
    searched = first.tally.queries
    second = Workbench(PROFILE, Configuration("overlap", "retract", storage), hints=hints)
    for name in names:
        (found,) = second.decide(catalogue()[name])
        assert found.verdict.value == "proved"
        assert found.proof is not None
        assert found.system is not None
        assert satisfiable(System(found.system.spec, tally=Tally()), found.proof) == []
        assert second_opinion(found.system, found.proof) == {"unsat"}
    assert second.tally.queries < searched / 2
