"""Reads exported TLA+ with tree-sitter's grammar, and evaluates it: a second reading of what the module says.

It knows the part of TLA+ that an export uses, and raises on anything else.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tree_sitter_tlaplus
from tree_sitter import Language, Node, Parser

_INFIX: Mapping[str, Callable[[Any, Any], Any]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "mul": operator.mul,
    "leq": operator.le,
    "lt": operator.lt,
    "geq": operator.ge,
    "gt": operator.gt,
    "eq": operator.eq,
    "neq": operator.ne,
}


def parse(text: str) -> Node:
    """The syntax tree. The grammar is lenient: see `faults`."""
    with warnings.catch_warnings():
        # The grammar's package hands over its language as a number, as all did once.
        warnings.simplefilter("ignore", DeprecationWarning)
        language = Language(tree_sitter_tlaplus.language())
    return Parser(language).parse(text.encode()).root_node


def faults(node: Node) -> list[str]:
    """Where the text is no TLA+: nodes that are errors, or missing."""
    return [f"{n.type} at {n.start_point}" for n in walk(node) if n.type == "ERROR" or n.is_missing]


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


@dataclass
class Module:
    """The operators of one module, by name."""

    root: Node
    operators: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in walk(self.root):
            if node.type == "operator_definition" and node.parent is not None and node.parent.type == "module":
                name = node.child_by_field_name("name")
                body = node.child_by_field_name("definition")
                assert name is not None
                assert body is not None
                self.operators[text_of(name)] = body

    def variables(self) -> list[str]:
        return [
            text_of(c)
            for n in walk(self.root)
            if n.type == "variable_declaration"
            for c in n.children
            if c.type == "identifier"
        ]

    def evaluate(self, name: str, state: Mapping[str, Any], after: Mapping[str, Any], picked: Mapping[str, int]) -> Any:
        """An operator over a step; each bound name takes the value that was picked, where it lies in its range."""
        return _Evaluation(self, state, after, picked).value(self.operators[name], {})


@dataclass
class _Evaluation:
    module: Module
    state: Mapping[str, Any]
    after: Mapping[str, Any]
    picked: Mapping[str, int]
    primed: bool = False

    def value(self, node: Node, names: Mapping[str, Any]) -> Any:
        kind = node.type
        named = [c for c in node.children if c.is_named and c.type not in ("comment", "block_comment")]
        if kind in ("conj_list", "disj_list"):
            parts = (next(c for c in reversed(item.children) if c.type != "comment") for item in named)
            values = (self.value(part, names) for part in parts)
            return all(values) if kind == "conj_list" else any(values)
        if kind == "parentheses":
            return self.value(named[0], names)
        if kind in ("identifier_ref", "identifier"):
            return self._name(text_of(node), names)
        if kind == "nat_number":
            return int(text_of(node))
        if kind == "boolean":
            return text_of(node) == "TRUE"
        return getattr(self, f"_{kind}")(node, named, names)

    def _name(self, name: str, names: Mapping[str, Any]) -> Any:
        if name in names:
            return names[name]
        if name in self.state:
            return (self.after if self.primed else self.state)[name]
        return self.value(self.module.operators[name], {})

    def _bound_infix_op(self, node: Node, _named: list[Node], names: Mapping[str, Any]) -> Any:
        left, symbol, right = (node.child_by_field_name(f) for f in ("lhs", "symbol", "rhs"))
        assert left is not None
        assert symbol is not None
        assert right is not None
        if symbol.type == "land":
            return self.value(left, names) and self.value(right, names)
        if symbol.type == "lor":
            return self.value(left, names) or self.value(right, names)
        if symbol.type == "implies":
            return not self.value(left, names) or self.value(right, names)
        if symbol.type == "in":
            return (
                isinstance(self.value(left, names), bool) == (text_of(right) == "BOOLEAN")
                and self.value(left, names) >= 0
            )
        if symbol.type == "dots_2":
            return range(self.value(left, names), self.value(right, names) + 1)
        return _INFIX[symbol.type](self.value(left, names), self.value(right, names))

    def _bound_prefix_op(self, node: Node, named: list[Node], names: Mapping[str, Any]) -> Any:
        symbol = named[0].type
        if symbol == "lnot":
            return not self.value(named[1], names)
        if symbol == "unchanged":
            return all(self.after[v] == self.state[v] for v in self._listed(named[1]))
        raise AssertionError(text_of(node))

    def _listed(self, node: Node) -> Iterator[str]:
        for child in walk(node):
            if child.type == "identifier_ref":
                name = text_of(child)
                yield from [name] if name in self.state else self._listed(self.module.operators[name])

    def _bound_postfix_op(self, _node: Node, named: list[Node], names: Mapping[str, Any]) -> Any:
        later = _Evaluation(self.module, self.state, self.after, self.picked, primed=True)
        return later.value(named[0], names)

    def _if_then_else(self, node: Node, _named: list[Node], names: Mapping[str, Any]) -> Any:
        test, then, otherwise = (node.child_by_field_name(f) for f in ("if", "then", "else"))
        assert test is not None
        assert then is not None
        assert otherwise is not None
        return self.value(then if self.value(test, names) else otherwise, names)

    def _let_in(self, node: Node, _named: list[Node], names: Mapping[str, Any]) -> Any:
        known = dict(names)
        for child in node.children:
            if child.type == "operator_definition":
                name, body = child.child_by_field_name("name"), child.child_by_field_name("definition")
                assert name is not None
                assert body is not None
                known[text_of(name)] = self.value(body, known)
        body = node.child_by_field_name("expression")
        assert body is not None
        return self.value(body, known)

    def _bounded_quantification(self, node: Node, _named: list[Node], names: Mapping[str, Any]) -> Any:
        (bound,) = [c for c in node.children if c.type == "quantifier_bound"]
        name = next(text_of(c) for c in bound.children if c.type == "identifier")
        chosen = bound.child_by_field_name("set")
        body = node.child_by_field_name("expression")
        assert chosen is not None
        assert body is not None
        value = self.picked[name]
        return self._within(chosen, value, names) and self.value(body, {**names, name: value})

    def _within(self, node: Node, value: int, names: Mapping[str, Any]) -> bool:
        if text_of(node) == "Nat":
            return value >= 0
        if node.type == "set_filter":
            test = node.child_by_field_name("filter")
            assert test is not None
            return bool(value >= 0 and self.value(test, {**names, "n": value}))
        return value in self.value(node, names)
