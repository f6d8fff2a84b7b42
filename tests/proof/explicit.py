"""An explicit-state judge of small finite specs, which shares nothing with the provers but the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from proof_toys import NONE, STRONG, WEAK, Rule, counter, flag, toy

from checker.confirm import over
from checker.proof.interpreter import Interpreter, Value
from spec.draft import Draft
from spec.terms import BoolTerm, Term, conj, disj, ite, nat, neg
from spec.tla import Always, EachStep, Fairness, LeadsTo, Spec

FLAGS, COUNTERS = ("p", "q", "r"), ("x", "y")
TOP = 2
State = tuple[Value, ...]


@dataclass(frozen=True)
class Edge:
    """A step that changes the state."""

    source: State
    action: str
    target: State


class Explicit:
    """Every reachable state of a spec whose counters are bounded by its guards."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.runner = Interpreter(spec)
        self.names = [v.name for v in spec.variables]
        self.states: list[State] = []
        self.edges: list[Edge] = []
        self.stutters: list[tuple[State, str]] = []
        self._explore()

    def as_dict(self, state: State) -> dict[str, Value]:
        return dict(zip(self.names, state, strict=True))

    def _explore(self) -> None:
        first = tuple(self.spec.init[n] for n in self.names)
        self.states, seen = [first], {first}
        for state in self.states:
            for action, target in self._steps(state):
                if target == state:
                    self.stutters.append((state, action))
                    continue
                self.edges.append(Edge(state, action, target))
                if target not in seen:
                    seen.add(target)
                    self.states.append(target)

    def _steps(self, state: State) -> Iterable[tuple[str, State]]:
        here = self.as_dict(state)
        for name, compiled in self.runner.actions.items():
            for values in product(range(TOP + 1), repeat=len(compiled.choices)):
                picked = {c.name: v for c, v in zip(compiled.choices, values, strict=True)}
                if self.runner.legal(here, name, picked):
                    after = self.runner.apply(here, name, picked)
                    yield name, tuple(after[n] for n in self.names)

    @cached_property
    def able(self) -> Mapping[State, frozenset[str]]:
        """ENABLED <<A>>_vars: the actions by which the state can change."""
        found: dict[State, set[str]] = {s: set() for s in self.states}
        for edge in self.edges:
            found[edge.source].add(edge.action)
        return {s: frozenset(a) for s, a in found.items()}

    def where(self, term: BoolTerm) -> set[State]:
        holds = self.runner.holds(term)
        return {s for s in self.states if holds(self.as_dict(s))}

    def leads_to(self, claim: LeadsTo) -> bool:
        """No fair run has a pending state after which the goal never holds."""
        avoid = set(self.states) - self.where(claim.goal)
        trapped = self._fair_core(avoid)
        reach = set(trapped)
        grown = True
        while grown:
            more = {e.source for e in self.edges if e.target in reach and e.source in avoid} - reach
            reach |= more
            grown = bool(more)
        return not (self.where(claim.pending) & reach)

    def always(self, claim: Always) -> bool:
        return len(self.where(claim.holds)) == len(self.states)

    def each_step(self, claim: EachStep) -> bool:
        steps = [(e.source, e.action, e.target) for e in self.edges] + [(s, a, s) for s, a in self.stutters]
        return all(over(claim.holds)(self.as_dict(a), self.as_dict(b)) for a, name, b in steps if name not in claim.but)

    def _fair_core(self, inside: set[State]) -> set[State]:
        """The states of all subsets of `inside` in which a fair run can stay for ever (stuttering included)."""
        found: set[State] = set()
        for part in self._components(inside):
            found |= self._fair_part(part)
        return found

    def _fair_part(self, part: set[State]) -> set[State]:
        taken = {e.action for e in self.edges if e.source in part and e.target in part}
        for actions in self.spec.fair_units.values():
            names = {a.name for a in actions}
            if names & taken:
                continue
            able = {s for s in part if self.able[s] & names}
            if actions[0].fairness is Fairness.STRONG and able:
                return self._fair_core(part - able)
            if able == part:
                return set()
        return part

    def _components(self, inside: set[State]) -> list[set[State]]:
        """Strongly connected components; a single state is one too, since it may stutter."""
        onward = self._closure(inside, lambda e: (e.source, e.target))
        back = self._closure(inside, lambda e: (e.target, e.source))
        left, found = set(inside), []
        while left:
            state = left.pop()
            part = (onward[state] & back[state]) | {state}
            left -= part
            found.append(part)
        return found

    def _closure(self, inside: set[State], ends: Callable[[Edge], tuple[State, State]]) -> dict[State, set[State]]:
        steps: dict[State, list[State]] = {s: [] for s in inside}
        for a, b in map(ends, self.edges):
            if a in inside and b in inside:
                steps[a].append(b)
        found = {}
        for start in inside:
            seen, stack = {start}, [start]
            while stack:
                for following in steps[stack.pop()]:
                    if following not in seen:
                        seen.add(following)
                        stack.append(following)
            found[start] = seen
        return found


def _literal(rng: random.Random) -> Callable[[Mapping[str, Term]], BoolTerm]:
    name, kind = rng.choice(FLAGS + COUNTERS), rng.random()
    if name in FLAGS:
        return lambda s: s[name] if kind < 0.5 else neg(s[name])
    return lambda s: s[name] > 0 if kind < 0.6 else s[name] == 0


def _update(rng: random.Random, s: Draft) -> None:
    name, other = rng.choice(FLAGS + COUNTERS), rng.choice(FLAGS)
    values = _counts(rng, s, name, other) if name in COUNTERS else _truths(s, name, other)
    s[name] = rng.choice(values)()


def _counts(rng: random.Random, s: Draft, name: str, other: str) -> list[Callable[[], Term]]:
    up: Callable[[], Term] = lambda: ite(s[name] < TOP, s[name] + 1, s[name])  # noqa: E731 - one of a list
    down: Callable[[], Term] = lambda: ite(s[name] > 0, s[name] - 1, s[name])  # noqa: E731
    return [
        up,
        down,
        up,
        down,
        lambda: ite(s[other], s[name], nat(0)),
        lambda: s.choose(f"c{name}", high=TOP, witness=rng.randint(0, 1)),
    ]


def _truths(s: Draft, name: str, other: str) -> list[Callable[[], Term]]:
    return [
        conj,
        disj,
        lambda: neg(s[name]),
        lambda: s[other],
        lambda: disj(s[name], s[other]),
        lambda: s.choose(f"c{name}", high=1, witness=ite(s[other], nat(1), nat(0))) > 0,
    ]


def random_spec(rng: random.Random) -> Spec:
    """A small spec; its counters go to 2 at most. Some actions share a unit, some are help."""
    rules = []
    shared = rng.choice([WEAK, WEAK, STRONG])
    for number in range(rng.randint(2, 5)):
        seed = rng.random()
        guards = [_literal(rng) for _ in range(rng.randint(0, 2))]

        def body(s: Draft, seed: float = seed, guards: list[Callable[[Mapping[str, Term]], BoolTerm]] = guards) -> None:
            own = random.Random(seed)  # noqa: S311 - not for secrets
            s.when(*(g(s) for g in guards))
            for _ in range(own.randint(1, 2)):
                _update(own, s)

        unit = "U" if rng.random() < 0.3 else ""
        fair = shared if unit else rng.choice([NONE, WEAK, WEAK, STRONG])
        rules.append(Rule(f"A{number}", fair, body, unit, help=rng.random() < 0.2))
    init = {n: rng.random() < 0.4 for n in FLAGS} | {n: rng.randint(0, TOP) for n in COUNTERS}
    return toy([*map(flag, FLAGS), *map(counter, COUNTERS)], *rules, init=init)


def random_claims(rng: random.Random, spec: Spec) -> list[LeadsTo | Always | EachStep]:
    now = {v.name: v.now for v in spec.variables}
    after = {v.name: v.next for v in spec.variables}
    one, two, three = _literal(rng), _literal(rng), _literal(rng)
    pending = conj() if rng.random() < 0.4 else one(now)
    but = frozenset({"A0"}) if rng.random() < 0.3 else frozenset()
    return [
        LeadsTo(pending, two(now)),
        LeadsTo(neg(two(now)), conj(two(now), three(now)) if rng.random() < 0.5 else two(now)),
        Always(disj(two(now), three(now))),
        EachStep(disj(neg(one(now)), two(after)), but),
    ]
