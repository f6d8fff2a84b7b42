"""Whether a mutant is the same spec after all: proved, and what it follows from is the reason.

A mutant is equivalent where in every state of an inductive invariant each action takes the same steps as without the
mutation, and each gate says the same. Steps that change nothing are none, but for actions of which some claim speaks
even then. The invariant is found for the whole spec and checked like every lemma of a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import z3

from checker.export.chosen import breakable
from checker.proof.lemmas import find_lemmas
from checker.proof.safety import inductive
from checker.proof.system import System
from checker.spoken import Spoken
from checker.subject import Subject
from spec.terms import BoolTerm, conj, disj
from spec.tla import Action, Claim, EachStep, Spec


@dataclass
class Same:
    """One spec, and whether others are the same. `claims` are all that are judged of it."""

    subject: Subject
    claims: Sequence[Claim]
    _spoken: Spoken = field(default_factory=Spoken)

    def reason(self, other: Spec) -> str | None:
        """The lemmas from which it follows that `other` is the same spec; None where that is not proved."""
        spec = self.subject.spec
        # A loop without one of its steps may have an action less, or a gate.
        if _names(spec) != _names(other):
            return None
        pairs = [(a, b) for a, b in zip(spec.actions, other.actions, strict=True) if a is not b]
        if any(a.fairness is not b.fairness for a, b in pairs):
            return None
        needed: dict[str, None] = {}
        for difference in self._differences(pairs, other):
            core = self._core(difference)
            if core is None:
                return None
            needed |= dict.fromkeys(core)
        return "; ".join(needed) or "the same in every state"

    def _differences(self, pairs: Iterable[tuple[Action, Action]], other: Spec) -> Iterable[BoolTerm]:
        spec = self.subject.spec
        changes = disj(*(v.next != v.now for v in spec.variables))
        for a, b in pairs:
            steps = spec.step(a) != other.step(b)
            yield steps if a.name in self._spoken_of else conj(steps, changes)
        yield from (term != other.definitions[name] for name, term in spec.definitions.items())

    def _core(self, difference: BoolTerm) -> list[str] | None:
        self._solver.push()
        self._solver.add(difference)
        answer = self._solver.check(*self._marks.values())
        core = {str(mark) for mark in self._solver.unsat_core()} if answer == z3.unsat else None
        self._solver.pop()
        return None if core is None else [text for text, mark in self._marks.items() if str(mark) in core]

    @cached_property
    def _spoken_of(self) -> frozenset[str]:
        """The actions of which some claim speaks even where they change nothing."""
        spec = self.subject.spec
        every = frozenset(action.name for action in spec.actions)
        partly = [c for c in self.claims if isinstance(c, EachStep) and c.but]
        return frozenset[str]().union(*(every - c.but for c in partly if breakable(spec, c)))

    @cached_property
    def _lemmas(self) -> Sequence[BoolTerm]:
        system = System(self.subject.spec, self.subject.limits, self.subject.tally)
        lemmas = find_lemmas(system, self.subject.walks.rich)
        return lemmas if inductive(system, conj(*lemmas), ()) else ()

    @cached_property
    def _marks(self) -> dict[str, BoolTerm]:
        return {self._spoken.text(lemma): z3.Bool(f"lemma:{n}") for n, lemma in enumerate(self._lemmas)}

    @cached_property
    def _solver(self) -> z3.Solver:
        solver = z3.Solver()
        solver.set("random_seed", self.subject.limits.seed)
        solver.set("core.minimize", True)  # noqa: FBT003 - Z3's own signature
        solver.add(self.subject.spec.naturals)
        texts = {self._spoken.text(lemma): lemma for lemma in self._lemmas}
        for text, mark in self._marks.items():
            solver.add(z3.Implies(mark, texts[text]))
        return solver


def _names(spec: Spec) -> tuple[Sequence[str], Sequence[str]]:
    """Of its actions, and of its gates."""
    return [action.name for action in spec.actions], [*spec.definitions]
