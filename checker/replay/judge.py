"""Decides whether the spec allows one line of a trace after another. The solver is asked what no cube knows yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import z3
from msgspec.structs import replace

from checker.replay.cubes import Cube, Linear, Node, Reader, holds, project
from checker.replay.finder import Find, compiled, in_shown
from checker.replay.relation import CARRIED, Alternative, Relations, after, before
from engine_hooks.trace import TraceState
from spec.terms import BoolTerm, Term, constants, same
from spec.tla import Sort

_EFFORT = 50_000_000
"""Of the solver, for one question (Z3's `rlimit`); a question takes about a thousandth of it."""
_COUNTED = 2000
_MOST_KNOWN = 20_000
"""Answers kept of lines that are judged one by one."""


class UndecidedError(Exception):
    """The solver gave up: whether the spec allows this line is not known."""


@dataclass(frozen=True)
class Carried:
    """What a line does not show, and the state of the spec has: worked out from line to line."""

    has_host: bool = False
    prefetch_budget: int = 0
    prefix_lost: bool = False


class Numbered(Protocol):
    """What knows the number of the line at hand."""

    @property
    def number(self) -> int:
        """Of the line."""
        ...


@dataclass(frozen=True)
class Known:
    """A cube in use."""

    cube: Cube
    actions: tuple[str, ...]
    """What happens in it, and cannot be left out of the example that it was made from: an action, and moves."""
    line: int
    """The line that it was made from."""
    differences: frozenset[str] = frozenset()
    """Known differences from the spec that it takes for granted."""


@dataclass(frozen=True)
class _Way:
    """An alternative as it is read: its formula, its guard, and what of it may have any value."""

    formula: Node
    guard: Sequence[Node]
    free: Sequence[tuple[str, Term]]


@dataclass
class Statistics:
    """What judging took."""

    questions: int = 0
    learned: int = 0
    """Cubes."""
    cubes: list[Known] = field(default_factory=list)
    """Those that say which moves they need."""
    differences: Counter[str] = field(default_factory=Counter)
    """Known difference from the spec to the lines that were allowed by it."""
    _last: dict[str, int] = field(default_factory=dict)

    def differ(self, known: Known, line: int) -> None:
        """A line is allowed by these differences; one that stands for many passes counts once."""
        for name in known.differences:
            if self._last.get(name) != line:
                self._last[name] = line
                self.differences[name] += 1


class Judge:
    """Judges the lines of traces of one profile, loop and storage; what it has learned serves all of them."""

    def __init__(self, relations: Relations, *, telling: bool = False) -> None:
        """`telling`: each cube says which moves it needs, for coverage; there are more of them then."""
        self.relations = relations
        self._telling = telling
        self.statistics = Statistics()
        self._has_host = "has_host" in relations.variables
        self._budget = "prefetch_budget" in relations.variables
        self._loses = "prefix_lost" in relations.variables
        self._attempts = relations.profile.prefetch.retry_attempts if self._budget else 0
        self._given = {do: self._shares(do) for do in ("pass", "arrive", "pause")}
        self._ways: dict[tuple[str, str], tuple[Alternative, ...]] = {}
        self._cubes: dict[tuple[str, str, bool, bool], _Cubes] = {}
        self._single: dict[tuple[Any, ...], Known | None] = {}
        self._solvers: dict[int, z3.Solver] = {}
        self._nodes: dict[int, _Way] = {}
        self._reader = Reader()

    def ways(self, do: str, how: str) -> tuple[Alternative, ...]:
        """The ways in which such a line can come about."""
        key = (do, how)
        if key not in self._ways:
            self._ways[key] = self.relations.of(do, how)
        return self._ways[key]

    def judge(  # noqa: PLR0913, PLR0917 - a line has so many parts, and this is asked of each
        self, do: str, how: str, x: TraceState, y: TraceState, carried: Carried, where: Numbered
    ) -> Carried | None:
        """What is carried on, where the spec allows `y` after `x`; else None. Raises UndecidedError."""
        if self._has_host and not carried.has_host:
            return self._judge_single(do, how, x, y, carried, where)
        key = (do, how, carried.has_host, carried.prefix_lost)
        cubes = self._cubes.get(key)
        if cubes is None:
            cubes = self._cubes.setdefault(key, _Cubes(self.relations.absent))
        place = cubes.find(x, y, carried.prefetch_budget)
        if place is None:
            found = self._learn(do, how, x, y, carried, where, has_host=self._ends(do, how, carried))
            if found is None:
                return None
            cubes.add(found)
            self.statistics.differ(found, where.number)
        else:
            if cubes.counting:
                cubes.count(place)
            if cubes.differing:
                self.statistics.differ(cubes.known[place], where.number)
        few = carried.prefetch_budget <= self._attempts * y.waiting
        if do == "pass" and few and x.lookups == y.lookups and (y.waiting or not carried.prefix_lost):
            return carried
        return self._carry(do, how, x, y, carried)

    def _judge_single(  # noqa: PLR0913, PLR0917 - as above
        self, do: str, how: str, x: TraceState, y: TraceState, carried: Carried, where: Numbered
    ) -> Carried | None:
        """While nothing is in the host tier: it may be in it afterwards, and if so, that allows more later."""
        # Counters that only grow matter by how much they grew; attempts beyond all that can be retried do not matter.
        grown = (y.lookups - x.lookups, y.forwards - x.forwards)
        still = min(carried.prefetch_budget, x.prefetch_retry + x.prefetch_query + x.prefetch_hit + x.waiting)
        plain = (replace(x, lookups=0, forwards=0), replace(y, lookups=0, forwards=0))
        for reaches in (True, False):
            key = (do, how, reaches, carried.prefix_lost, still, grown, plain)
            if key not in self._single:
                if len(self._single) > _MOST_KNOWN:
                    self._single.clear()
                self._single[key] = self._learn(do, how, x, y, carried, where, has_host=reaches)
            found = self._single[key]
            if found is not None:
                self.statistics.differ(found, where.number)
                return self._carry(do, how, x, y, carried, reaches=reaches)
        return None

    def _ends(self, do: str, how: str, carried: Carried) -> bool:
        """Whether anything is in the host tier after such a line: until a flush is granted."""
        return carried.has_host and (do, how) not in _FLUSHES

    def _carry(  # noqa: PLR0913 - as above
        self, do: str, how: str, x: TraceState, y: TraceState, carried: Carried, *, reaches: bool | None = None
    ) -> Carried:
        has_host = self._ends(do, how, carried) if reaches is None else reaches
        return Carried(has_host, self._next_budget(do, x, y, carried), self._next_lost(do, how, x, y, carried))

    def _next_lost(self, do: str, how: str, x: TraceState, y: TraceState, carried: Carried) -> bool:
        """Whether a waiting request may have lost its prefix: since a flush, until none waits in a running pass."""
        if (do, how) in _FLUSHES:
            return self._loses and y.waiting > 0
        return carried.prefix_lost and (y.waiting > 0 or not self._runs(do, x))

    def _runs(self, do: str, x: TraceState) -> bool:
        """It is a running pass."""
        return do == "pass" and not (x.paused and self.relations.honours_pause)

    def _next_budget(self, do: str, x: TraceState, y: TraceState, carried: Carried) -> int:
        """Attempts left: each queued request brings some, a pass takes one for each lookup that it sends.

        They go with the requests that wait. The formula says the same, and is checked.
        """
        if do not in self._given:
            return carried.prefetch_budget
        by_lookup, by_waiting = self._given[do]
        grown = by_lookup * (y.lookups - x.lookups) + by_waiting * (y.waiting - x.waiting)
        left = carried.prefetch_budget + grown
        return min(left, self._attempts * y.waiting) if self._attempts and self._runs(do, x) else left

    def _shares(self, do: str) -> tuple[int, int]:
        """By how much a lookup, and a request more that waits, change the attempts that are left."""
        facts = self.relations.profile.prefetch
        if not self._attempts:
            return 0, 0
        if do == "pass":
            return -1, 0
        return 0, self._attempts if do == "arrive" or facts.on_requeue else 0

    def _left(self, do: str, x: TraceState, y: TraceState, carried: Carried) -> Linear:
        """The same as an equation: the attempts left in the end, less what they are, is 0."""
        most = self._attempts * y.waiting
        by_lookup, by_waiting = self._given.get(do, (0, 0))
        whole = carried.prefetch_budget + by_lookup * (y.lookups - x.lookups)
        if self._attempts and self._runs(do, x) and whole > most:
            return Linear({"y:waiting": self._attempts, "y:prefetch_budget": -1})
        left = Linear({"x:prefetch_budget": 1, "y:prefetch_budget": -1})
        left = left.plus(Linear({"y:lookups": 1, "x:lookups": -1}), by_lookup)
        return left.plus(Linear({"y:waiting": 1, "x:waiting": -1}), by_waiting)

    def _learn(  # noqa: PLR0913, PLR0917 - as above
        self, do: str, how: str, x: TraceState, y: TraceState, carried: Carried, where: Numbered, *, has_host: bool
    ) -> Known | None:
        """A cube around this line, of the first way that allows it; None where there is none."""
        ends = Carried(has_host, self._next_budget(do, x, y, carried), self._next_lost(do, how, x, y, carried))
        numbers = self.numbers(x, y, carried, ends)
        if numbers is None:
            return None
        for way in self.ways(do, how):
            found = self._ask(way, numbers)
            if found is None:
                continue
            cube, moves = found
            cube = in_shown(cube, self._left(do, x, y, carried))
            actions = (*([way.action] if way.action else []), *moves)
            known = Known(cube, actions, where.number, way.differences)
            self.statistics.learned += 1
            if self._telling:
                self.statistics.cubes.append(known)
            return known
        return None

    def numbers(self, x: TraceState, y: TraceState, carried: Carried, ends: Carried) -> dict[str, int] | None:
        """The values of all `x:` and `y:` names; None where one is not what its variable can be."""
        found = {}
        for side, state, more in (("x", x, carried), ("y", y, ends)):
            for name in self.relations.variables:
                value = int(getattr(more if name in CARRIED else state, name))
                if value < 0:
                    return None
                found[f"{side}:{name}"] = value
            if any(getattr(state, name) for name in self.relations.absent):
                return None
        return found

    def assumptions(self, numbers: Mapping[str, int]) -> list[BoolTerm]:
        """That each variable has its value."""
        found: list[BoolTerm] = []
        for name, variable in self.relations.variables.items():
            for make, side in ((before, "x"), (after, "y")):
                value = numbers[f"{side}:{name}"]
                term: Term = z3.BoolVal(bool(value)) if variable.sort is Sort.BOOL else z3.IntVal(value)
                found.append(same(make(name, variable.sort), term))
        return found

    def _ask(self, way: Alternative, numbers: Mapping[str, int]) -> tuple[Cube, tuple[str, ...]] | None:
        """The cube in which these numbers come about in this way, and the moves that they need. Raises UndecidedError.

        Which moves happen is a part of the cube, so that whatever else it allows needs no others.
        """
        node = self._node(way)
        if not all(holds(part, numbers) for part in node.guard):
            return None
        self.statistics.questions += 1
        solver = self._solver(way)
        solver.push()
        try:
            solver.add(*self.assumptions(numbers))
            if not _satisfiable(solver):
                return None
            model = solver.model()
            if not self._telling:
                values = {name: _number(model.eval(term, model_completion=True)) for name, term in node.free}
                return project(node.formula, values | dict(numbers)), ()
            needed = {name: count for name, count in way.moves.items() if _number(model.eval(count))}
            solver.add(*(count == 0 for name, count in way.moves.items() if name not in needed))
            for name, count in tuple(needed.items()):
                if _satisfiable(solver, count == 0):
                    model = solver.model()
                    solver.add(needed.pop(name) == 0)
            values = {name: _number(model.eval(term, model_completion=True)) for name, term in node.free}
            still = [one for name in way.moves for one in _counted(name, needed=name in needed)]
            return project(node.formula, values | dict(numbers), still), tuple(needed)
        finally:
            solver.pop()

    def _node(self, way: Alternative) -> _Way:
        if id(way) not in self._nodes:
            free = [(name, term) for name, term in constants(way.formula).items() if name.startswith("e:")]
            guard = [self._reader.read(part) for part in way.guard]
            self._nodes[id(way)] = _Way(self._reader.read(way.formula), guard, free)
        return self._nodes[id(way)]

    def _solver(self, way: Alternative) -> z3.Solver:
        if id(way) not in self._solvers:
            solver = z3.Solver()
            solver.set("rlimit", _EFFORT)
            solver.add(way.formula)
            self._solvers[id(way)] = solver
        return self._solvers[id(way)]


_FLUSHES = frozenset((("flush", "granted"), ("deferred", "granted"), ("update", "ok")))


def _counted(move: str, *, needed: bool) -> list[Linear]:
    """How often a move happens, before the action and after it: at least once in all, or never."""
    names = [f"e:{move}<", f"e:{move}>"]
    return [Linear(dict.fromkeys(names, 1), -1)] if needed else [Linear({name: 1}, zero=True) for name in names]


def _satisfiable(solver: z3.Solver, *more: BoolTerm) -> bool:
    answer = solver.check(*more)
    if answer == z3.unknown:
        raise UndecidedError(solver.reason_unknown())
    return bool(answer == z3.sat)


def _number(value: Term) -> int:
    return int(value.as_long()) if z3.is_int_value(value) else int(z3.is_true(value))


class _Cubes:
    """The cubes of one kind of line, as one function that finds the first that holds."""

    def __init__(self, absent: Sequence[str]) -> None:
        """`absent`: fields of a line that must be 0."""
        self._absent = absent
        self.known: list[Known] = []
        self.differing = False
        self.find: Find = lambda _x, _y, _attempts: None
        self.counting = 0
        """So many more lines are counted, before the cubes are put in order."""
        self._hits = Counter[int]()

    def add(self, known: Known) -> None:
        """One more."""
        self._arrange([*self.known, known])
        self.differing = self.differing or bool(known.differences)
        self.counting = _COUNTED

    def count(self, place: int) -> None:
        """This one held. After a while those that hold most often are asked first."""
        self._hits[place] += 1
        self.counting -= 1
        if not self.counting:
            self._arrange([self.known[i] for i in sorted(range(len(self.known)), key=lambda i: -self._hits[i])])

    def _arrange(self, known: list[Known]) -> None:
        self.known = known
        self.find = compiled([one.cube for one in known], self._absent)
        self._hits.clear()
