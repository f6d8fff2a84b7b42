"""Why the spec does not allow a line: for each action that it could have been, what that action needs or allows."""

from __future__ import annotations

from collections.abc import Iterator

import z3

from checker.replay.judge import Carried, Judge
from checker.replay.reading import Place
from checker.replay.relation import CARRIED, Alternative, after, before
from checker.replay.results import Divergence, Way, Wrong
from engine_hooks.trace import STATE_FIELDS, Step, TraceState
from spec.terms import BoolTerm, Term, same
from spec.tla import Sort

_EFFORT = 20_000_000
_MOST_WRONG = 6
_REACH = 1 << 20
"""A value allowed beyond this is called unbounded."""


def shown(state: TraceState) -> dict[str, int]:
    """What is not 0 in a state."""
    return {name: int(value) for name in STATE_FIELDS if (value := getattr(state, name))}


def did(step: Step) -> str:
    """What a line says was done."""
    return f"{step.do} {step.how}".rstrip()


def explain(judge: Judge, place: Place, x: TraceState, step: Step, carried: Carried) -> Divergence:
    """The divergence of a line that was judged not to be allowed."""
    ways = tuple(_way(judge, way, x, step, carried) for way in judge.ways(step.do, step.how) if way.action)
    best = min((len(way.needs) * 100 + len(way.wrong) for way in ways), default=0)
    near = tuple(way for way in ways if len(way.needs) * 100 + len(way.wrong) == best)
    return Divergence(
        place.file, place.line, step.n, step.at, did(step), shown(x), shown(step.state), tuple(dict.fromkeys(near))
    )


def _way(judge: Judge, way: Alternative, x: TraceState, step: Step, carried: Carried) -> Way:
    needs = tuple(_needs(judge, way, x, carried))
    wrong = () if needs else tuple(_wrong(judge, way, x, step.state, carried))
    return Way(way.action, way.engine, needs, wrong)


def _value(number: int, sort: Sort) -> Term:
    return z3.BoolVal(bool(number)) if sort is Sort.BOOL else z3.IntVal(number)


def _start(judge: Judge, x: TraceState, carried: Carried) -> list[BoolTerm]:
    """The state before, fixed."""
    found = []
    for name, variable in judge.relations.variables.items():
        number = int(getattr(carried if name in CARRIED else x, name))
        found.append(same(before(name, variable.sort), _value(number, variable.sort)))
    return found


def _needs(judge: Judge, way: Alternative, x: TraceState, carried: Carried) -> Iterator[str]:
    """Parts of the guard that cannot hold together, whatever moves came before; as few as can be."""
    solver = z3.Solver()
    solver.set("rlimit", _EFFORT)
    solver.add(*_start(judge, x, carried), *way.conditions)
    kept = dict(zip(way.guard_texts, way.guard, strict=True))
    if solver.check(*kept.values()) != z3.unsat:
        return
    for text in tuple(kept):
        without = [part for other, part in kept.items() if other != text]
        if solver.check(*without) == z3.unsat:
            del kept[text]
    yield from kept


def _wrong(judge: Judge, way: Alternative, x: TraceState, y: TraceState, carried: Carried) -> Iterator[Wrong]:
    """A smallest set of variables that would have to be otherwise: those that changed are doubted first."""
    solver = z3.Solver()
    solver.set("rlimit", _EFFORT)
    solver.add(*_start(judge, x, carried), way.formula)
    variables = {n: v for n, v in judge.relations.variables.items() if n not in CARRIED}
    wrong = []
    for name in sorted(variables, key=lambda n: getattr(x, n) != getattr(y, n)):
        fixed = same(after(name, variables[name].sort), _value(int(getattr(y, name)), variables[name].sort))
        solver.push()
        solver.add(fixed)
        if solver.check() != z3.sat:
            solver.pop()
            wrong.append(name)
    yield from (Wrong(n, int(getattr(y, n))) for n in judge.relations.absent if getattr(y, n))
    for name in wrong[:_MOST_WRONG]:
        low, high = _range(solver, after(name, variables[name].sort))
        yield Wrong(name, int(getattr(y, name)), low, high)


def _range(solver: z3.Solver, term: Term) -> tuple[int | None, int | None]:
    """The least and the greatest value of a term; None where there is no greatest, or none was found."""
    if z3.is_bool(term):
        possible = [number for number, wanted in ((0, z3.Not(term)), (1, term)) if solver.check(wanted) == z3.sat]
        return (possible[0], possible[-1]) if possible else (None, None)
    found = []
    for sign in (1, -1):
        value = _extreme(solver, term * sign)
        found.append(None if value is None else value * sign)
    return found[0], found[1]


def _extreme(solver: z3.Solver, term: Term) -> int | None:
    """The least value of an integer term, by halving; None below `-_REACH`."""
    if solver.check() != z3.sat:
        return None
    high = int(solver.model().eval(term, model_completion=True).as_long())
    low = -_REACH
    if high < low or solver.check(term <= low) == z3.sat:
        return None
    while low < high:
        middle = (low + high) // 2
        if solver.check(term <= middle) == z3.sat:
            high = middle
        else:
            low = middle + 1
    return high
