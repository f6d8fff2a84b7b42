"""What a review of soundness found once: each was a wrong answer, and is a test now."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof_toys import NONE, STRONG, TRUE, WEAK, Rule, adds, counter, decide, flag, numbers, sets, stuck_in, toy

from checker.confirm import over
from checker.proof.obligations import Helpful, MalformedProofError, Proof, obligations
from checker.proof.refute import refute_by_lasso, refute_finitely_often
from checker.proof.system import System, check_naturals
from checker.proof.unroll import Unrolling
from checker.workbench import Workbench
from spec.cone import Cones
from spec.draft import Draft
from spec.errors import SpecError
from spec.profile import load_profile
from spec.properties import catalogue
from spec.terms import conj, disj, implies, ite, nat, neg
from spec.tla import EachStep, FinitelyOften, LeadsTo, Spec

F, B, Y = flag("f"), flag("b"), flag("y")
X = counter("x")
F_IN_THE_END = LeadsTo(TRUE, F.now)


def test_slice_keeps_the_actions_that_a_claim_about_steps_speaks_of(tmp_path: Path) -> None:
    # A paused pass that does nothing changes no variable; it is the step that breaks the claim.
    path = tmp_path / "nothing-while-paused.toml"
    path.write_text('schema = 1\nbase = "sglang-0.5.23"\n[set.loops.normal]\npaused = []\n', encoding="utf-8")
    profile = load_profile(str(path))
    bench = Workbench(profile, profile.configurations(["normal"], ["retract"])[0])
    found = bench.decide(catalogue()["idle-is-true"])
    assert [d.verdict.value for d in found] == ["refuted"]
    run = found[0].confirmed
    assert run is not None
    assert run.steps[-1].action == "PausedPass"
    before = run.steps[-2].state
    assert run.last == before
    assert not over(found[0].part.claim.holds)(before, run.last)  # type: ignore[union-attr]


def test_step_outside_the_slice_is_an_obligation_of_a_claim_about_steps() -> None:
    spec = toy([X, F], Rule("Grow", NONE, adds("x")), Rule("Other", NONE, sets("f")))
    piece = Cones(spec).of(X.now)
    assert piece.dropped == {"Other"}
    grows = EachStep(X.next > X.now)
    assert numbers(System(piece), Proof(grows, ())) == [3]
    assert numbers(System(piece), Proof(EachStep(X.next > X.now, but=frozenset({"Other"})), ())) == []
    assert decide(spec, grows).verdict.value == "refuted"
    assert decide(spec, EachStep(X.next >= X.now)).verdict.value == "proved"


def test_event_that_stuttering_can_be_is_no_event() -> None:
    spec = toy([X], Rule("Grow", NONE, adds("x")))
    for event in (X.next >= X.now, X.next == 3):
        with pytest.raises(SpecError, match="a stuttering step"):
            decide(spec, FinitelyOften(TRUE, event))


def _falls(s: Draft) -> None:
    s.x -= 1


def test_counter_that_falls_below_zero() -> None:
    spec = toy([X, F], Rule("Fall", WEAK, _falls))
    with pytest.raises(SpecError, match="toy: Fall can take x below 0"):
        check_naturals(System(spec), [])
    with pytest.raises(SpecError, match="Fall can take x below 0"):
        decide(spec, LeadsTo(TRUE, X.now == 5))
    # Where a lemma keeps the action from it, TypeOK holds.
    check_naturals(System(spec), [X.now == 7])


def test_lasso_keeps_the_counters_that_the_claim_reads() -> None:
    spec = toy([X], Rule("Grow", WEAK, adds("x")))
    unrolling = Unrolling(System(spec))
    assert refute_by_lasso(unrolling, LeadsTo(TRUE, X.now >= 100)) is None
    assert refute_finitely_often(unrolling, FinitelyOften(TRUE, X.next == 3)) is None
    # Of a change alone it may forget the value: that x grows happens for ever.
    grows = refute_finitely_often(unrolling, FinitelyOften(TRUE, X.next > X.now))
    assert grows is not None
    assert grows.run.ignored == {"x"}
    assert decide(spec, FinitelyOften(TRUE, X.next > X.now)).verdict.value == "refuted"
    assert decide(spec, LeadsTo(TRUE, X.now >= 100)).verdict.value != "refuted"


def _sets_by_choice(s: Draft) -> None:
    s.f = disj(s.f, s.choose("c", high=1) > 0)


def test_fair_action_that_is_help_too() -> None:
    # It moves only by a choice other than its witness; that it is never taken is not fair to it.
    spec = toy([F], Rule("Help", WEAK, _sets_by_choice, help=True))
    assert stuck_in(spec, F_IN_THE_END) is None
    assert refute_by_lasso(Unrolling(System(spec)), F_IN_THE_END) is None
    assert decide(spec, F_IN_THE_END).verdict.value == "unknown"
    unfair = toy([F], Rule("Help", NONE, _sets_by_choice, help=True))
    assert stuck_in(unfair, F_IN_THE_END) is not None


def _goes_when_b(s: Draft) -> None:
    s.when(s.b)
    s.f = True


def test_proof_whose_helpful_action_is_not_fair() -> None:
    system = System(toy([F], Rule("Go", NONE, sets("f"))))
    with pytest.raises(MalformedProofError, match="Go is helpful, but its fairness is none"):
        obligations(system, Proof(F_IN_THE_END, (), (), (Helpful("Go", TRUE),)))


def test_proof_whose_helpful_action_does_not_exist() -> None:
    system = System(toy([F], Rule("Go", WEAK, sets("f"))))
    with pytest.raises(MalformedProofError, match="Come is helpful, but its fairness is none"):
        obligations(system, Proof(F_IN_THE_END, (), (), (Helpful("Come", TRUE),)))


def test_recurrence_of_a_weakly_fair_action() -> None:
    system = System(toy([F, B], Rule("Go", WEAK, _goes_when_b)))
    nested = Proof(LeadsTo(TRUE, system.spec.enabled("Go")), (), within=(conj(TRUE, neg(F.now)), ()))
    with pytest.raises(MalformedProofError, match="Go is helpful, but its fairness is weak"):
        obligations(system, Proof(F_IN_THE_END, (), (), (Helpful("Go", TRUE),), (("Go", nested),)))


def test_nested_proof_of_another_claim() -> None:
    system = System(toy([F, B], Rule("Go", STRONG, _goes_when_b)))
    helpful = (Helpful("Go", TRUE),)
    other = Proof(LeadsTo(TRUE, TRUE), ())
    with pytest.raises(MalformedProofError, match="the nested proof of Go is not one of recurrence"):
        obligations(system, Proof(F_IN_THE_END, (), (), helpful, (("Go", other),)))
    inside = Proof(LeadsTo(TRUE, TRUE), (), within=(conj(TRUE, neg(F.now)), ()))
    with pytest.raises(MalformedProofError, match="the nested proof of Go proves something else"):
        obligations(system, Proof(F_IN_THE_END, (), (), helpful, (("Go", inside),)))


def test_nested_proof_inside_another_region() -> None:
    system = System(toy([F, B], Rule("Go", STRONG, _goes_when_b)))
    nested = Proof(LeadsTo(TRUE, system.spec.enabled("Go")), (), within=(F.now, ()))
    with pytest.raises(MalformedProofError, match="the nested proof of Go proves something else"):
        obligations(system, Proof(F_IN_THE_END, (), (), (Helpful("Go", TRUE),), (("Go", nested),)))


def test_nested_proof_of_what_is_not_helpful() -> None:
    system = System(toy([F, B], Rule("Go", STRONG, _goes_when_b)))
    nested = Proof(LeadsTo(TRUE, system.spec.enabled("Go")), (), within=(conj(TRUE, neg(F.now)), ()))
    with pytest.raises(MalformedProofError, match="Go recurs, but is not helpful"):
        obligations(system, Proof(F_IN_THE_END, (), (), (), (("Go", nested),)))


def _moves_by_the_other_choice(s: Draft) -> None:
    c = s.choose("c", high=1, witness=ite(s.b, nat(1), nat(0)))
    s.y = ite(conj(neg(s.b), c > 0), neg(s.y), s.y)
    s.f = disj(s.f, s.b)


def _toggles_b(s: Draft) -> None:
    s.b = neg(s.b)


def test_strong_fairness_met_by_a_step_that_does_not_help() -> None:
    # Taken where only a choice other than the witness moves it, Act is taken, and f stays false.
    rules = (Rule("Toggle", WEAK, _toggles_b), Rule("Act", STRONG, _moves_by_the_other_choice))
    system = System(toy([F, B, Y], *rules))
    claim = LeadsTo(TRUE, F.now)
    outer = conj(claim.pending, neg(claim.goal))
    nested = Proof(LeadsTo(TRUE, system.spec.enabled("Act")), (), (), (Helpful("Toggle", TRUE),), within=(outer, ()))
    forged = Proof(claim, (), (), (Helpful("Act", TRUE),), (("Act", nested),))
    assert numbers(system, forged) == [6]
    assert decide(system.spec, claim).verdict.value != "proved"


def _never(s: Draft) -> None:
    s.when(s.x < 0)
    s.f = True


def test_stuck_region_in_which_a_fair_action_counts_for_ever() -> None:
    spec = toy([X, F], Rule("Grow", WEAK, adds("x")), Rule("Go", WEAK, _never))
    found = stuck_in(spec, F_IN_THE_END)
    assert found is not None
    assert found.stuck is not None
    # It does not settle: that the region is closed is the proof.
    assert (found.run.steps, found.run.loop_from) == ((), None)


def _unit_with_an_idle_action() -> Spec:
    def run(s: Draft) -> None:
        s.when(s.x > 0)
        s.x -= 1

    return toy([X, Y], Rule("Run", WEAK, run, "Loop"), Rule("Idle", WEAK, _toggles_y, "Loop"), init={"x": 2})


def _toggles_y(s: Draft) -> None:
    s.y = neg(s.y)


def test_slice_does_not_take_a_unit_apart() -> None:
    # Idle for ever is fair to Loop, and x stays 2. Nothing but x is in the slice that the claim needs.
    claim = LeadsTo(TRUE, X.now == 0)
    assert decide(_unit_with_an_idle_action(), claim).verdict.value != "proved"


def test_antecedent_that_no_step_meets_is_kept_by_induction() -> None:
    spec = toy([X, F], Rule("Grow", NONE, adds("x")), Rule("Go", NONE, sets("f")))
    assert decide(spec, EachStep(implies(X.next < X.now, F.now))).verdict.value == "proved"


def _splits(s: Draft, *, always: bool) -> None:
    """`y` falls; with that, or always, `x` rises by as much as the environment likes."""
    more = s.choose("more")
    s.x += more if always else ite(s.y, more, nat(0))
    s.y = False


@pytest.mark.parametrize("always", [False, True])
def test_a_pick_without_end_disables_nothing_but_where_it_matters(always: bool) -> None:  # noqa: FBT001 - a parameter
    # `Split` is fair: where y is false it changes nothing, unless what it picks counts there too.
    spec = toy([F, Y, X], Rule("Split", WEAK, lambda s: _splits(s, always=always)))
    run = refute_by_lasso(Unrolling(System(spec)), LeadsTo(TRUE, disj(F.now, X.now > 0)))
    assert (run is None) is always


def _through(s: Draft) -> None:
    s.x += s.choose("two", high=s.choose("one", high=5))


def test_a_pick_that_only_another_range_reads_matters_too() -> None:
    # At the witness of the first the second has one value; with another first it has more, and x rises.
    spec = toy([F, X], Rule("Go", WEAK, _through))
    claim = LeadsTo(TRUE, X.now > 0)
    assert refute_by_lasso(Unrolling(System(spec)), claim) is None
    assert decide(spec, claim).verdict.value == "unknown"


W, H = counter("w"), counter("h")


def _queue(s: Draft) -> None:
    s.when(neg(s.f))
    s.w += 1


def _hold(s: Draft) -> None:
    s.when(s.h < s.w)
    s.h += 1


def _serve(s: Draft) -> None:
    s.when(s.w > 0)
    s.w -= 1
    s.h = ite(s.h > s.w, s.w, s.h)


def test_of_two_counters_one_is_never_above_the_other() -> None:
    # Once nothing comes any more, all is served; without h <= w there may be an h left, and nothing to serve.
    rules = Rule("Queue", NONE, _queue), Rule("Close", NONE, sets("f")), Rule("Serve", WEAK, _serve)
    served = LeadsTo(F.now, H.now == 0)
    found = decide(toy([F, W, H], *rules, Rule("Hold", NONE, _hold)), served)
    assert found.verdict.value == "proved"
    assert found.proof is not None
    assert "h <= w" in map(str, found.proof.lemmas)
    assert decide(toy([F, W, H], *rules, Rule("Hold", NONE, adds("h"))), served).verdict.value == "refuted"
