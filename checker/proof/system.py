"""A spec ready for the solver: one solver per action, with push and pop: many times faster than one per query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import z3
from z3 import z3core

from spec.errors import SpecError
from spec.terms import BoolTerm, Term, conj, disj, free_names, implies
from spec.tla import Action, Sort, Spec


@dataclass(frozen=True)
class Limits:
    """What a proof may spend: `depth` bounds the search for a run, `lasso` that for a fair loop."""

    seed: int = 0
    work: int = 200_000_000
    """For one query, in Z3's own units (`rlimit`), some seconds: the same on every machine, however busy."""
    spacer_milliseconds: int = 3_000
    depth: int = 12
    lasso: int = 8
    """Stem and loop together."""
    loop: int = 4
    walks: int = 12
    walk_length: int = 80


@dataclass
class Tally:
    """How much a proof asked."""

    queries: int = 0


@dataclass(frozen=True)
class Transition:
    """One action over now and next: what it does not update is the same variable in both."""

    action: Action

    @property
    def relation(self) -> BoolTerm:
        """The step."""
        return self.action.relation

    def primed(self, term: Term) -> Term:
        """`term` after the action."""
        return self.action.renaming(term)

    @cached_property
    def deltas(self) -> Mapping[str, int | None]:
        """By how much each updated counter changes, where that is a fixed number; None where it depends."""
        found: dict[str, int | None] = {}
        for name, update in self.action.updates.items():
            if z3.is_int(update):
                change = z3.simplify(update - z3.Int(name))
                found[name] = change.as_long() if z3.is_int_value(change) else None
        return found


@dataclass(frozen=True)
class System:
    """The transitions of one spec, and the solvers to ask about them."""

    spec: Spec
    limits: Limits = field(default_factory=Limits)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        """One transition for each action."""
        object.__setattr__(self, "transitions", {action.name: Transition(action) for action in self.spec.actions})

    transitions: Mapping[str, Transition] = field(init=False, repr=False)

    def solver(self, *assertions: BoolTerm) -> z3.Solver:
        """A fresh solver for linear integer arithmetic that holds `assertions`."""
        solver = z3.SimpleSolver()
        z3core.Z3_solver_set_params(solver.ctx.ref(), solver.solver, self._options.params)
        if assertions:
            solver.add(conj(*assertions))
        return solver

    @cached_property
    def _options(self) -> z3.ParamsRef:
        options = z3.ParamsRef()
        # The older simplex is quicker on these many small queries (bench/proofs.py).
        options.set("arith.solver", 2)
        options.set("random_seed", self.limits.seed)
        options.set("rlimit", self.limits.work)
        return options

    @contextmanager
    def step(self, name: str, *assertions: BoolTerm) -> Iterator[z3.Solver]:
        """A solver that holds TypeOK, one step of this action and, inside the `with`, `assertions`.

        It is one for each action and kept, so that Z3 takes the step in once.
        """
        solver = self._steps.get(name)
        if solver is None:
            solver = self._steps[name] = self.solver(self.spec.naturals, self.transitions[name].relation)
        solver.push()
        try:
            if assertions:
                solver.add(conj(*assertions))
            yield solver
        finally:
            solver.pop()

    @cached_property
    def _steps(self) -> dict[str, z3.Solver]:
        return {}

    def query(self, solver: z3.Solver, *assertions: BoolTerm) -> z3.ModelRef | None:
        """A model of what the solver holds and `assertions`, or None if there is none. Raises UndecidedError."""
        self.tally.queries += 1
        solver.push()
        try:
            if assertions:
                solver.add(conj(*assertions))
            answer = solver.check()
            if answer == z3.sat:
                return solver.model()
            if answer == z3.unsat:
                return None
            raise self.undecided(solver)
        finally:
            solver.pop()

    def impossible(self, solver: z3.Solver, *assertions: BoolTerm) -> bool:
        """Whether there is no model. Raises UndecidedError."""
        self.tally.queries += 1
        solver.push()
        if assertions:
            solver.add(conj(*assertions))
        answer = solver.check()
        solver.pop()
        if answer == z3.unknown:
            raise self.undecided(solver)
        return bool(answer == z3.unsat)

    def core(self, solver: z3.Solver, assertion: BoolTerm, marks: Mapping[str, BoolTerm]) -> frozenset[str] | None:
        """Names of terms that exclude every model together with what the solver holds; None where all of them do not.

        Raises UndecidedError.
        """
        self.tally.queries += 1
        solver.push()
        try:
            solver.add(assertion, *(implies(z3.Bool(mark), term) for mark, term in marks.items()))
            answer = solver.check(*map(z3.Bool, marks))
            if answer == z3.unknown:
                raise self.undecided(solver)
            return frozenset(map(str, solver.unsat_core())) if answer == z3.unsat else None
        finally:
            solver.pop()

    def undecided(self, solver: z3.Solver) -> UndecidedError:
        """Why the solver gave up, in words."""
        reason = solver.reason_unknown()
        # Z3's word for having spent what it may.
        return UndecidedError(f"{self.limits.work} units of work were not enough" if reason == "canceled" else reason)

    @cached_property
    def _reads(self) -> dict[int, tuple[Term, frozenset[str]]]:
        # Keyed by Z3's id, which is unique while the term lives; so the term is kept.
        return {}

    def reads(self, term: Term) -> frozenset[str]:
        """The names that `term` reads; each term is walked once."""
        found = self._reads.get(term.get_id())
        if found is None:
            found = self._reads[term.get_id()] = (term, free_names(term))
        return found[1]

    def state_of(self, model: z3.ModelRef, *, suffix: str = "") -> dict[str, int | bool]:
        """The values of the variables in a model; what it leaves open is 0 or false."""
        values: dict[str, int | bool] = {}
        for variable in self.spec.variables:
            if variable.sort is Sort.BOOL:
                values[variable.name] = z3.is_true(model.eval(z3.Bool(variable.name + suffix), model_completion=True))
            else:
                values[variable.name] = model.eval(z3.Int(variable.name + suffix), model_completion=True).as_long()
        return values


class UndecidedError(Exception):
    """A solver gave up (time or incompleteness): the verdict is `unknown`, never `proved` or `refuted`."""


Falls = frozenset[tuple[str, str]]
"""Actions, each with a counter that it may take below 0."""


def falling(system: System, lemmas: Iterable[BoolTerm] = (), among: Falls | None = None) -> Falls:
    """TypeOK is assumed everywhere, so it is proved here: the counters that can fall below 0. Raises UndecidedError.

    `among` are those that can without lemmas; no other can with them.
    """
    together, found = conj(*lemmas), set()
    for name, transition in system.transitions.items():
        counters = [v for v in system.spec.variables if v.sort is Sort.NAT and v.name in transition.action.updates]
        counters = [v for v in counters if among is None or (name, v.name) in among]
        if not counters:
            continue
        with system.step(name, together) as solver:
            while counters and (model := system.query(solver, disj(*(v.next < 0 for v in counters)))) is not None:
                below = [v for v in counters if model.eval(v.next, model_completion=True).as_long() < 0]
                found |= {(name, v.name) for v in below}
                counters = [v for v in counters if v not in below]
    return frozenset(found)


def check_naturals(system: System, lemmas: Iterable[BoolTerm], among: Falls | None = None) -> None:
    """Raises SpecError where a counter can fall below 0 even with the lemmas; `among` as in `falling`."""
    for action, counter in sorted(falling(system, lemmas, among)):
        raise SpecError(f"{system.spec.name}: {action} can take {counter} below 0")


def touched(transition: Transition, names: Iterable[str]) -> bool:
    """Whether the action updates any of `names`."""
    return not transition.action.updates.keys().isdisjoint(names)
