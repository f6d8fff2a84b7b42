"""Synthesis of a lexicographic linear rank: greedy over templates, one solver per action.

One reap moves several ledgers at once, so a later component is judged only where all earlier ones are equal. The greedy
choice loses no rank over the templates: taking a component only weakens what the later ones must satisfy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice

import z3

from checker.proof.system import System, Transition, touched
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, nat, same
from spec.tla import Sort, Spec, Variable

_IF = " if "
# How many tiers of templates are of one variable, or one while the followed entry is somewhere: no sums.
_SINGLE = 5


@dataclass(frozen=True, eq=False)
class Component:
    """One component of a rank: a linear term that is never below 0 in the region."""

    parts: tuple[tuple[int, str], ...]
    """Coefficient and variable; a flag counts as 1 where it is set, `~flag` as 1 where it is not, `~counter` at 0.

    `counter if flag` counts only where the flag is set.
    """
    term: NatTerm

    @cached_property
    def names(self) -> frozenset[str]:
        """The variables that it reads."""
        return frozenset(name for _, text in self.parts for name in _variables(text))

    @property
    def name(self) -> str:
        """The term as a person writes it."""
        return " + ".join(f"{k}*{n}" if k not in (1, -1) else ("-" if k < 0 else "") + n for k, n in self.parts)

    def delta(self, transition: Transition) -> int | None:
        """By how much the action changes it, where that is a fixed number."""
        change = 0
        for factor, name in self.parts:
            if not transition.action.updates.keys().isdisjoint(_variables(name)):
                by = transition.deltas.get(name)
                if by is None:
                    return None
                change += factor * by
        return change


def _variables(part: str) -> list[str]:
    return part.removeprefix("~").split(_IF)


def _sum(*parts: tuple[int, Component]) -> Component:
    names = tuple((k * factor, name) for k, c in parts for factor, name in c.parts)
    return Component(names, z3.Sum(*(k * c.term if k != 1 else c.term for k, c in parts)))


def component_of(spec: Spec, parts: Sequence[tuple[int, str]]) -> Component:
    """The component of these parts. Raises SpecError where one names no variable."""
    single = [_part(spec, name) for _, name in parts]
    whole = _sum(*((factor, one) for (factor, _), one in zip(parts, single, strict=True)))
    return single[0] if len(parts) == 1 and parts[0][0] == 1 else whole


def _part(spec: Spec, name: str) -> Component:
    counted, *flags = (spec.variable(one) for one in _variables(name))
    single = _single(counted, negated=name.startswith("~"))
    return _where(flags[0], single) if flags else single


def _where(flag: Variable, counted: Component) -> Component:
    """What is counted, only where the flag is set."""
    return Component(((1, f"{counted.name}{_IF}{flag.name}"),), ite(flag.now, counted.term, nat(0)))


def _single(variable: Variable, *, negated: bool = False) -> Component:
    name = f"~{variable.name}" if negated else variable.name
    if variable.sort is Sort.NAT:
        return Component(((1, name),), ite(variable.now == 0, nat(1), nat(0)) if negated else variable.now)
    values = (nat(0), nat(1)) if negated else (nat(1), nat(0))
    return Component(((1, name),), ite(variable.now, *values))


def templates(spec: Spec) -> Iterator[list[Component]]:
    """Candidate components by tiers: what follows one entry or request, all counters and flags, sums, differences.

    Before the sums come those that count what others wait for and use up: whether a counter is 0, also only while the
    followed entry is in one of its stages; and then whether a flag is not set while what is followed is somewhere.
    """
    single = []
    for variable in sorted(spec.variables, key=lambda v: not v.ghost):
        single.append(_single(variable))
        if variable.sort is Sort.BOOL:
            single.append(_single(variable, negated=True))
    ghosts = {v.name for v in spec.variables if v.ghost}
    yield [c for c in single if c.names <= ghosts]
    # Counters before flags: of two that lower as much, the one that a person would name.
    yield sorted((c for c in single if not c.names <= ghosts), key=lambda c: not z3.is_const(c.term))
    zeros = [_single(v, negated=True) for v in spec.variables if v.sort is Sort.NAT and not v.ghost]
    followed = [v for v in spec.variables if v.sort is Sort.BOOL and v.ghost]
    yield zeros
    yield [_where(flag, zero) for flag in followed for zero in zeros]
    unset = [_single(v, negated=True) for v in spec.variables if v.sort is Sort.BOOL and not v.ghost]
    yield [_where(flag, one) for flag in followed for one in unset]
    yield [_sum((1, a), (1, b)) for a, b in combinations(single, 2) if a.names != b.names]
    counters = [c for c in single if z3.is_const(c.term)]
    scaled = ((1, -1), (-1, 1), (2, 1), (1, 2))
    yield [_sum((j, a), (k, b)) for a, b in combinations(counters, 2) for j, k in scaled]


class RankSearch:
    """The search for one region.

    `must_lower` gives for each action the states and steps (over now and next) in which the rank has to fall for the
    action to count as helpful; an action that is not in it must merely not raise the rank.
    """

    def __init__(
        self,
        system: System,
        region: BoolTerm,
        stays: Callable[[Transition], BoolTerm],
        must_lower: Mapping[str, BoolTerm],
    ) -> None:
        """`region` is R, `stays` what keeps a step inside it (R' less the invariant)."""
        self.system = system
        self.must_lower = must_lower
        self.components: list[Component] = []
        self.bounded = system.solver(region)
        self._region, self._stays = region, stays
        self._solvers: dict[str, z3.Solver] = {}
        self._live = set(system.transitions)
        # Actions of which some step has to fall and does not yet.
        self.waiting = {n for n in must_lower if self._possible(n) and not self._quiet(n)}
        # What holds stays true as components are taken: only more steps are ruled out.
        self._facts: set[tuple[str, str, Component]] = set()
        # What failed may hold once the action's solver holds one more equality: asked again only then.
        self._failed: dict[tuple[str, str, Component], int] = {}
        self._version: Counter[str] = Counter()
        self._blockers: set[str] = set()

    def _possible(self, name: str) -> bool:
        """Whether the action has a step inside the region that leaves all components equal; asked when first wanted."""
        if name in self._live and name not in self._solvers:
            transition = self.system.transitions[name]
            self._solvers[name] = self.system.solver(self._region, transition.relation, self._stays(transition))
            for component in self.components:
                self._equal(name, component)
            if self.system.impossible(self._solvers[name]):
                self._live.discard(name)
        return name in self._live

    def _equal(self, name: str, component: Component) -> None:
        transition = self.system.transitions[name]
        if touched(transition, component.names):
            self._solvers[name].add(same(transition.primed(component.term), component.term))

    def solver(self, name: str) -> z3.Solver:
        """Holds the region and a step of the action inside it that leaves all components equal."""
        self._possible(name)
        return self._solvers[name]

    def touching(self, names: Iterable[str]) -> list[str]:
        """The actions that update any of `names` in some step that leaves all components equal."""
        names = frozenset(names)
        return [n for n, t in self.system.transitions.items() if touched(t, names) and self._possible(n)]

    def _quiet(self, name: str) -> bool:
        """No step of the action that must lower the rank is left with all components equal."""
        return self.system.impossible(self._solvers[name], self.must_lower[name])

    def always_helps(self, names: Iterable[str], where: BoolTerm | None = None) -> bool:
        """Whether every step of these actions that must lower the rank does (from the states in `where`)."""
        if where is None:
            return self.waiting.isdisjoint(names)
        return all(
            self.system.impossible(self._solvers[n], self.must_lower[n], where) for n in names if n in self.waiting
        )

    def helps_together(self, names: Sequence[str], literals: Sequence[BoolTerm]) -> Iterator[list[BoolTerm]]:
        """Few of these literals from the states of which `always_helps`, in one way or another; those named first stay.

        None where all together do not suffice.
        """
        marks = {f"literal:{number}": literal for number, literal in enumerate(literals)}
        needed: set[str] = set()
        for name in (n for n in names if n in self.waiting):
            core = self.system.core(self._solvers[name], self.must_lower[name], marks)
            if core is None:
                return
            needed |= core
        # What the solver used may be what the step itself soon changes: then the literals that are named first.
        for some in ([literal for mark, literal in marks.items() if mark in needed], list(literals)):
            found = some
            for literal in reversed(some):
                fewer = [one for one in found if one is not literal]
                if fewer and self.always_helps(names, conj(*fewer)):
                    found = fewer
            yield found

    def try_first(self, hint: Sequence[tuple[tuple[int, str], ...]]) -> None:
        """Take the components of a rank found elsewhere, in order, as far as each may be taken here."""
        known = {c.parts: c for tier in islice(templates(self.system.spec), _SINGLE) for c in tier}
        for component in (known[parts] for parts in hint if parts in known):
            score = self._score(component)
            if self.waiting and score is not None and self._may_take(component):
                self._take(component)

    def _may_take(self, component: Component) -> bool:
        return all(("kept", n, component) in self._facts for n in self._touching(component))

    def run(self, tiers: slice) -> list[Component]:
        """The rank found over these tiers of templates, tried only while something still has to fall."""
        for tier in islice(templates(self.system.spec), tiers.start, tiers.stop):
            if not self.waiting:
                break
            self._greedy(tier)
        return self.components

    def _greedy(self, tier: Iterable[Component]) -> None:
        left = [c for c in tier if any(touched(self.system.transitions[n], c.names) for n in self._live)]
        while self.waiting and left:
            self._blockers = set()
            scored = [(self._score(c), c) for c in left]
            scored = [(self._with_unblocking(score, c), c) for score, c in scored]
            left = [c for score, c in scored if score is not None]
            best = max((score for score, _ in scored if score is not None), default=(0, 0, 0))
            if best == (0, 0, 0):
                return
            chosen = next(c for score, c in scored if score == best)
            self._take(chosen)
            left = [c for c in left if c is not chosen]

    def _with_unblocking(self, score: tuple[int, ...] | None, component: Component) -> tuple[int, ...] | None:
        if score is None:
            return None
        return (*score, self._unblocks(component) if score == (0, 0) else 0)

    def _unblocks(self, component: Component) -> int:
        """How many actions always lower it that now forbid a component which some waiting action lowers."""
        if not self._may_take(component):
            return 0
        return sum(self._lowers(n, component) for n in self._touching(component) if n in self._blockers)

    def _touching(self, component: Component) -> list[str]:
        return sorted(self.touching(component.names))

    def _score(self, component: Component) -> tuple[int, ...] | None:
        """How many actions it lowers always and sometimes, of those that must fall.

        (0, 0) where it may not be taken now, None where it never may.
        """
        if not self._fact("bounded", "", component, lambda: self.system.impossible(self.bounded, component.term < 0)):
            return None
        touching = self._touching(component)
        raisers = [n for n in touching if not self._kept(n, component)]
        if raisers:
            self._blockers.update(raisers)
            return (0, 0)
        always = sometimes = 0
        for name in touching:
            if name in self.waiting:
                if self._lowers(name, component):
                    always += 1
                else:
                    sometimes += self._can_lower(name, component)
        return always, sometimes

    def _kept(self, name: str, component: Component) -> bool:
        return self._fact("kept", name, component, lambda: self._never_raises(name, component))

    def _lowers(self, name: str, component: Component) -> bool:
        return self._fact("lowers", name, component, lambda: self._always_lowers(name, component))

    def _fact(self, kind: str, name: str, component: Component, check: Callable[[], bool]) -> bool:
        key = (kind, name, component)
        if key in self._facts:
            return True
        if self._failed.get(key) == self._version[name]:
            return False
        if check():
            self._facts.add(key)
            return True
        self._failed[key] = self._version[name]
        return False

    def _never_raises(self, name: str, component: Component) -> bool:
        transition = self.system.transitions[name]
        delta = component.delta(transition)
        if delta is not None:
            return delta <= 0
        return self.system.impossible(self._solvers[name], transition.primed(component.term) > component.term)

    def _always_lowers(self, name: str, component: Component) -> bool:
        transition = self.system.transitions[name]
        delta = component.delta(transition)
        if delta is not None:
            return delta < 0
        after = transition.primed(component.term)
        must = self.must_lower.get(name, z3.BoolVal(val=True))
        return self.system.impossible(self._solvers[name], must, after >= component.term)

    def _can_lower(self, name: str, component: Component) -> bool:
        # The opposite, that it cannot, is what stays true.
        return not self._fact("never lowers", name, component, lambda: not self._some_step_lowers(name, component))

    def _some_step_lowers(self, name: str, component: Component) -> bool:
        transition = self.system.transitions[name]
        delta = component.delta(transition)
        if delta is not None:
            return delta < 0
        after = transition.primed(component.term)
        return not self.system.impossible(self._solvers[name], after < component.term)

    def _take(self, component: Component) -> None:
        self.components.append(component)
        for name in sorted(self._live):
            transition = self.system.transitions[name]
            if not touched(transition, component.names):
                continue
            self._version[name] += 1
            if name in self._solvers:
                self._equal(name, component)
            if name in self.waiting and self._quiet(name):
                self.waiting.discard(name)
            if component.delta(transition) or (name in self._solvers and self.system.impossible(self._solvers[name])):
                self._live.discard(name)


def lexicographic(components: Iterable[Component], transition: Transition) -> tuple[BoolTerm, BoolTerm, BoolTerm]:
    """(rank' < rank, rank' = rank, rank' > rank) for one transition."""
    lower: list[BoolTerm] = []
    higher: list[BoolTerm] = []
    equal: list[BoolTerm] = []
    for component in components:
        after = transition.primed(component.term)
        lower.append(conj(*equal, after < component.term))
        higher.append(conj(*equal, after > component.term))
        equal.append(same(after, component.term))
    return disj(*lower), conj(*equal), disj(*higher)
