"""Z3 terms as Python source, so that a state is evaluated without a solver: for the interpreter and the hooks."""

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
_FIXED = {
    z3.Z3_OP_TRUE: "True",
    z3.Z3_OP_FALSE: "False",
    z3.Z3_OP_NOT: "(not {0})",
    z3.Z3_OP_UMINUS: "(-{0})",
    z3.Z3_OP_IMPLIES: "((not {0}) or {1})",
    z3.Z3_OP_ITE: "({1} if {0} else {2})",
}


def to_python(term: Term, name: Callable[[str], str]) -> str:
    """`term` as a Python expression; `name` maps each constant to what reads it. Raises SpecError."""
    return _Translation(name).expression(term)


class _Translation:
    """One translation; what a term shares it says once, since Z3 terms are graphs and their trees may be large."""

    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name
        self._known: dict[int, str] = {}

    def expression(self, term: Term) -> str:
        key = term.get_id()
        if key not in self._known:
            self._known[key] = self._fresh(term)
        return self._known[key]

    def _fresh(self, term: Term) -> str:
        kind = term.decl().kind()
        if kind == z3.Z3_OP_ANUM:
            return str(term.as_long())
        if kind == z3.Z3_OP_UNINTERPRETED and term.num_args() == 0:
            return self._name(term.decl().name())
        parts = [self.expression(child) for child in term.children()]
        if kind in _FIXED:
            return _FIXED[kind].format(*parts)
        if kind == z3.Z3_OP_DISTINCT and len(parts) > 2:  # noqa: PLR2004 - `!=` chains compare neighbours only
            raise SpecError("no Python for Distinct of more than two terms")
        if kind not in _INFIX:
            raise SpecError(f"no Python for the operator {term.decl().name()!r}")
        return f"({_INFIX[kind].join(parts)})"
