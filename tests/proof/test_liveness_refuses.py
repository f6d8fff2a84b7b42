"""Where a lasso search merely finds nothing, or a rank search looks at the wrong thing, nothing is proved."""

from __future__ import annotations

import pytest
import z3
from proof_toys import (
    NONE,
    STRONG,
    TRUE,
    WEAK,
    Rule,
    adds,
    assert_proved,
    counter,
    decide,
    flag,
    numbers,
    second_opinion,
    sets,
    stuck_in,
    toy,
)

from checker.proof.liveness import Gap, LeadsToSearch, prove_leads_to
from checker.proof.obligations import Helpful, Proof
from checker.proof.rank import Component
from checker.proof.refute import refute_by_lasso
from checker.proof.system import Limits, System, UndecidedError
from checker.proof.unroll import Unrolling
from spec.draft import Draft
from spec.terms import conj, disj, ite, nat, neg
from spec.tla import Fairness, LeadsTo, Spec

DONE, OPEN, SEEN = flag("done"), flag("open"), flag("seen")
X, Y = counter("x"), counter("y")
DONE_IN_THE_END = LeadsTo(TRUE, DONE.now)


def _finish_below(s: Draft) -> None:
    s.when(s.x < 0)
    s.done = True


def test_fair_action_must_grow_a_counter() -> None:
    # No state ever comes back: the lasso search is blind, and the claim is false.
    spec = toy([X, DONE], Rule("Grow", WEAK, adds("x")), Rule("Finish", WEAK, _finish_below))
    assert refute_by_lasso(Unrolling(System(spec)), DONE_IN_THE_END) is None
    found = decide(spec, DONE_IN_THE_END)
    assert (found.verdict.value, found.method) == ("refuted", "stuck-region")
    assert found.confirmed is not None
    assert (len(found.confirmed.steps), found.confirmed.loop_from) == (0, None)


def _finish_behind(s: Draft) -> None:
    s.when(s.x < s.y)
    s.done = True


def _grows_together() -> Spec:
    return toy([X, Y, DONE], Rule("Grow", WEAK, adds("x", "y")), Rule("Finish", WEAK, _finish_behind))


def test_unknown_stays_unknown() -> None:
    # False, but x = y is in no template and no lasso closes: neither way is it decided.
    spec = _grows_together()
    system = System(spec)
    assert isinstance(prove_leads_to(system, DONE_IN_THE_END, []), Gap)
    assert stuck_in(spec, DONE_IN_THE_END) is None
    assert refute_by_lasso(Unrolling(system), DONE_IN_THE_END) is None
    found = decide(spec, DONE_IN_THE_END)
    assert (found.verdict.value, found.proof, found.confirmed) == ("unknown", None, None)
    assert found.note.startswith("obligation 7 fails (no helpful fair action is enabled, or none stays enabled)")


def test_solver_that_gives_up_is_unknown() -> None:
    def hard(s: Draft) -> None:
        s.when(s.x * s.x * s.x + s.y * s.y * s.y == 33 + s.x * s.y)
        s.done = True

    spec = toy([X, Y, DONE], Rule("Grow", NONE, adds("x", "y")), Rule("Hard", WEAK, hard))
    claim = LeadsTo(z3.Int("x") * z3.Int("y") > 7, DONE.now)
    system = System(spec, Limits(work=1000))
    with pytest.raises(UndecidedError):
        prove_leads_to(system, claim, [])


def test_unfair_action_on_the_way() -> None:
    def finish(s: Draft) -> None:
        s.when(s.open)
        s.done = True

    fair = toy([OPEN, DONE], Rule("Open", WEAK, sets("open")), Rule("Finish", WEAK, finish))
    proof = assert_proved(decide(fair, DONE_IN_THE_END))
    assert sorted(h.unit for h in proof.helpful) == ["Finish", "Open"]
    unfair = toy([OPEN, DONE], Rule("Open", NONE, sets("open")), Rule("Finish", WEAK, finish))
    found = decide(unfair, DONE_IN_THE_END)
    assert found.verdict.value == "refuted"
    assert found.confirmed is not None
    assert (found.confirmed.steps, found.confirmed.loop_from) == ((), 0)


def _toggling(fairness: Fairness) -> Spec:
    def toggle(s: Draft) -> None:
        s.open = neg(s.open)

    def finish(s: Draft) -> None:
        s.when(s.open)
        s.done = True

    return toy([OPEN, DONE], Rule("Toggle", WEAK, toggle), Rule("Finish", fairness, finish))


def test_strongly_fair_action_treated_as_weakly_fair() -> None:
    found = decide(_toggling(WEAK), DONE_IN_THE_END)
    assert (found.verdict.value, found.method) == ("refuted", "fair-lasso")
    assert found.confirmed is not None
    assert [s.action for s in found.confirmed.steps] == ["Toggle", "Toggle"]
    assert found.confirmed.loop_from == 0


def test_strongly_fair_action_by_a_nested_rank() -> None:
    found = decide(_toggling(STRONG), DONE_IN_THE_END)
    proof = assert_proved(found)
    assert [h.unit for h in proof.helpful] == ["Finish"]
    assert [unit for unit, _ in proof.recurrent] == ["Finish"]
    nested = proof.recurrent[0][1]
    assert [h.unit for h in nested.helpful] == ["Toggle"]
    assert nested.within is not None
    # The same proof, read with Finish weakly fair, is not well formed; without its nested part it does not hold.
    bare = Proof(proof.claim, proof.lemmas, proof.rank, proof.helpful)
    assert found.system is not None
    assert numbers(found.system, bare) == [7, 8]


def test_strong_fairness_needs_recurrence() -> None:
    # Strongly fair, but Open is not fair: it may never be enabled.
    def finish(s: Draft) -> None:
        s.when(s.open)
        s.done = True

    found = decide(toy([OPEN, DONE], Rule("Open", NONE, sets("open")), Rule("Finish", STRONG, finish)), DONE_IN_THE_END)
    assert found.verdict.value == "refuted"


def test_enabled_means_with_a_change_of_state() -> None:
    # Spin is enabled for ever, and changes nothing: taking it is stuttering.
    def spin(s: Draft) -> None:
        s.done = disj(s.done, s.open)

    spec = toy([OPEN, DONE], Rule("Spin", WEAK, spin), Rule("Open", NONE, sets("open")))
    system = System(spec)
    assert system.impossible(system.solver(neg(OPEN.now)), spec.enabled("Spin"))
    found = decide(spec, DONE_IN_THE_END)
    assert found.verdict.value == "refuted"
    assert found.confirmed is not None
    assert (found.confirmed.steps, found.confirmed.loop_from) == ((), 0)


def test_stuttering_is_a_run() -> None:
    spec = toy([DONE], Rule("Finish", NONE, sets("done")))
    run = refute_by_lasso(Unrolling(System(spec)), DONE_IN_THE_END)
    assert run is not None
    assert (run.run.steps, run.run.loop_from) == ((), 0)
    assert decide(spec, DONE_IN_THE_END).verdict.value == "refuted"


def test_nothing_stutters_where_a_fair_action_is_enabled() -> None:
    spec = toy([DONE], Rule("Finish", WEAK, sets("done")))
    assert refute_by_lasso(Unrolling(System(spec)), DONE_IN_THE_END) is None
    assert [h.unit for h in assert_proved(decide(spec, DONE_IN_THE_END)).helpful] == ["Finish"]


def _exchanging() -> Spec:
    def to_y(s: Draft) -> None:
        s.when(s.x > 0)
        s.x -= 1
        s.y += 1

    def to_x(s: Draft) -> None:
        s.when(s.y > 0)
        s.y -= 1
        s.x += 1

    def take(s: Draft) -> None:
        s.when(s.x + s.y > 0)
        first = s.x > 0
        s.x, s.y = ite(first, s.x - 1, s.x), ite(first, s.y, s.y - 1)

    rules = (Rule("ToY", NONE, to_y), Rule("ToX", NONE, to_x), Rule("Take", WEAK, take))
    return toy([X, Y], *rules, init={"x": 3, "y": 2})


def test_rank_that_needs_a_pair_sum() -> None:
    claim = LeadsTo(TRUE, X.now + Y.now == 0)
    search = LeadsToSearch(System(_exchanging()), claim, [])
    assert isinstance(search.attempt(slice(0, 1)), Gap)
    proof = assert_proved(decide(_exchanging(), claim))
    assert [c.name for c in proof.rank] == ["x + y"]
    assert [h.unit for h in proof.helpful] == ["Take"]


def test_rank_unbounded_below() -> None:
    # x - y falls with every Grow for ever.
    spec = toy([X, Y, DONE], Rule("Grow", WEAK, adds("y")), Rule("Finish", NONE, sets("done")))
    found = decide(spec, DONE_IN_THE_END)
    assert (found.verdict.value, found.method) == ("refuted", "fair-lasso")
    system = System(spec)
    falling = Component(((1, "x"), (-1, "y")), X.now - Y.now)
    forged = Proof(DONE_IN_THE_END, (), (falling,), (Helpful("Grow", TRUE),))
    assert numbers(system, forged) == [4]
    assert second_opinion(system, forged) == {"sat", "unsat"}


def _two_passes(unit: str) -> Spec:
    def run(s: Draft) -> None:
        s.when(s.x > 0, neg(s.open))
        s.x -= 1

    def paused(s: Draft) -> None:
        s.when(s.x > 0, s.open)
        s.x -= 1

    def flip(s: Draft) -> None:
        s.open = neg(s.open)

    rules = (Rule("Run", WEAK, run, unit), Rule("Paused", WEAK, paused, unit), Rule("Flip", NONE, flip))
    return toy([X, OPEN], *rules, init={"x": 2})


def test_unit_of_two_exclusive_actions() -> None:
    claim = LeadsTo(TRUE, X.now == 0)
    proof = assert_proved(decide(_two_passes("Loop"), claim))
    assert [h.unit for h in proof.helpful] == ["Loop"]
    assert [c.name for c in proof.rank] == ["x"]


def test_exclusive_actions_that_are_fair_alone() -> None:
    found = decide(_two_passes(""), LeadsTo(TRUE, X.now == 0))
    assert (found.verdict.value, found.method) == ("refuted", "fair-lasso")
    assert found.confirmed is not None
    assert [s.action for s in found.confirmed.steps] == ["Flip", "Flip"]


def _helps_once_resumed(resume: Fairness) -> Spec:
    def run(s: Draft) -> None:
        s.when(neg(s.open), s.x > 0)
        s.x -= ite(conj(s.seen, s.x > 1), nat(2), nat(1))

    def idle(s: Draft) -> None:
        s.when(s.open)
        s.seen = neg(s.seen)

    def leave(s: Draft) -> None:
        s.when(s.open)
        s.open = False

    rules = (Rule("Run", WEAK, run, "Loop"), Rule("Idle", WEAK, idle, "Loop"), Rule("Leave", resume, leave))
    return toy([X, OPEN, SEEN], *rules, init={"x": 2, "open": True})


def test_unit_that_helps_in_a_part_of_the_region() -> None:
    found = decide(_helps_once_resumed(WEAK), LeadsTo(TRUE, X.now == 0))
    proof = assert_proved(found)
    where = {h.unit: str(z3.simplify(h.where)) for h in proof.helpful}
    assert where == {"Leave": "True", "Loop": "Not(open)"}
    # Helping everywhere is more than it does.
    everywhere = tuple(Helpful(h.unit, TRUE) for h in proof.helpful)
    assert found.system is not None
    assert numbers(found.system, Proof(proof.claim, proof.lemmas, proof.rank, everywhere)) == [6]


def test_unit_that_helps_in_a_part_that_nothing_reaches() -> None:
    found = decide(_helps_once_resumed(NONE), LeadsTo(TRUE, X.now == 0))
    assert found.verdict.value == "refuted"


def test_pending_dropped_without_the_goal() -> None:
    def drop(s: Draft) -> None:
        s.open = False

    spec = toy([OPEN, DONE], Rule("Drop", NONE, drop), Rule("Finish", WEAK, sets("done")), init={"open": True})
    found = prove_leads_to(System(spec), LeadsTo(OPEN.now, DONE.now), [])
    assert isinstance(found, Gap)
    assert (found.obligation, found.about) == (3, "Drop can end the pending state without the goal")


def test_claim_is_read_from_any_pending_state_not_only_the_first() -> None:
    # Done once, undone, and then never again.
    def undo(s: Draft) -> None:
        s.when(s.done)
        s.done, s.open = False, True

    def finish(s: Draft) -> None:
        s.when(neg(s.open))
        s.done = True

    spec = toy([OPEN, DONE], Rule("Undo", NONE, undo), Rule("Finish", WEAK, finish))
    found = decide(spec, LeadsTo(conj(neg(DONE.now)), DONE.now))
    assert found.verdict.value == "refuted"
    assert found.confirmed is not None
    assert [s.action for s in found.confirmed.steps][:2] == ["Finish", "Undo"]


def test_scaled_sum() -> None:
    # Each step trades one x for a y and two ys for nothing less than an x: 2x + y falls.
    def trade(s: Draft) -> None:
        s.when(s.x > 0)
        s.x -= 1
        s.y += 1

    def back(s: Draft) -> None:
        s.when(s.y > 2)
        s.y -= 3
        s.x += 1

    def spend(s: Draft) -> None:
        s.when(s.x == 0, s.y > 0)
        s.y -= 1

    rules = (Rule("Trade", WEAK, trade), Rule("Back", NONE, back), Rule("Spend", WEAK, spend))
    spec = toy([X, Y], *rules, init={"x": 4})
    proof = assert_proved(decide(spec, LeadsTo(TRUE, conj(X.now == nat(0), Y.now == nat(0)))))
    assert "2*x + y" in {c.name for c in proof.rank}
