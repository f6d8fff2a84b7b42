"""Inductive lemmas, found: candidates from templates, filtered by random runs, then by simultaneous 1-induction.

Nothing here is trusted: every proof re-checks its invariant as obligations 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations

import z3

from checker.proof.interpreter import Step, Value
from checker.proof.system import System, Transition
from spec.terms import BoolTerm, conj, disj, free_names, implies, neg
from spec.tla import Sort, Spec, Variable


@dataclass(frozen=True)
class Samples:
    """Random runs; each atom is a bit mask over their states: a candidate is filtered by a few integer operations."""

    initial: Mapping[str, Value]
    runs: Sequence[tuple[Step, ...]]

    @cached_property
    def states(self) -> Sequence[Mapping[str, Value]]:
        """The distinct states, in the order in which they were first met."""
        every = [self.initial, *(step.state for run in self.runs for step in run)]
        return list({tuple(state.values()): state for state in every}.values())

    @property
    def steps(self) -> Iterator[tuple[str, Mapping[str, Value], Mapping[str, Value]]]:
        """Each step: the action, the state before it and the state after it."""
        for run in self.runs:
            before = self.initial
            for step in run:
                yield step.action, before, step.state
                before = step.state

    @property
    def everywhere(self) -> int:
        """The mask of all states."""
        return (1 << len(self.states)) - 1

    def mask(self, holds: Callable[[Mapping[str, Value]], bool]) -> int:
        """The states in which `holds` is true, one bit each: the first state is the lowest bit."""
        return int("".join("1" if holds(state) else "0" for state in reversed(self.states)), 2)

    @cached_property
    def atoms(self) -> Mapping[str, int]:
        """For each variable the states in which it is true, or above 0."""
        columns = zip(*(state.values() for state in reversed(self.states)), strict=True)
        masks = (int("".join(["1" if value else "0" for value in column]), 2) for column in columns)
        return dict(zip(self.states[0], masks, strict=True))

    @cached_property
    def above(self) -> dict[tuple[str, str], int]:
        """Cache of the states in which one counter is above another."""
        return {}

    def exceeds(self, left: str, right: str) -> int:
        """The states in which `left > right`."""
        if (left, right) not in self.above:
            self.above[left, right] = self.mask(lambda s: s[left] > s[right])
        return self.above[left, right]


def candidates(spec: Spec, samples: Samples) -> Iterator[BoolTerm]:
    """Lemmas worth trying, true in all samples: constants, two-literal clauses, what a flag says of a counter.

    What follows from a constant is left out.
    """
    everywhere, atoms = samples.everywhere, samples.atoms
    varying: list[tuple[BoolTerm, int, str]] = []
    for variable in spec.variables:
        true = atoms[variable.name]
        term = variable.now if variable.sort is Sort.BOOL else variable.now > 0
        if true in (0, everywhere):
            yield term if true else _zero(variable)
        elif variable.sort is Sort.BOOL:
            varying += [(term, true, variable.name), (neg(term), everywhere & ~true, variable.name)]
    for (left, where, name), (right, there, other) in combinations(varying, 2):
        if name != other and where | there == everywhere:
            yield disj(left, right)
    ghosts = [v.name for v in spec.variables if v.sort is Sort.NAT and v.ghost]
    for literal, where, _ in varying:
        yield from _of_counters(spec, samples, literal, where, ghosts)


def _of_counters(
    spec: Spec, samples: Samples, literal: BoolTerm, where: int, ghosts: Sequence[str]
) -> Iterator[BoolTerm]:
    for variable in spec.variables:
        above = samples.atoms[variable.name]
        if variable.sort is not Sort.NAT or above in (0, samples.everywhere):
            continue
        if not where & above:
            yield implies(literal, variable.now == 0)
        elif not where & ~above:
            yield implies(literal, variable.now > 0)
            for ghost in ghosts:
                if ghost != variable.name and not where & ~samples.exceeds(variable.name, ghost):
                    yield implies(literal, variable.now > z3.Int(ghost))


def orders(spec: Spec, samples: Samples, proved: Iterable[BoolTerm]) -> Iterator[BoolTerm]:
    """That one counter is never above another, where no sample says otherwise: many, and seldom needed."""
    constants = {lemma.get_id() for lemma in proved}
    counters = [v for v in spec.variables if v.sort is Sort.NAT and not v.ghost]
    counters = [v for v in counters if _zero(v).get_id() not in constants]
    for low, high in permutations(counters, 2):
        if not samples.exceeds(low.name, high.name):
            yield low.now <= high.now


def _zero(variable: Variable) -> BoolTerm:
    return neg(variable.now) if variable.sort is Sort.BOOL else variable.now == 0


@dataclass(frozen=True)
class Known:
    """The lemmas of a slice, and its variables."""

    variables: frozenset[str] = frozenset()
    lemmas: Sequence[BoolTerm] = ()


class Failed:
    """Candidates that were not inductive somewhere, and nowhere were."""

    def __init__(self) -> None:
        """None yet."""
        # The terms are kept: Z3's ids are unique while they live.
        self._terms: dict[int, BoolTerm] = {}

    def __bool__(self) -> bool:
        return bool(self._terms)

    def __contains__(self, candidate: BoolTerm) -> bool:
        return candidate.get_id() in self._terms

    def learn(self, candidates: Iterable[BoolTerm], proved: Iterable[BoolTerm]) -> None:
        """Of these candidates those were proved, and no others."""
        self._terms.update((c.get_id(), c) for c in candidates)
        for lemma in proved:
            self._terms.pop(lemma.get_id(), None)


@dataclass(frozen=True)
class Guide:
    """What is known of candidates before they are tried."""

    known: Known = field(default_factory=Known)
    """The lemmas of a smaller slice: they hold here too, and what failed there is not tried again."""
    failed: Failed = field(default_factory=Failed)
    """What failed in other configurations; it grows."""
    skip: bool = False
    """Whether that is not tried here."""


def find_lemmas(
    system: System, samples: Samples, wanted: Iterable[BoolTerm] = (), guide: Guide | None = None
) -> list[BoolTerm]:
    """The largest set of candidates, `wanted` among them, that is inductive together with TypeOK."""
    guide = guide or Guide()
    proved, tried = list(guide.known.lemmas), guide.known.variables

    def worth(candidate: BoolTerm) -> bool:
        return not (guide.skip and candidate in guide.failed) and not free_names(candidate) <= tried

    first = [*filter(worth, candidates(system.spec, samples)), *wanted]
    proved += _houdini(system, first, proved)
    # A flag that no sample has set, and that can be set: what it implies has not been tried yet.
    unseen = _unseen_flags(system.spec, samples, tried, proved)
    rare = [c for flag in unseen for c in filter(worth, _vacuous(system.spec, flag))]
    if rare:
        done = {c.get_id() for c in proved}
        proved += _houdini(system, [*(c for c in first if c.get_id() not in done), *rare], proved)
    guide.failed.learn([*first, *rare], proved)
    return proved


def _unseen_flags(spec: Spec, samples: Samples, tried: frozenset[str], proved: Sequence[BoolTerm]) -> list[BoolTerm]:
    constants = {lemma.get_id() for lemma in proved}
    flags = [v for v in spec.variables if v.sort is Sort.BOOL and v.name not in tried and not samples.atoms[v.name]]
    return [v.now for v in flags if neg(v.now).get_id() not in constants]


def _vacuous(spec: Spec, flag: BoolTerm) -> Iterator[BoolTerm]:
    """What a flag that is set in no sample may imply: anything, as far as they tell."""
    ghosts = [v.name for v in spec.variables if v.sort is Sort.NAT and v.ghost]
    for variable in spec.variables:
        if variable.sort is Sort.BOOL and not variable.now.eq(flag):
            yield from (implies(flag, variable.now), implies(flag, neg(variable.now)))
        elif variable.sort is Sort.NAT:
            yield from (implies(flag, variable.now == 0), implies(flag, variable.now > 0))
            yield from (implies(flag, variable.now > z3.Int(g)) for g in ghosts if g != variable.name)


def _houdini(system: System, alive: list[BoolTerm], proved: Sequence[BoolTerm]) -> list[BoolTerm]:
    """Drop what the initial state or some action breaks, until nothing is dropped."""
    initial = system.solver(system.spec.initial)
    if not system.impossible(initial, neg(conj(*alive))):
        alive = [c for c in alive if system.impossible(initial, neg(c))]
    names = {c.get_id(): free_names(c) for c in alive}
    dirty = True
    while dirty and alive:
        dirty, assumed = False, conj(*proved, *alive)
        for transition in system.transitions.values():
            broken = _broken_by(system, transition, alive, names, assumed)
            if broken:
                dirty = True
                alive = [c for c in alive if c.get_id() not in broken]
                assumed = conj(*proved, *alive)
    return alive


def _broken_by(
    system: System,
    transition: Transition,
    alive: list[BoolTerm],
    names: Mapping[int, frozenset[str]],
    assumed: BoolTerm,
) -> set[int]:
    """Ids of the candidates that this action breaks, all of them assumed before it: what goes is asked again."""
    concerned = [c for c in alive if not names[c.get_id()].isdisjoint(transition.action.updates)]
    if not concerned:
        return set()
    # One substitution for all: each is a Python call into Z3.
    together = transition.primed(conj(*concerned))
    after = together.children() if len(concerned) > 1 else [together]
    pairs = list(zip(concerned, after, strict=True))
    broken: set[int] = set()
    with system.step(transition.action.name, assumed) as solver:
        while pairs:
            model = system.query(solver, disj(*(neg(then) for _, then in pairs)))
            if model is None:
                break
            failed = {c.get_id() for c, then in pairs if z3.is_false(model.eval(then, model_completion=True))}
            broken |= failed
            pairs = [(c, then) for c, then in pairs if c.get_id() not in failed]
    return broken


def spacer_invariant(system: System, bad: BoolTerm) -> BoolTerm | None:
    """An inductive invariant that excludes `bad`, from Z3's Spacer; None where it finds a path to it or gives up."""
    spec = system.spec
    engine = z3.Fixedpoint()
    engine.set(engine="spacer")
    engine.set("timeout", system.limits.spacer_milliseconds)
    engine.set("spacer.random_seed", system.limits.seed)
    now = [v.now for v in spec.variables]
    inv = z3.Function("Inv", *(t.sort() for t in now), z3.BoolSort())
    engine.register_relation(inv)
    choices = [c.term for a in spec.actions for c in a.choices]
    nexts = [v.next for v in spec.variables]
    engine.declare_var(*now, *nexts, *choices)
    engine.rule(inv(*now), spec.initial)
    for action in spec.actions:
        engine.rule(inv(*nexts), [inv(*now), spec.step(action)])
    try:
        if engine.query(z3.And(inv(*now), bad)) != z3.unsat:
            return None
        return _instantiate(engine.get_answer(), inv, now)
    except z3.Z3Exception:
        return None  # out of time: Spacer says so by raising


def _instantiate(answer: z3.ExprRef, inv: z3.FuncDeclRef, now: list[z3.ExprRef]) -> BoolTerm | None:
    """The body of Spacer's interpretation of Inv, over the spec's own variables."""
    for part in answer.children() if z3.is_and(answer) else [answer]:
        body = part.body() if z3.is_quantifier(part) else part
        if not z3.is_eq(body) or not z3.is_app(body.arg(0)) or not body.arg(0).decl().eq(inv):
            continue
        # Bound variables are numbered from the innermost quantifier outwards.
        bound = [None] * len(now)
        for index, argument in enumerate(body.arg(0).children()):
            bound[z3.get_var_index(argument)] = now[index]
        return z3.substitute_vars(body.arg(1), *bound)
    return None


def as_invariant(spec: Spec, lemmas: Iterable[BoolTerm]) -> BoolTerm:
    """TypeOK and the lemmas."""
    return conj(spec.naturals, *lemmas)
