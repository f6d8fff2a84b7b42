"""One spec in one configuration, its slices, and the random runs that both are judged by before a solver is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from checker.proof.interpreter import Interpreter, Step
from checker.proof.lemmas import Guide, Known, Samples, find_lemmas, orders
from checker.proof.system import Falls, Limits, System, Tally, check_naturals, falling
from checker.proof.unroll import Unrolling
from checker.shared import Shared
from spec.cone import Cones
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term
from spec.tla import Sort, Spec

# How many times as many random runs there are where the first ones say too little, and where a claim stays open.
_RICH = 3
_MORE = 8
# In fewer states than this a flag is seen by chance: what holds in all of them says little.
_SEEN = 6


class Walks:
    """Random runs: a few that are always made, and more, each made when it is first wanted, and kept."""

    def __init__(self, interpreter: Interpreter, limits: Limits) -> None:
        """Makes the few."""
        self._limits = limits
        few = interpreter.walks(limits.walks, limits.walk_length, limits.seed)
        self.samples = Samples(interpreter.initial(), list(few))
        self._fresh = interpreter.walks(_MORE * limits.walks, limits.walk_length, limits.seed + 1)
        self._made: list[tuple[Step, ...]] = []

    @property
    def more(self) -> Iterator[tuple[Step, ...]]:
        """Runs other than the few, several times as many."""
        yield from self._made
        for run in self._fresh:
            self._made.append(run)
            yield run

    @cached_property
    def rich(self) -> Samples:
        """The few, and some of the others."""
        some = islice(self.more, (_RICH - 1) * self._limits.walks)
        return Samples(self.samples.initial, [*self.samples.runs, *some])


@dataclass
class Slice:
    """The part of a spec that can influence some terms, ready for the solver. Lemmas are found when first wanted."""

    system: System
    subject: Subject
    key: frozenset[str]
    local: bool = False
    """Whether it has more runs than the spec: only what is proved here says something."""

    @cached_property
    def interpreter(self) -> Interpreter:
        """This slice without a solver."""
        return Interpreter(self.system.spec, self.subject.shared.compiler)

    @property
    def walker(self) -> Interpreter:
        """What the random runs are runs of: the whole spec, or this slice where there is no other."""
        return self.subject.interpreter if self.subject.walk_whole else self.interpreter

    @cached_property
    def _walks(self) -> Walks:
        return self.subject.walks if self.subject.walk_whole else Walks(self.walker, self.subject.limits)

    @property
    def samples(self) -> Samples:
        """A few random runs."""
        return self._walks.samples

    @property
    def rich(self) -> Samples:
        """More of them, for what is seldom seen."""
        return self._walks.rich

    @property
    def telling(self) -> Samples:
        """The few, or more of them where some flag of this slice is seen in too few states to tell."""
        atoms = self.samples.atoms
        flags = (atoms[v.name].bit_count() for v in self.system.spec.variables if v.sort is Sort.BOOL)
        return self.rich if any(0 < seen < _SEEN for seen in flags) else self.samples

    @property
    def more_runs(self) -> Iterable[tuple[Step, ...]]:
        """Many more random runs."""
        return self._walks.more

    def lemma_sets(self) -> Iterator[list[BoolTerm]]:
        """Inductive lemmas: first those whose candidates failed in no other configuration, then all."""
        if self.subject.shared.failed:
            yield self.likely
        yield self.lemmas

    @cached_property
    def lemmas(self) -> list[BoolTerm]:
        """Inductive lemmas; with them it is certain that counters stay natural."""
        found = find_lemmas(self.system, self.telling, guide=self._guide(skip=False))
        check_naturals(self.system, found, self.falling)
        return found

    @cached_property
    def likely(self) -> list[BoolTerm]:
        """Those lemmas whose candidates failed nowhere; with them too counters stay natural."""
        found = find_lemmas(self.system, self.telling, guide=self._guide(skip=True))
        return self.lemmas if falling(self.system, found, self.falling) else found

    @cached_property
    def ordered(self) -> list[BoolTerm]:
        """The lemmas, and which counters are never above which others: for what is open otherwise."""
        known = Known(frozenset(v.name for v in self.system.spec.variables), self.lemmas)
        wanted = orders(self.system.spec, self.rich, self.lemmas)
        return find_lemmas(self.system, self.rich, wanted, Guide(known))

    def _guide(self, *, skip: bool) -> Guide:
        if self.local:
            return Guide()
        return Guide(self.subject.known(self.key, likely=skip), self.subject.shared.failed, skip)

    @cached_property
    def falling(self) -> Falls:
        """What can take a counter of this slice below 0, where no lemma forbids it."""
        if self.local:
            return falling(self.system)
        names = {v.name for v in self.system.spec.variables}
        return frozenset((a, v) for a, v in self.subject.falling if a in self.system.transitions and v in names)

    @cached_property
    def unrolling(self) -> Unrolling:
        """The frames, shared by every search in this slice."""
        return Unrolling(self.system)


@dataclass
class Subject:
    """One spec with its random runs and its slices."""

    protocol: Protocol
    limits: Limits
    tally: Tally
    walk_whole: bool = True
    """Whether the random runs are of the whole spec, for all slices; else of each slice, where there is only one."""
    shared: Shared = field(default_factory=Shared)
    slices: dict[frozenset[str], Slice] = field(default_factory=dict)
    locals: dict[frozenset[str], Slice] = field(default_factory=dict)

    @cached_property
    def spec(self) -> Spec:
        """The whole state machine."""
        return self.shared.actions.spec(self.protocol.spec())

    @cached_property
    def cones(self) -> Cones:
        """The cones of influence in it."""
        return Cones(self.spec, self.shared.actions)

    @cached_property
    def falling(self) -> Falls:
        """What can take a counter below 0, where no lemma forbids it; a slice has the same updates."""
        known = self.shared.falling
        fresh = replace(self.spec, actions=tuple(a for a in self.spec.actions if id(a) not in known))
        found = falling(System(fresh, self.limits, self.tally))
        for action in fresh.actions:
            known[id(action)] = frozenset(counter for name, counter in found if name == action.name)
        return frozenset((a.name, counter) for a in self.spec.actions for counter in known[id(a)])

    @cached_property
    def interpreter(self) -> Interpreter:
        """The whole spec without a solver."""
        return Interpreter(self.spec, self.shared.compiler)

    @cached_property
    def walks(self) -> Walks:
        """Random runs of the whole spec."""
        return Walks(self.interpreter, self.limits)

    def slice(self, *terms: Term, steps: AbstractSet[str] = frozenset()) -> Slice:
        """The slice that these terms need, with the actions in `steps` kept even where they change nothing in it."""
        spec = self.cones.of(*terms, steps=steps)
        key = frozenset(v.name for v in spec.variables) | {f"action {name}" for name in steps}
        if key not in self.slices:
            self.slices[key] = Slice(System(spec, self.limits, self.tally), self, key)
        return self.slices[key]

    def local(self, *terms: Term) -> Slice | None:
        """The little of the spec in which these terms may be proved already; None where it would not be little."""
        spec = self.cones.local(*terms)
        if spec is None:
            return None
        key = frozenset(v.name for v in spec.variables) | {f"exact {unit}" for unit in spec.fair_units}
        if key not in self.locals:
            self.locals[key] = Slice(System(spec, self.limits, self.tally), self, key, local=True)
        return self.locals[key]

    def known(self, key: frozenset[str], *, likely: bool) -> Known:
        """The lemmas of the largest slice so far that lies inside this one; all of them, or the likely ones."""
        name = "likely" if likely else "lemmas"
        inside = [k for k, piece in self.slices.items() if k < key and name in vars(piece)]
        largest = max(inside, key=len, default=None)
        return Known() if largest is None else Known(largest, getattr(self.slices[largest], name))
