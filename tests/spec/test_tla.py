"""The vocabulary: guard first, unchanged by default, slices, fairness by unit."""

import pytest
import z3

from spec.cone import Cones
from spec.draft import Draft
from spec.errors import SpecError
from spec.terms import conj, neg
from spec.tla import Fairness, Sort, Spec, Variable, stuttering

X, Y = Variable("x", Sort.NAT), Variable("y", Sort.NAT)
FLAG = Variable("flag", Sort.BOOL)


def draft(name="Act", variables=(X, Y, FLAG)):
    return Draft({v.name: v for v in variables}, name)


def finish(d, fairness=Fairness.NONE, **parts):
    return d.finish(actor="test", engine="test", fairness=fairness, **parts)


def test_what_is_not_assigned_is_unchanged():
    d = draft()
    d.when(d.x > 0)
    d.x -= 1
    action = finish(d)
    assert list(action.updates) == ["x"]
    spec = Spec("toy", (X, Y, FLAG), {"x": 0, "y": 0, "flag": False}, (action,))
    solver = z3.Solver()
    solver.add(spec.step(action), z3.Or(Y.next != Y.now, FLAG.next != FLAG.now))
    assert solver.check() == z3.unsat


def test_an_assignment_of_the_same_value_is_no_update():
    d = draft()
    d.x = d.x
    assert not finish(d).updates


def test_primitives_compose_in_order():
    d = draft()
    d.x += 1
    d.y = d.x
    assert z3.simplify(finish(d).updates["y"] - X.now).as_long() == 1


@pytest.mark.parametrize("early", [lambda d: d.choose("c"), lambda d: setattr(d, "x", d.x + 1)])
def test_a_guard_after_an_update_or_a_choice_is_an_error(early):
    d = draft()
    early(d)
    with pytest.raises(SpecError, match="guard after"):
        d.when(d.x > 0)


def test_two_picks_of_one_name_are_an_error_and_a_number_tells_them_apart():
    d = draft()
    first = d.choose(d.unpicked("some"), high=d.x)
    with pytest.raises(SpecError, match="picks 'some' twice"):
        d.choose("some")
    second = d.choose(d.unpicked("some"), high=d.y)
    third = d.choose(d.unpicked("some"), high=d.y)
    d.x = first + second + third
    assert [choice.name for choice in finish(d).choices] == ["some", "some_2", "some_3"]


def test_an_unknown_variable_names_the_valid_ones():
    d = draft()
    with pytest.raises(SpecError, match="no variable 'z'; valid: flag, x, y"):
        d.z = 1
    with pytest.raises(SpecError, match="no variable 'z'"):
        _ = d.z


def test_enabled_means_with_a_change_of_state():
    d = draft()
    d.x = d.x - d.choose("some", high=d.x, witness=d.x)
    action = finish(d)
    solver = z3.Solver()
    solver.add(action.enabled, X.now == 0)
    assert solver.check() == z3.unsat
    solver = z3.Solver()
    solver.add(neg(action.enabled), X.now > 0)
    assert solver.check() == z3.unsat


def test_a_slice_keeps_what_can_influence_and_drops_the_rest():
    one = draft("One")
    one.when(one.flag)
    one.x += 1
    two = draft("Two")
    two.y += 1
    spec = Spec("toy", (X, Y, FLAG), {"x": 0, "y": 0, "flag": False}, (finish(one), finish(two)))
    piece = Cones(spec).of(X.now)
    assert [v.name for v in piece.variables] == ["x", "flag"]
    assert [a.name for a in piece.actions] == ["One"]
    assert piece.dropped == {"Two"}
    assert [a.name for a in Cones(spec).of(X.now, steps={"Two"}).actions] == ["One", "Two"]


def test_an_unused_choice_does_not_widen_a_slice():
    d = draft()
    d.flag = d.choose("unrelated", high=d.y) > 0
    d.x = d.x + d.choose("steps", high=d.x)
    spec = Spec("toy", (X, Y, FLAG), {"x": 0, "y": 0, "flag": False}, (finish(d),))
    assert [v.name for v in Cones(spec).of(X.now).variables] == ["x"]


def test_the_actions_of_a_unit_share_their_fairness():
    one, two = draft("One"), draft("Two")
    one.x += 1
    two.y += 1
    actions = (finish(one, Fairness.WEAK, unit="loop"), finish(two, Fairness.STRONG, unit="loop"))
    spec = Spec("toy", (X, Y, FLAG), {"x": 0, "y": 0, "flag": False}, actions)
    with pytest.raises(SpecError, match="unit loop differ"):
        _ = spec.fair_units


def test_stuttering_reads_next_as_now():
    spec = Spec("toy", (X, FLAG), {"x": 0, "flag": False}, ())
    changed = conj(X.next != X.now)
    assert z3.is_false(z3.simplify(stuttering(spec, changed)))


def test_without_fairness_drops_one_assumption():
    d = draft("One")
    d.x += 1
    spec = Spec("toy", (X, Y, FLAG), {"x": 0, "y": 0, "flag": False}, (finish(d, Fairness.WEAK),))
    assert list(spec.fair_units) == ["One"]
    assert not spec.without_fairness("One").fair_units


def test_two_actions_of_one_name_are_an_error():
    d = draft("Step")
    d.x += 1
    action = finish(d)
    with pytest.raises(SpecError, match="two actions are named 'Step'"):
        Spec("twice", (X, Y, FLAG), {"x": 0, "y": 0, "flag": False}, (action, action))
