"""Caches of what weights computed, beside those of the tree: what fills them, what reads them, what a flush leaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spec.concern import Concern, Part
from spec.draft import Draft
from spec.terms import BoolTerm, NatTerm, conj, disj, implies, neg
from spec.tla import EachStep, Sort, Variable

if TYPE_CHECKING:
    from spec.facts_controls import Tier
    from spec.steps import Steps


class DerivedCache(Concern):
    """One such cache: `has_NAME`, and `stale_NAME` where older weights computed what it holds.

    What it holds is read where a request is admitted, so that the request runs on it.
    """

    def __init__(self, steps: Steps, name: str, facts: Tier) -> None:
        """`facts` say what fills it, and whether a flush clears it."""
        self.steps = steps
        self.name = name
        self.facts = facts
        self.has, self.stale = f"has_{name}", f"stale_{name}"

    def variables(self) -> Iterable[Variable]:
        """Two flags."""
        return [Variable(self.has, Sort.BOOL), Variable(self.stale, Sort.BOOL, ghost=True)]

    def claims(self, property_id: str) -> Iterable[Part]:
        """A granted flush leaves nothing in it, where a flush clears it at all."""
        if property_id == "flush-tells-truth" and self.facts.flushed:
            flushes, after = self.steps.variables["flushes"], self.steps.variables[self.has].next
            yield Part(EachStep(implies(flushes.next > flushes.now, neg(after))), self.name)

    def admitted(self, s: Draft, count: NatTerm) -> None:
        """They read what is there; what they compute anew may be kept."""
        s.stale_running = disj(s.stale_running, conj(count > 0, s[self.stale]))
        if "admit" in self.facts.filled_by:
            s[self.has] = disj(s[self.has], count > 0)

    def finished(self, s: Draft, count: NatTerm) -> None:
        """What they computed may be kept, of whatever weights."""
        if "finish" in self.facts.filled_by:
            self._fill(s, count > 0)

    def retracted(self, s: Draft, count: NatTerm) -> None:
        """They give up their rows, and what they computed stays here."""
        if "retract" in self.facts.filled_by:
            self._fill(s, count > 0)

    def loaded(self, s: Draft) -> None:
        """What it holds is older now, and is found under its key all the same."""
        if not self.facts.keyed_by_epoch:
            s[self.stale] = disj(s[self.stale], s[self.has])

    def flushed(self, s: Draft) -> None:
        """It is cleared with the tree, or nobody thinks of it."""
        if self.facts.flushed:
            s[self.has] = False
            s[self.stale] = False

    def _fill(self, s: Draft, some: BoolTerm) -> None:
        # In the pass in which the last of them ends nothing that runs is old any more: what was counts.
        old = disj(s.stale_running, s.before("stale_running"))
        s[self.has] = disj(s[self.has], some)
        s[self.stale] = disj(s[self.stale], conj(some, old))
