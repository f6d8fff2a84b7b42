"""Typed names for the few Z3 things that a spec uses, and nothing else.

Z3 ships no types; this file is where `Any` ends. Next-state variables are named `x__next`, since cvc5 rejects `x'`.
"""

from __future__ import annotations

from typing import TypeAlias

import z3

BoolTerm: TypeAlias = z3.BoolRef
NatTerm: TypeAlias = z3.ArithRef
Term: TypeAlias = z3.ExprRef

NEXT = "__next"


def conj(*parts: BoolTerm) -> BoolTerm:
    """The conjunction, flat; true when empty."""
    return z3.And(*parts) if len(parts) > 1 else (parts[0] if parts else z3.BoolVal(val=True))


def disj(*parts: BoolTerm) -> BoolTerm:
    """The disjunction, flat; false when empty."""
    return z3.Or(*parts) if len(parts) > 1 else (parts[0] if parts else z3.BoolVal(val=False))


def neg(part: BoolTerm) -> BoolTerm:
    """Not `part`."""
    return z3.Not(part)


def implies(left: BoolTerm, right: BoolTerm) -> BoolTerm:
    """`left` => `right`."""
    return z3.Implies(left, right)


def ite(condition: BoolTerm, then: Term, otherwise: Term) -> Term:
    """IF condition THEN then ELSE otherwise."""
    return z3.If(condition, then, otherwise)


def nat(value: int) -> NatTerm:
    """The integer constant `value`."""
    return z3.IntVal(value)


def total(*parts: NatTerm) -> NatTerm:
    """The sum; 0 when empty."""
    return z3.Sum(*parts) if len(parts) > 1 else (parts[0] if parts else nat(0))


def least(left: NatTerm, right: NatTerm) -> NatTerm:
    """The smaller of the two."""
    return z3.If(left <= right, left, right)


def minus(left: NatTerm, right: NatTerm) -> NatTerm:
    """`left - right`, not below 0."""
    return z3.If(left > right, left - right, nat(0))


def constants(term: Term) -> dict[str, Term]:
    """The constants that `term` reads, by name."""
    found: dict[str, Term] = {}
    seen: set[int] = set()
    stack = [term]
    while stack:
        node = stack.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if z3.is_const(node) and node.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[node.decl().name()] = node
        stack.extend(node.children())
    return found


def free_names(term: Term) -> frozenset[str]:
    """The names of all constants that `term` reads."""
    return frozenset(constants(term))
