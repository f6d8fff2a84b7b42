"""What carries over from one configuration to the next is a proof there: all its obligations are asked again here."""

from __future__ import annotations

import pytest
import z3
from proof_toys import NONE, WEAK, Rule, adds, counter, flag, satisfiable, second_opinion, sets, toy

from checker.confirm import UnconfirmedError, confirm
from checker.decide.decided import Decided
from checker.hints import Hints
from checker.kept.model import KeptClaim, KeptConfiguration, KeptHelp, KeptProof, KeptRun, KeptStuck
from checker.kept.replay import Finds
from checker.proof.carry import carried, carried_region, changed
from checker.proof.interpreter import Interpreter
from checker.proof.liveness import prove_leads_to
from checker.proof.obligations import Proof
from checker.proof.refute import stuck_region
from checker.proof.safety import prove_each_step
from checker.proof.system import System, Tally
from checker.workbench import Workbench
from spec.draft import Draft
from spec.profile import Configuration, load_profile
from spec.properties import catalogue
from spec.tla import Always, Claim, EachStep, LeadsTo, Spec

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
        assert {d.verdict.value for d in first.decide(catalogue()[name])} == {"proved"}
    searched = first.tally.queries
    second = Workbench(PROFILE, Configuration("overlap", "retract", storage), hints=hints)
    for name in names:
        for found in second.decide(catalogue()[name]):
            assert found.verdict.value == "proved"
            assert found.proof is not None
            assert found.system is not None
            assert satisfiable(System(found.system.spec, tally=Tally()), found.proof) == []
            assert second_opinion(found.system, found.proof) == {"unsat"}
    assert second.tally.queries < searched / 2


def _grow(s: Draft) -> None:
    s.when(s.x < 3)
    s.x += 1


GROWS = System(toy([X, DONE], Rule("Grow", NONE, _grow), Rule("Done", WEAK, sets("done"))))


def _kept_proof(claim: Claim, terms: list[str], proof: KeptProof, system: System = GROWS) -> Proof | None:
    kept = KeptClaim("toy", "kept", proof=proof, pending=[("Grow", {})])
    walker = Interpreter(system.spec)
    return Finds(KeptConfiguration("toy", {}, terms, [])).proof(kept, claim, system, walker)


@pytest.mark.parametrize(
    ("terms", "lemmas"),
    [
        # It would say of each step what the step does, and so hide every step but the first.
        (["true) (declare-const x__next Int) (assert (or (= x 0) (= x__next x))", "(<= x 1)"], [0, 1]),
        (["true) (assert false"], [0]),
        (["false"], [0]),
        (["(<= x 1)"], [0]),
        (["(<= x 1) ; nothing", "true"], [0, 1]),
        (["x"], [0]),
        (["(<= no_such 1)"], [0]),
        (["(<= x 3)"], [-1]),
        (["(<= x 3)"], [1]),
        (["(<= x 3)"], [-2]),
    ],
)
def test_no_kept_term_proves_what_is_false(terms: list[str], lemmas: list[int]) -> None:
    assert _kept_proof(Always(X.now <= 1), terms, KeptProof(lemmas)) is None


def test_a_kept_term_proves_what_is_true() -> None:
    assert _kept_proof(Always(X.now <= 4), ["(<= x 3)"], KeptProof([0])) is not None
    assert _kept_proof(Always(X.now <= 4), [], KeptProof([])) is None


@pytest.mark.parametrize(
    "proof",
    [
        KeptProof([], [[]], [KeptHelp("Done", "true")]),
        KeptProof([], [[(-1, "x")]], [KeptHelp("Done", "true")]),
        KeptProof([], [[(0, "x")]], [KeptHelp("Done", "true")]),
        KeptProof([], [[(1, "no_such")]], [KeptHelp("Done", "true")]),
        KeptProof([], [[(1, "x")]], [KeptHelp("Grow", "true")]),
        KeptProof([], [], [KeptHelp("Done", "false")]),
        KeptProof([], [], []),
        KeptProof([], [], [], [("Done", KeptProof([]))]),
        KeptProof([], [], [KeptHelp("Done", "true")], [("Done", KeptProof([]))]),
    ],
)
def test_no_kept_rank_proves_what_is_false(proof: KeptProof) -> None:
    assert _kept_proof(LeadsTo(X.now > 0, X.now == 0), [], proof) is None


def _refuted(system: System, claim: Claim, run: KeptRun) -> bool:
    """Whether the kept run counts as one that breaks the claim."""
    walker, kept = Interpreter(system.spec), KeptClaim("toy", "kept", run=run)
    found = Finds(KeptConfiguration("toy", {}, [], [])).refutation(kept, claim, system, walker)
    try:
        return found is not None and bool(confirm(walker, claim, found, walker))
    except UnconfirmedError:
        return False


def _reset(s: Draft) -> None:
    s.when(s.x > 0)
    s.x = 0


def _blink(s: Draft) -> None:
    s.when(s.done)
    s.done = False


def test_a_loop_in_which_the_goal_comes_again_is_no_counterexample() -> None:
    blinks = System(toy([DONE], Rule("Set", NONE, sets("done")), Rule("Blink", WEAK, _blink)))
    loop = KeptRun([("Set", {}), ("Blink", {})], 0)
    assert not _refuted(blinks, LeadsTo(z3.Not(DONE.now), DONE.now), loop)
    assert _refuted(blinks, LeadsTo(z3.Not(DONE.now), z3.BoolVal(val=False)), loop)


def test_a_loop_that_ignores_what_something_reads_is_none() -> None:
    # Up to 3 it grows; that it is not yet 3 is no reason to grow for ever.
    fair = System(toy([X], Rule("Grow", WEAK, _grow)))
    claim = LeadsTo(X.now < 3, X.now == 3)
    assert not _refuted(fair, claim, KeptRun([("Grow", {})] * 2, 1, ["x"]))
    free = System(toy([X, OPEN], Rule("Add", WEAK, adds("x"))))
    forever = KeptRun([("Add", {})] * 2, 1, ["x"])
    assert _refuted(free, LeadsTo(z3.Not(OPEN.now), OPEN.now), forever)
    assert not _refuted(free, LeadsTo(X.now < 3, X.now == 3), forever)
    assert not _refuted(free, LeadsTo(z3.Not(OPEN.now), OPEN.now), KeptRun([("Add", {})] * 2, 1))


@pytest.mark.parametrize("loop_from", [-1, -2, 3, 10**30])
def test_a_loop_that_begins_nowhere_is_none(loop_from: int) -> None:
    free = System(toy([X, OPEN], Rule("Add", WEAK, adds("x"))))
    assert not _refuted(free, LeadsTo(z3.Not(OPEN.now), OPEN.now), KeptRun([("Add", {})] * 2, loop_from, ["x"]))


def test_a_run_of_no_steps_breaks_no_step() -> None:
    assert not _refuted(GROWS, EachStep(X.next <= X.now), KeptRun([]))
    assert _refuted(GROWS, EachStep(X.next <= X.now), KeptRun([("Grow", {})]))


@pytest.mark.parametrize(
    "stuck",
    [
        KeptStuck([], []),
        KeptStuck([], ["~x"]),
        KeptStuck([], ["x"]),
        KeptStuck([], ["no_such"]),
        KeptStuck([0], ["~done"]),
        KeptStuck([], ["~done"], "false"),
        KeptStuck([], ["~done"], "(forall ((q Int)) (or (> q 0) (<= q 0)))"),
        KeptStuck([], ["~done"], "true) (assert false"),
    ],
)
def test_no_kept_region_that_is_left_counts(stuck: KeptStuck) -> None:
    run = KeptRun([("Grow", {})], stuck=stuck)
    assert not _refuted(GROWS, LeadsTo(X.now > 0, DONE.now), run)
    still = System(toy([X, DONE], Rule("Grow", NONE, _grow)))
    good = KeptRun([("Grow", {})], stuck=KeptStuck([], ["x"]))
    assert _refuted(still, LeadsTo(X.now > 0, DONE.now), good)
    assert not _refuted(still, LeadsTo(X.now > 0, X.now > 0), good)
