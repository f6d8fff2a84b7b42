"""Proves `pending ~> goal` by the helpful-action rule over synthesised lexicographic linear ranks.

While pending, the rank never rises and is bounded below, so it falls only finitely often; after that some helpful fair
action is enabled (obligation 7) and stays so (8), so that fairness takes it, and it lowers the rank or reaches the goal
(6): contradiction. A search that merely finds no counterexample proves nothing, and nothing here says `proved` for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from checker.proof.obligations import Helpful, Proof, over_step
from checker.proof.rank import Component, RankSearch, lexicographic
from checker.proof.system import System, Transition
from spec.terms import BoolTerm, Term, conj, disj, implies, neg
from spec.tla import Fairness, FinitelyOften, LeadsTo, Sort, Spec


@dataclass(frozen=True)
class Gap:
    """Why no proof was found: the obligation that fails, and a state in which it does (not shown to be reachable)."""

    obligation: int
    about: str
    state: dict[str, int | bool]


@dataclass(frozen=True)
class _Goal:
    """What is to be proved, and inside what: a nested goal keeps the outer region and the outer rank."""

    claim: LeadsTo
    lemmas: tuple[BoolTerm, ...]
    within: tuple[BoolTerm, tuple[Component, ...]] | None = None

    def region(self, system: System) -> BoolTerm:
        """R: the invariant, pending, not the goal."""
        parts = [system.spec.naturals, *self.lemmas, self.claim.pending, neg(self.claim.goal)]
        return conj(*parts, *([self.within[0]] if self.within else []))

    def stays(self, transition: Transition) -> BoolTerm:
        """The step ends in R again (and keeps the outer rank)."""
        parts = [transition.primed(self.claim.pending), neg(transition.primed(self.claim.goal))]
        if self.within:
            parts += [transition.primed(self.within[0]), lexicographic(self.within[1], transition)[1]]
        return conj(*parts)


class LeadsToSearch:
    """The search for a proof of one claim, which can be taken up again with more templates."""

    def __init__(
        self,
        system: System,
        claim: LeadsTo,
        lemmas: Iterable[BoolTerm],
        hint: Sequence[tuple[tuple[int, str], ...]] = (),
    ) -> None:
        """Nothing is asked before the first `attempt`. `hint` is a rank to try first, checked like any other."""
        self.system = system
        self.hint = hint
        self.goal = _Goal(claim, tuple(lemmas))
        self._ranks: RankSearch | None = None

    def attempt(self, tiers: slice = slice(0, None)) -> Proof | Gap:
        """A proof over these tiers of templates (and all tried before), or the gap. Raises UndecidedError."""
        if self._ranks is None:
            dropped = _dropped(self.system, self.goal, self.goal.region(self.system))
            if dropped:
                return dropped
            self._ranks = _rank_search(self.system, self.goal)
            self._ranks.try_first(self.hint)
        return _conclude(self.system, self.goal, self._ranks, tiers, nesting=1)


def prove_leads_to(system: System, claim: LeadsTo, lemmas: Iterable[BoolTerm]) -> Proof | Gap:
    """A proof of the claim over all templates, or the gap that remains. Raises UndecidedError."""
    return LeadsToSearch(system, claim, lemmas).attempt()


def _rank_search(system: System, goal: _Goal) -> RankSearch:
    must = {
        action.name: _must_lower(system.spec, unit)
        for unit, actions in system.spec.fair_units.items()
        for action in actions
    }
    return RankSearch(system, goal.region(system), goal.stays, must)


def _must_lower(spec: Spec, unit: str) -> BoolTerm:
    # Weakly fair: taken from a state in which the unit has stayed enabled. Strongly fair: from any, and outside this
    # slice the step may change what is not seen here, so that every step has to help.
    weak = spec.fair_units[unit][0].fairness is Fairness.WEAK
    return spec.enabled(unit) if weak else z3.BoolVal(val=True)


def _conclude(system: System, goal: _Goal, search: RankSearch, tiers: slice, nesting: int) -> Proof | Gap:
    region = goal.region(system)
    rank = tuple(search.run(tiers))
    units = system.spec.fair_units
    names = {unit: [a.name for a in actions] for unit, actions in units.items()}
    weak = [u for u in units if units[u][0].fairness is Fairness.WEAK]
    true = z3.BoolVal(val=True)
    helpful = _persistent(system, search, [Helpful(u, true) for u in weak if search.always_helps(names[u])])
    needed, stuck = _someone_enabled(system, region, helpful)
    partly = {u: names[u] for u in weak if not search.always_helps(names[u])}
    while stuck is not None and (more := _partial_help(system, search, partly, stuck)):
        helpful += more
        needed, stuck = _someone_enabled(system, region, helpful)
    if stuck is None:
        return Proof(goal.claim, goal.lemmas, rank, tuple(needed), within=goal.within)
    for unit in (u for u in units if u not in weak and search.always_helps(names[u])):
        nested = _recurs(system, goal, rank, unit, nesting)
        if nested is not None:
            return Proof(goal.claim, goal.lemmas, rank, (Helpful(unit, true),), ((unit, nested),), goal.within)
    return Gap(7, "no helpful fair action is enabled, or none stays enabled", stuck)


def _partial_help(
    system: System, search: RankSearch, units: Mapping[str, Sequence[str]], state: Mapping[str, int | bool]
) -> list[Helpful]:
    """A unit that helps in this state: wherever some literal that holds in it does, or else several together do.

    The first that stays able to.
    """
    values = {v.name: (v.now, _constant(state[v.name])) for v in system.spec.variables}
    units = {u: names for u, names in units.items() if _holds(system, system.spec.enabled(u), values)}
    for literal in _literals_of(system.spec, state) if units else ():
        helps = [Helpful(unit, literal) for unit, names in units.items() if search.always_helps(names, literal)]
        kept = _persistent(system, search, helps)
        if kept:
            return kept
    every = [*_literals_of(system.spec, state), *_zeros_of(system.spec, state)]
    for unit, names in units.items():
        for needed in search.helps_together(names, every):
            kept = _persistent(system, search, [Helpful(unit, conj(*needed))])
            if kept:
                return kept
    return []


def _holds(system: System, term: BoolTerm, values: Mapping[str, tuple[Term, Term]]) -> bool:
    read = [values[name] for name in system.reads(term)]
    return bool(z3.is_true(z3.simplify(z3.substitute(term, *read) if read else term)))


def _constant(value: int | bool) -> Term:  # noqa: FBT001 - a flag's value
    return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)


def _literals_of(spec: Spec, state: Mapping[str, int | bool]) -> Iterator[BoolTerm]:
    """What holds in the state: ghosts first, since it is mostly the followed entry that says who helps."""
    for variable in sorted(spec.variables, key=lambda v: not v.ghost):
        if variable.sort is Sort.BOOL:
            yield variable.now if state[variable.name] else neg(variable.now)
        elif state[variable.name]:
            yield variable.now > 0


def _zeros_of(spec: Spec, state: Mapping[str, int | bool]) -> Iterator[BoolTerm]:
    """The counters that are 0 in the state."""
    yield from (v.now == 0 for v in spec.variables if v.sort is Sort.NAT and not state[v.name])


def _dropped(system: System, goal: _Goal, region: BoolTerm) -> Gap | None:
    for name, transition in system.transitions.items():
        after = disj(transition.primed(goal.claim.goal), transition.primed(goal.claim.pending))
        outer: list[BoolTerm] = []
        if goal.within:
            outer = [lexicographic(goal.within[1], transition)[1], transition.primed(goal.within[0])]
        with system.step(name, region, *outer) as solver:
            model = system.query(solver, neg(after))
        if model is not None:
            return Gap(3, f"{name} can end the pending state without the goal", system.state_of(model))
    return None


def _persistent(system: System, search: RankSearch, helpful: Iterable[Helpful]) -> list[Helpful]:
    """Those that, once able to help, stay so for as long as the rank does not fall.

    The search's solvers hold the region, the step and equality of the rank; an action that is no longer live in the
    search has no such step.
    """
    kept = []
    for one in helpful:
        enabled = system.spec.enabled(one.unit)
        able = conj(one.where, enabled)
        reads = system.reads(one.where) | system.reads(enabled)
        others = [(search.solver(name), system.transitions[name]) for name in search.touching(reads)]
        if all(system.impossible(solver, able, neg(t.primed(able))) for solver, t in others):
            kept.append(one)
    return kept


def _someone_enabled(
    system: System, region: BoolTerm, helpful: Sequence[Helpful]
) -> tuple[list[Helpful], dict[str, int | bool] | None]:
    """The helpful units that suffice for obligation 7, or a state in which none can help."""
    solver = system.solver(region)
    marks = {f"off:{i}": one for i, one in enumerate(helpful)}
    for mark, one in marks.items():
        solver.add(implies(z3.Bool(mark), neg(conj(one.where, system.spec.enabled(one.unit)))))
    system.tally.queries += 1
    answer = solver.check(*(z3.Bool(mark) for mark in marks))
    if answer == z3.sat:
        return [], system.state_of(solver.model())
    if answer == z3.unknown:
        raise system.undecided(solver)
    core = {str(mark) for mark in solver.unsat_core()}
    return _joined(one for mark, one in marks.items() if mark in core), None


def _joined(helpful: Iterable[Helpful]) -> list[Helpful]:
    """One entry for each unit: where it helps in several parts, it helps in their union."""
    parts: dict[str, list[BoolTerm]] = {}
    for one in helpful:
        parts.setdefault(one.unit, []).append(one.where)
    return [Helpful(unit, disj(*where)) for unit, where in parts.items()]


def _recurs(system: System, goal: _Goal, rank: tuple[Component, ...], name: str, nesting: int) -> Proof | None:
    """A proof that the strongly fair action is enabled again and again while the rank stays equal."""
    if nesting == 0:
        return None
    enabled = system.spec.enabled(name)
    inner = LeadsTo(pending=z3.BoolVal(val=True), goal=enabled)
    outer = conj(goal.claim.pending, neg(goal.claim.goal))
    inside = _Goal(inner, goal.lemmas, (outer, rank))
    if _dropped(system, inside, inside.region(system)):
        return None
    found = _conclude(system, inside, _rank_search(system, inside), slice(0, None), nesting - 1)
    return found if isinstance(found, Proof) else None


def prove_finitely_often(
    system: System, claim: FinitelyOften, lemmas: Iterable[BoolTerm], tiers: slice = slice(0, None)
) -> Proof | Gap:
    """A rank over these tiers of templates that falls with every event and never rises.

    Then events are finite in number, whatever is fair.
    """
    lemmas = tuple(lemmas)
    region = conj(system.spec.naturals, *lemmas, claim.during)
    must = {n: over_step(system, t, claim.event) for n, t in system.transitions.items()}
    search = RankSearch(system, region, lambda t: t.primed(claim.during), must)
    rank = tuple(search.run(tiers))
    if not search.waiting:
        return Proof(claim, lemmas, rank)
    name = min(search.waiting)
    model = system.query(search.solver(name), must[name])
    state = system.state_of(model) if model is not None else {}
    return Gap(6, f"no rank falls with every event of {name}", state)
