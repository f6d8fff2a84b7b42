"""Typed names for the few Z3 things that a spec uses, and nothing else.

Z3 ships no types; this file is where `Any` ends. Next-state variables are named `x__next`, since cvc5 rejects `x'`.
"""

from __future__ import annotations

from typing import TypeAlias

import z3
from z3 import z3core

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
    # On Z3's C functions: its Python objects, one for each node visited, cost five times as much, and every slice asks.
    context, found, seen, stack = term.ctx.ref(), set(), set(), [term.as_ast()]
    while stack:
        node = stack.pop()
        key = z3core.Z3_get_ast_id(context, node)
        if key in seen or z3core.Z3_get_ast_kind(context, node) != z3.Z3_APP_AST:
            continue
        seen.add(key)
        arguments = z3core.Z3_get_app_num_args(context, node)
        stack.extend(z3core.Z3_get_app_arg(context, node, i) for i in range(arguments))
        declaration = z3core.Z3_get_app_decl(context, node)
        if not arguments and z3core.Z3_get_decl_kind(context, declaration) == z3.Z3_OP_UNINTERPRETED:
            found.add(z3core.Z3_get_symbol_string(context, z3core.Z3_get_decl_name(context, declaration)))
    return frozenset(found)
