"""What an expression says: its text in terms of attributes and calls, and what a scope makes it worth."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Env: TypeAlias = dict[str, Any]
"""What local names hold: the text of an expression, or a constant in a `Known`."""


class _Undecided:
    """The scope does not say."""

    def __repr__(self) -> str:
        return "UNDECIDED"


UNDECIDED: Final = _Undecided()


@dataclass(frozen=True)
class Known:
    """A constant."""

    value: Any


@dataclass(frozen=True)
class Some:
    """Something that is not None, and of which no more is known."""


SOME = Some()
_RECEIVERS = ("self.scheduler.", "self.tree_cache.", "self.cache_controller.", "self.", "scheduler.", "tree_cache.")


def short(text: str) -> str:
    """Without what it is of: the objects of one engine call each other's attributes by many names."""
    for receiver in _RECEIVERS:
        if text.startswith(receiver):
            return short(text.removeprefix(receiver))
    return text


@dataclass(frozen=True)
class Reading:
    """Reads expressions where local names hold `env` and the scope says what some texts are worth."""

    scope: Mapping[str, Any]
    env: Env
    asked: set[str] = field(default_factory=set)

    def text(self, node: ast.AST | None) -> str:  # noqa: C901, PLR0911 - one line for each kind
        """In terms of attributes and calls, without the arguments of calls (but for those of built-in functions)."""
        match node:
            case None:
                return "None"
            case ast.Name():
                held = self.env.get(node.id, node.id)
                return repr(held.value) if isinstance(held, Known) else str(held)
            case ast.Attribute():
                return f"{self.text(node.value)}.{node.attr}"
            case ast.Call():
                plain = isinstance(node.func, ast.Name) and node.func.id in {
                    *_BUILT_IN,
                    *self.env.get("#functions", ()),
                }
                inside = ", ".join(self.text(a) for a in node.args) if plain else ""
                return f"{self.text(node.func)}({inside})"
            case ast.Await() | ast.NamedExpr():
                return self.text(node.value)
            case ast.BoolOp():
                word = " and " if isinstance(node.op, ast.And) else " or "
                return f"({word.join(self.text(v) for v in node.values)})"
            case ast.UnaryOp(op=ast.Not()):
                return f"not {self.text(node.operand)}"
            case ast.Compare():
                parts = [self.text(node.left)]
                for operator, right in zip(node.ops, node.comparators, strict=True):
                    parts += [_OPERATORS.get(type(operator), type(operator).__name__), self.text(right)]
                return " ".join(parts)
            case ast.Subscript():
                return f"{self.text(node.value)}[{self.text(node.slice)}]"
        return self.replaced(node)

    def condition(self, node: ast.expr, *, wanted: bool) -> tuple[tuple[str, bool], ...]:
        """That a condition is met, or is not, as guards: without the operands that the scope decides."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                return self.condition(node.operand, wanted=not wanted)
            case ast.BoolOp():
                open_ = [v for v in node.values if self.truth(v) is UNDECIDED]
                if isinstance(node.op, ast.And) is wanted or len(open_) == 1:
                    return tuple(guard for v in open_ for guard in self.condition(v, wanted=wanted))
                word = " and " if isinstance(node.op, ast.And) else " or "
                return ((f"({word.join(self.text(v) for v in open_)})", wanted),)
            case ast.Compare(ops=[ast.IsNot() | ast.NotEq() | ast.NotIn() as operator]):
                positive = _POSITIVE[type(operator)]
                plain = ast.Compare(node.left, [positive()], node.comparators)
                return ((self.text(plain), not wanted),)
        return ((self.text(node), wanted),)

    def replaced(self, node: ast.AST) -> str:
        """Any other expression, with local names replaced by what they hold."""
        reading = self

        class Names(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                return ast.copy_location(ast.Name(reading.text(node), node.ctx), node)

        return ast.unparse(Names().visit(deepcopy(node)))

    def held(self, node: ast.expr) -> Any:  # noqa: ANN401 - a Known or a text
        """What a name holds that is assigned this."""
        value = self.value(node)
        if isinstance(node, ast.Lambda):
            return ast.unparse(node)
        if value is UNDECIDED or value is SOME:
            return self.text(node)
        return Known(value) if isinstance(value, str | int | float | bool | type(None)) else self.text(node)

    def truth(self, node: ast.expr) -> Any:  # noqa: ANN401 - True, False or UNDECIDED
        """Whether a condition holds in the scope."""
        value = self.value(node)
        if value is UNDECIDED:
            return UNDECIDED
        return True if value is SOME else bool(value)

    def value(self, node: ast.expr) -> Any:  # noqa: ANN401, PLR0911 - a constant, SOME or UNDECIDED; one line for each kind
        """What an expression is worth in the scope."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if isinstance(self.env.get(node.id), Known):
                return self.env[node.id].value
            case ast.BoolOp():
                return self._connected(node)
            case ast.UnaryOp(op=ast.Not()):
                truth = self.truth(node.operand)
                return UNDECIDED if truth is UNDECIDED else not truth
            case ast.Compare(ops=[operator], comparators=[right]):
                return self._compared(node, operator, right)
            case ast.NamedExpr() | ast.Await():
                return self.value(node.value)
            case ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript():
                return self._looked_up(self.text(node))
        return UNDECIDED

    def _connected(self, node: ast.BoolOp) -> Any:  # noqa: ANN401 - as `value`
        decisive = isinstance(node.op, ast.Or)
        values = [self.truth(v) for v in node.values]
        if decisive in values:
            return decisive
        return UNDECIDED if any(v is UNDECIDED for v in values) else not decisive

    def _compared(self, node: ast.Compare, operator: ast.cmpop, right: ast.expr) -> Any:  # noqa: ANN401 - as `value`
        whole = self._looked_up(self.text(node))
        if whole is not UNDECIDED:
            return whole
        left, other = self.value(node.left), self.value(right)
        if other is UNDECIDED and isinstance(right, ast.Attribute) and ast.unparse(right)[0].isupper():
            other = self.text(right)  # a member of an enumeration
        compared = (left, other)
        if UNDECIDED in compared or (SOME in compared and None not in compared):
            return UNDECIDED
        same = left == other
        if isinstance(operator, ast.Eq | ast.Is):
            return same
        if isinstance(operator, ast.NotEq | ast.IsNot):
            return not same
        if isinstance(operator, ast.Gt) and isinstance(left, int) and isinstance(other, int):
            return left > other
        return UNDECIDED

    def _looked_up(self, text: str) -> Any:  # noqa: ANN401 - as `value`
        self.asked.add(short(text))
        return self.scope.get(short(text), UNDECIDED)


_POSITIVE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.IsNot: ast.Is, ast.NotEq: ast.Eq, ast.NotIn: ast.In}
_BUILT_IN = {"len", "any", "all", "bool", "max", "min", "int", "float", "getattr", "hasattr", "isinstance", "str"}
_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
