"""What the spec allows, learned from examples: each becomes a cube, a condition on two states as wide as can be.

A formula over `x:`, `y:` and `e:` names, and numbers that satisfy it, give a conjunction of linear conditions over
`x:` and `y:` alone that these numbers satisfy, and under which some `e:` numbers satisfy the formula (model-based
projection, as in Komuravelli, Gurfinkel, Chaki 2014, here for integers). So a cube never allows what the spec does
not; what no cube allows is asked of the solver.

Exact over integers, since an `e:` name is eliminated by bounds only where all its coefficients are 1 or -1; else it
keeps the number it has in the example, which makes the cube narrower, never wider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import z3

from checker.replay.relation import UnsupportedError
from spec.terms import Term

Numbers = Mapping[str, int]
_EQUALITIES = frozenset((z3.Z3_OP_EQ, z3.Z3_OP_DISTINCT))
_COMPARISONS = frozenset((z3.Z3_OP_LE, z3.Z3_OP_LT, z3.Z3_OP_GE, z3.Z3_OP_GT))


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A term of the solver, read once: to walk the solver's own costs a hundred times as much."""

    kind: int
    parts: tuple[Node, ...]
    name: str = ""
    """Of a constant."""
    number: int = 0
    integer: bool = False


class Reader:
    """Reads terms; what they share is read once."""

    def __init__(self) -> None:
        self._known: dict[int, Node] = {}
        # The solver's ids are unique while the terms live.
        self._alive: list[Term] = []

    def read(self, term: Term) -> Node:
        """The term as a node."""
        self._alive.append(term)
        return self._read(term)

    def _read(self, term: Term) -> Node:
        key = term.get_id()
        if key not in self._known:
            kind, integer = term.decl().kind(), z3.is_int(term)
            if z3.is_int_value(term):
                node = Node(kind, (), number=int(term.as_long()), integer=integer)
            elif kind == z3.Z3_OP_UNINTERPRETED:
                node = Node(kind, (), name=str(term.decl().name()), integer=integer)
            else:
                node = Node(kind, tuple(self._read(part) for part in term.children()), integer=integer)
            self._known[key] = node
        return self._known[key]


@dataclass(frozen=True)
class Linear:
    """The sum of `parts` and `constant`; as a condition: it is 0 where `zero`, else at least 0."""

    parts: Mapping[str, int]
    constant: int = 0
    zero: bool = False

    def plus(self, other: Linear, times: int = 1, *, zero: bool = False) -> Linear:
        """The sum with `times` the other."""
        parts = dict(self.parts)
        for name, factor in other.parts.items():
            parts[name] = parts.get(name, 0) + times * factor
        kept = {name: factor for name, factor in parts.items() if factor}
        return Linear(kept, self.constant + times * other.constant, zero)

    def at(self, numbers: Numbers) -> int:
        """Its value."""
        return self.constant + sum(factor * numbers[name] for name, factor in self.parts.items())

    def key(self) -> tuple[tuple[tuple[str, int], ...], bool]:
        """What it is, but for the constant."""
        return tuple(sorted(self.parts.items())), self.zero


@dataclass
class _Walk:
    """Collects the conditions under which a formula is what it is for these numbers."""

    numbers: Numbers
    flags: dict[str, bool] = field(default_factory=dict)
    conditions: list[Linear] = field(default_factory=list)
    _values: dict[Node, int] = field(default_factory=dict)
    _wanted: set[Node] = field(default_factory=set)
    _linear: dict[Node, Linear] = field(default_factory=dict)

    def value(self, node: Node) -> int:
        """The value of a term, true being 1. Raises KeyError where it reads a name without a number."""
        found = self._values.get(node)
        if found is None:
            found = self._values[node] = self._evaluate(node)
        return found

    def _evaluate(self, node: Node) -> int:
        kind, parts = node.kind, node.parts
        if kind == z3.Z3_OP_UNINTERPRETED:
            return self.numbers[node.name]
        if not parts:
            return int(kind == z3.Z3_OP_TRUE) if not node.integer else node.number
        if kind == z3.Z3_OP_ITE:
            return self.value(parts[1] if self.value(parts[0]) else parts[2])
        return _apply(kind, [self.value(part) for part in parts])

    def require(self, node: Node) -> None:
        """Collect conditions under which the truth of a term is what it is."""
        if node in self._wanted:
            return
        self._wanted.add(node)
        kind, parts = node.kind, node.parts
        if kind == z3.Z3_OP_UNINTERPRETED:
            self.flags[node.name] = bool(self.value(node))
        elif kind in _COMPARISONS or (kind in _EQUALITIES and parts[0].integer):
            self._compare(kind, parts, truth=bool(self.value(node)))
        else:
            for part in self._deciding(node):
                self.require(part)

    def _deciding(self, node: Node) -> Iterable[Node]:
        """The parts of a term that make it true or false, whatever the others are."""
        kind, parts, truth = node.kind, node.parts, self.value(node)
        if kind in (z3.Z3_OP_AND, z3.Z3_OP_OR):
            decisive = int(kind == z3.Z3_OP_OR)
            return [next(p for p in parts if self.value(p) == decisive)] if truth == decisive else parts
        if kind == z3.Z3_OP_IMPLIES and truth:
            return [parts[1] if self.value(parts[1]) else parts[0]]
        if kind == z3.Z3_OP_ITE:
            return parts[0], parts[1] if self.value(parts[0]) else parts[2]
        return parts  # not, equal flags

    def _compare(self, kind: int, parts: tuple[Node, ...], *, truth: bool) -> None:
        difference = self.linear(parts[0]).plus(self.linear(parts[1]), -1)
        if kind in _EQUALITIES:
            if truth == (kind == z3.Z3_OP_EQ):
                self.conditions.append(Linear(difference.parts, difference.constant, zero=True))
                return
            # Not equal: on the side where these numbers are.
            if difference.at(self.numbers) < 0:
                difference = Linear({}).plus(difference, -1)
            self.conditions.append(Linear(difference.parts, difference.constant - 1))
            return
        if kind in (z3.Z3_OP_LE, z3.Z3_OP_LT):  # turned round
            difference = Linear({}).plus(difference, -1)
        strict = kind in (z3.Z3_OP_LT, z3.Z3_OP_GT)
        if not truth:
            difference, strict = Linear({}).plus(difference, -1), not strict
        self.conditions.append(Linear(difference.parts, difference.constant - int(strict)))

    def linear(self, node: Node) -> Linear:
        """The term, each `if` in it decided as in these numbers."""
        found = self._linear.get(node)
        if found is None:
            found = self._linear[node] = self._make_linear(node)
        return found

    def _make_linear(self, node: Node) -> Linear:
        kind, parts = node.kind, node.parts
        if kind == z3.Z3_OP_UNINTERPRETED:
            return Linear({node.name: 1})
        if not parts:
            return Linear({}, node.number)
        if kind == z3.Z3_OP_ITE:
            self.require(parts[0])
            return self.linear(parts[1] if self.value(parts[0]) else parts[2])
        sums = [self.linear(part) for part in parts]
        if kind == z3.Z3_OP_MUL:
            return _product(sums)
        if kind not in (z3.Z3_OP_ADD, z3.Z3_OP_SUB, z3.Z3_OP_UMINUS):
            raise UnsupportedError(f"operator {kind} of the solver cannot be replayed")
        found = Linear({}).plus(sums[0], -1 if kind == z3.Z3_OP_UMINUS else 1)
        for one in sums[1:]:
            found = found.plus(one, -1 if kind == z3.Z3_OP_SUB else 1)
        return found


def _product(factors: list[Linear]) -> Linear:
    others = [one for one in factors if one.parts]
    if len(others) > 1:
        raise UnsupportedError("a product of two variables cannot be replayed")
    factor = prod(one.constant for one in factors if not one.parts)
    return Linear({}).plus(others[0], factor) if others else Linear({}, factor)


def _apply(kind: int, values: list[int]) -> int:
    first = values[0]
    if kind == z3.Z3_OP_SUB:
        return first - sum(values[1:])
    if kind == z3.Z3_OP_MUL:
        return prod(values)
    simple: Mapping[int, Callable[[], int]] = {
        z3.Z3_OP_ADD: lambda: sum(values),
        z3.Z3_OP_UMINUS: lambda: -first,
        z3.Z3_OP_NOT: lambda: 1 - first,
        z3.Z3_OP_AND: lambda: min(values),
        z3.Z3_OP_OR: lambda: max(values),
        z3.Z3_OP_IMPLIES: lambda: max(1 - first, values[1]),
        z3.Z3_OP_EQ: lambda: first == values[1],
        z3.Z3_OP_DISTINCT: lambda: first != values[1],
        z3.Z3_OP_LE: lambda: first <= values[1],
        z3.Z3_OP_LT: lambda: first < values[1],
        z3.Z3_OP_GE: lambda: first >= values[1],
        z3.Z3_OP_GT: lambda: first > values[1],
    }
    if kind not in simple:
        raise UnsupportedError(f"operator {kind} of the solver cannot be replayed")
    return int(simple[kind]())


@dataclass(frozen=True)
class Cube:
    """A condition over `x:` and `y:` names."""

    flags: Mapping[str, bool]
    conditions: tuple[Linear, ...]


def holds(term: Node, numbers: Numbers) -> bool:
    """Whether a term is true; also where it reads a name that has no number."""
    try:
        return bool(_Walk(numbers).value(term))
    except KeyError:
        return True


def project(formula: Node, numbers: Numbers, more: Sequence[Linear] = ()) -> Cube:
    """The cube of a formula, and of more conditions, around numbers that satisfy both. Raises UnsupportedError."""
    walk = _Walk(numbers)
    if not walk.value(formula):
        raise ValueError("the numbers do not satisfy the formula")
    walk.require(formula)
    conditions = _eliminate([*walk.conditions, *more], numbers)
    flags = {name: value for name, value in walk.flags.items() if not name.startswith("e:")}
    return Cube(flags, tuple(conditions))


def _eliminate(conditions: Iterable[Linear], numbers: Numbers) -> list[Linear]:
    """The conditions without the `e:` names."""
    left = _tidy(conditions)
    while names := {name for one in left for name in one.parts if name.startswith("e:")}:
        # Those that an equation gives first: nothing is lost there.
        name = min(names, key=lambda n: (_by_equation(left, n) is None, n))
        left = _tidy(_without(left, name, numbers))
    return left


def _by_equation(conditions: Iterable[Linear], name: str) -> Linear | None:
    return next((one for one in conditions if one.zero and abs(one.parts.get(name, 0)) == 1), None)


def _without(conditions: list[Linear], name: str, numbers: Numbers) -> list[Linear]:
    speaking = [one for one in conditions if name in one.parts]
    others = [one for one in conditions if name not in one.parts]
    if (given := _by_equation(speaking, name)) is not None:
        factor = given.parts[name]
        return others + [
            one.plus(given, -factor * one.parts[name], zero=one.zero) for one in speaking if one is not given
        ]
    if any(one.zero or abs(one.parts[name]) != 1 for one in speaking):
        value = Linear({name: -1}, numbers[name])
        return others + [one.plus(value, one.parts[name], zero=one.zero) for one in speaking]
    lows = [one for one in speaking if one.parts[name] > 0]  # name >= -(the rest)
    highs = [one for one in speaking if one.parts[name] < 0]
    if not lows or not highs:
        return others
    # In the numbers at hand, the highest of the lower bounds: where it lies below each upper bound, it will do.
    best = min(lows, key=lambda one: one.at(numbers))
    return [*others, *(best.plus(one) for one in highs), *(one.plus(best, -1) for one in lows if one is not best)]


def _tidy(conditions: Iterable[Linear]) -> list[Linear]:
    """Each condition once, the narrower of two alike, and none that says nothing."""
    found: dict[tuple[tuple[tuple[str, int], ...], bool], Linear] = {}
    for one in conditions:
        if one.parts:
            key = one.key()
            known = found.get(key)
            if known is None or (not one.zero and one.constant < known.constant):
                found[key] = one
    return list(found.values())
