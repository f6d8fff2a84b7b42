"""One spec in one configuration, its slices, and the random runs that both are judged by before a solver is asked."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from checker.proof.interpreter import Interpreter, Step
from checker.proof.lemmas import Known, Samples, find_lemmas
from checker.proof.system import Falls, Limits, System, Tally, check_naturals, falling
from checker.proof.unroll import Unrolling
from spec.cone import Cones
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term
from spec.tla import Spec

_MORE = 4
"""How many times as many random runs are made where the first ones leave a claim open."""


@dataclass
class Slice:
    """The part of a spec that can influence some terms, ready for the solver. Lemmas are found when first wanted."""

    system: System
    subject: Subject
    key: frozenset[str]

    @cached_property
    def walker(self) -> Interpreter:
        """What the random runs are runs of: the whole spec, or this slice where there is no other."""
        return self.subject.interpreter if self.subject.walk_whole else self.interpreter

    @cached_property
    def interpreter(self) -> Interpreter:
        """This slice without a solver."""
        return Interpreter(self.system.spec, self.subject.interpreter)

    @cached_property
    def samples(self) -> Samples:
        """Random runs."""
        return self.subject.samples if self.subject.walk_whole else walk(self.walker, self.subject.limits)

    @cached_property
    def more_runs(self) -> Sequence[tuple[Step, ...]]:
        """Many more random runs."""
        if self.subject.walk_whole:
            return self.subject.more_runs
        return more_runs(self.walker, self.subject.limits)

    @cached_property
    def lemmas(self) -> list[BoolTerm]:
        """Inductive lemmas; with them it is certain that counters stay natural."""
        found = find_lemmas(self.system, self.samples, known=self.subject.known(self.key))
        check_naturals(self.system, found, self.falling)
        return found

    @cached_property
    def falling(self) -> Falls:
        """What can take a counter of this slice below 0, where no lemma forbids it."""
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
    slices: dict[frozenset[str], Slice] = field(default_factory=dict)

    @cached_property
    def spec(self) -> Spec:
        """The whole state machine."""
        return self.protocol.spec()

    @cached_property
    def cones(self) -> Cones:
        """The cones of influence in it."""
        return Cones(self.spec)

    @cached_property
    def falling(self) -> Falls:
        """What can take a counter below 0, where no lemma forbids it; a slice has the same updates."""
        return falling(System(self.spec, self.limits, self.tally))

    @cached_property
    def interpreter(self) -> Interpreter:
        """The whole spec without a solver."""
        return Interpreter(self.spec)

    @cached_property
    def samples(self) -> Samples:
        """Random runs of the whole spec."""
        return walk(self.interpreter, self.limits)

    @cached_property
    def more_runs(self) -> Sequence[tuple[Step, ...]]:
        """Many more random runs of the whole spec."""
        return more_runs(self.interpreter, self.limits)

    def slice(self, *terms: Term, steps: AbstractSet[str] = frozenset()) -> Slice:
        """The slice that these terms need, with the actions in `steps` kept even where they change nothing in it."""
        spec = self.cones.of(*terms, steps=steps)
        key = frozenset(v.name for v in spec.variables) | {f"action {name}" for name in steps}
        if key not in self.slices:
            self.slices[key] = Slice(System(spec, self.limits, self.tally), self, key)
        return self.slices[key]

    def known(self, key: frozenset[str]) -> Known | None:
        """The lemmas of the largest slice so far that lies inside this one."""
        inside = [k for k, piece in self.slices.items() if k < key and "lemmas" in vars(piece)]
        largest = max(inside, key=len, default=None)
        return None if largest is None else Known(largest, self.slices[largest].lemmas)


def more_runs(interpreter: Interpreter, limits: Limits) -> Sequence[tuple[Step, ...]]:
    """Other random runs, several times as many."""
    return interpreter.walks(_MORE * limits.walks, limits.walk_length, limits.seed + 1)


def walk(interpreter: Interpreter, limits: Limits) -> Samples:
    """Random runs, as many and as long as the limits say."""
    return Samples(interpreter.initial(), interpreter.walks(limits.walks, limits.walk_length, limits.seed))
