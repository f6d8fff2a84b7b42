"""Typed names for the few Z3 things that a spec uses, and nothing else.

Z3 ships no types; this file is where `Any` ends. Next-state variables are named `x__next`, since cvc5 rejects `x'`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import z3
from z3 import z3core

BoolTerm: TypeAlias = z3.BoolRef
NatTerm: TypeAlias = z3.ArithRef
Term: TypeAlias = z3.ExprRef

NEXT = "__next"


def conj(*parts: BoolTerm) -> BoolTerm:
    """The conjunction, flat; true when empty."""
    return _joined(z3core.Z3_mk_and, parts) if len(parts) > 1 else (parts[0] if parts else z3.BoolVal(val=True))


def disj(*parts: BoolTerm) -> BoolTerm:
    """The disjunction, flat; false when empty."""
    return _joined(z3core.Z3_mk_or, parts) if len(parts) > 1 else (parts[0] if parts else z3.BoolVal(val=False))


def _joined(make: Callable[..., z3.Ast], parts: Sequence[BoolTerm]) -> BoolTerm:
    # On Z3's C functions, here and below: its Python ones look for a common sort of the parts, which takes twenty times
    # as long as all the rest, and proofs build these terms by the ten thousand.
    arguments = (z3.Ast * len(parts))(*[part.as_ast() for part in parts])
    context = parts[0].ctx
    return z3.BoolRef(make(context.ref(), len(parts), arguments), context)


def neg(part: BoolTerm) -> BoolTerm:
    """Not `part`."""
    return z3.BoolRef(z3core.Z3_mk_not(part.ctx.ref(), part.as_ast()), part.ctx)


def implies(left: BoolTerm, right: BoolTerm) -> BoolTerm:
    """`left` => `right`."""
    return z3.BoolRef(z3core.Z3_mk_implies(left.ctx.ref(), left.as_ast(), right.as_ast()), left.ctx)


def same(left: Term, right: Term) -> BoolTerm:
    """`left` = `right`, of one sort."""
    return z3.BoolRef(z3core.Z3_mk_eq(left.ctx.ref(), left.as_ast(), right.as_ast()), left.ctx)


def ite(condition: BoolTerm, then: Term, otherwise: Term) -> Term:
    """IF condition THEN then ELSE otherwise, the two of one sort."""
    chosen = z3core.Z3_mk_ite(then.ctx.ref(), condition.as_ast(), then.as_ast(), otherwise.as_ast())
    return (z3.BoolRef if isinstance(then, z3.BoolRef) else z3.ArithRef)(chosen, then.ctx)


class Renaming:
    """A substitution of terms for terms, ready to be applied many times."""

    def __init__(self, pairs: Iterable[tuple[Term, Term]]) -> None:
        """Each pair: what is replaced, and by what, of one sort."""
        self._pairs = list(pairs)  # their terms must live as long as the arrays
        self._from = (z3.Ast * len(self._pairs))(*[old.as_ast() for old, _ in self._pairs])
        self._to = (z3.Ast * len(self._pairs))(*[new.as_ast() for _, new in self._pairs])

    def __call__(self, term: Term) -> Term:
        """`term` with all of them replaced at once."""
        if not self._pairs:
            return term
        changed = z3core.Z3_substitute(term.ctx.ref(), term.as_ast(), len(self._pairs), self._from, self._to)
        return (z3.BoolRef if isinstance(term, z3.BoolRef) else z3.ArithRef)(changed, term.ctx)


def nat(value: int) -> NatTerm:
    """The integer constant `value`."""
    return z3.IntVal(value)


def total(*parts: NatTerm) -> NatTerm:
    """The sum; 0 when empty."""
    return z3.Sum(*parts) if len(parts) > 1 else (parts[0] if parts else nat(0))


def least(left: NatTerm, right: NatTerm) -> NatTerm:
    """The smaller of the two."""
    return ite(left <= right, left, right)


def minus(left: NatTerm, right: NatTerm) -> NatTerm:
    """`left - right`, not below 0."""
    return ite(left > right, left - right, nat(0))


def read_terms(texts: Sequence[str], constants: Iterable[Term]) -> list[BoolTerm]:
    """Conditions over these constants, as SMT-LIB. Raises z3.Z3Exception where a text is none."""
    names = {str(c.decl().name()): c.decl() for c in constants}
    return list(z3.parse_smt2_string("".join(f"(assert {text})" for text in texts), decls=names)) if texts else []


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
