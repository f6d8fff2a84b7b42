"""Z3 terms as Python source, so that a state is evaluated without a solver: for the interpreter and the hooks."""

from __future__ import annotations

from collections.abc import Callable

import z3
from z3 import z3core

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
    return Translation(name).expression(term)


class Translation:
    """Terms as Python source; what terms share is translated once, since Z3 terms are graphs and share much."""

    def __init__(self, name: Callable[[str], str]) -> None:
        """`name` maps each constant to what reads it."""
        self._name = name
        self._known: dict[int, str] = {}
        # Z3's ids, by which nodes are known, are unique while the terms live.
        self._alive: list[Term] = []

    def expression(self, term: Term) -> str:
        """The source of `term`. Raises SpecError where an operator has none."""
        self._alive.append(term)
        return self._source(term.ctx.ref(), term.as_ast())

    def _source(self, context: z3core.Context, node: z3core.Ast) -> str:
        # On Z3's C functions: its Python objects, one for each node visited, cost several times as much.
        key = z3core.Z3_get_ast_id(context, node)
        if key not in self._known:
            self._known[key] = self._fresh(context, node)
        return self._known[key]

    def _fresh(self, context: z3core.Context, node: z3core.Ast) -> str:
        if z3core.Z3_get_ast_kind(context, node) == z3.Z3_NUMERAL_AST:
            return str(z3core.Z3_get_numeral_string(context, node))
        declaration = z3core.Z3_get_app_decl(context, node)
        kind = z3core.Z3_get_decl_kind(context, declaration)
        symbol = z3core.Z3_get_symbol_string(context, z3core.Z3_get_decl_name(context, declaration))
        count = z3core.Z3_get_app_num_args(context, node)
        if kind == z3.Z3_OP_UNINTERPRETED and not count:
            return self._name(symbol)
        parts = [self._source(context, z3core.Z3_get_app_arg(context, node, i)) for i in range(count)]
        if kind in _FIXED:
            return _FIXED[kind].format(*parts)
        if kind == z3.Z3_OP_DISTINCT and len(parts) > 2:  # noqa: PLR2004 - `!=` chains compare neighbours only
            raise SpecError("no Python for Distinct of more than two terms")
        if kind not in _INFIX:
            raise SpecError(f"no Python for the operator {symbol!r}")
        return f"({_INFIX[kind].join(parts)})"
