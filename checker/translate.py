"""Z3 terms as Python source, so that a state can be evaluated without a solver: the interpreter and the hooks use it."""

from __future__ import annotations

from collections.abc import Callable

import z3

from spec.errors import SpecError
from spec.terms import Term

_INFIX = {
    z3.Z3_OP_AND: " and ",
    z3.Z3_OP_OR: " or ",
    z3.Z3_OP_ADD: " + ",
    z3.Z3_OP_SUB: " - ",
    z3.Z3_OP_MUL: " * ",
    z3.Z3_OP_LE: " <= ",
    z3.Z3_OP_LT: " < ",
    z3.Z3_OP_GE: " >= ",
    z3.Z3_OP_GT: " > ",
    z3.Z3_OP_EQ: " == ",
    z3.Z3_OP_DISTINCT: " != ",
}


def to_python(term: Term, name: Callable[[str], str]) -> str:
    """`term` as a Python expression; `name` maps each constant to what reads it. Raises SpecError on other operators."""
    if z3.is_int_value(term):
        return str(term.as_long())
    kind = term.decl().kind()
    if kind == z3.Z3_OP_TRUE:
        return "True"
    if kind == z3.Z3_OP_FALSE:
        return "False"
    if kind == z3.Z3_OP_UNINTERPRETED and term.num_args() == 0:
        return name(term.decl().name())
    parts = [to_python(child, name) for child in term.children()]
    if kind == z3.Z3_OP_NOT:
        return f"(not {parts[0]})"
    if kind == z3.Z3_OP_UMINUS:
        return f"(-{parts[0]})"
    if kind == z3.Z3_OP_IMPLIES:
        return f"((not {parts[0]}) or {parts[1]})"
    if kind == z3.Z3_OP_ITE:
        return f"({parts[1]} if {parts[0]} else {parts[2]})"
    if kind == z3.Z3_OP_DISTINCT and len(parts) > 2:  # noqa: PLR2004 - `!=` chains compare neighbours only
        raise SpecError("no Python for Distinct of more than two terms")
    if kind not in _INFIX:
        raise SpecError(f"no Python for the operator {term.decl().name()!r}")
    return f"({_INFIX[kind].join(parts)})"
