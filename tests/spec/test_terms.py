"""The quick constructors make the very terms that Z3's own make."""

from __future__ import annotations

import pytest
import z3

from spec.draft import Draft
from spec.interned import Interned
from spec.terms import Renaming, conj, disj, free_names, implies, ite, nat, neg, same
from spec.tla import Sort, Variable

A, B, C = z3.Bools("a b c")
X, Y = z3.Ints("x y")

PAIRS = {
    "and": (conj(A, B, C), z3.And(A, B, C)),
    "and of one": (conj(A), A),
    "and of none": (conj(), z3.BoolVal(val=True)),
    "or": (disj(A, X > 1), z3.Or(A, X > 1)),
    "or of none": (disj(), z3.BoolVal(val=False)),
    "not": (neg(A), z3.Not(A)),
    "implies": (implies(A, B), z3.Implies(A, B)),
    "equal numbers": (same(X, Y + 1), X == Y + 1),
    "equal flags": (same(neg(B), A), z3.Not(B) == A),
    "if number": (ite(A, nat(1), X), z3.If(A, z3.IntVal(1), X)),
    "if flag": (ite(A, B, C), z3.If(A, B, C)),
    "renamed": (Renaming([(X, nat(3)), (A, B)])(conj(A, X > Y)), z3.And(B, z3.IntVal(3) > Y)),
    "renamed at once": (Renaming([(X, Y), (Y, X)])(X > Y), Y > X),
    "not renamed": (Renaming([])(X > Y), X > Y),
}


@pytest.mark.parametrize("name", PAIRS)
def test_same_term(name: str) -> None:
    ours, theirs = PAIRS[name]
    assert ours.eq(theirs)
    assert type(ours) is type(theirs)


def test_names_of_shared_and_of_quantifier_free_terms() -> None:
    assert free_names(conj(A, implies(A, X + Y > 3))) == {"a", "x", "y"}
    assert free_names(nat(3)) == frozenset()


def _action(low: int) -> Draft:
    variables = {"x": Variable("x", Sort.NAT)}
    draft = Draft(variables, "Go")
    draft.when(draft.x > 0)
    draft.x += draft.choose("by", low=low)
    return draft


def test_equal_actions_are_one_and_others_are_not() -> None:
    kept = Interned()
    parts = {"actor": "a", "engine": "e"}
    first = kept.action(_action(1).finish(**parts))
    assert kept.action(_action(1).finish(**parts)) is first
    assert kept.action(_action(2).finish(**parts)) is not first
    assert kept.action(_action(1).finish(actor="b", engine="e")) is not first
    assert kept.action(_action(1).finish(**parts, help=True)) is not first
