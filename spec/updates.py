"""Weight updates: when they may begin, what their flush does, and how they are answered."""

from __future__ import annotations

from collections.abc import Iterable

from spec.concern import Rule
from spec.draft import Draft
from spec.primitives import Primitives
from spec.terms import BoolTerm, conj, ite, neg, total
from spec.tla import Fairness, Sort, Variable

UPDATE = "Update"
_ASKED = ("pause", "requests", "one-shot")


class Updates(Primitives):
    """The part of the protocol that writes weights."""

    def update_variables(self) -> Iterable[Variable]:
        """`update_blind`: the update read the flag before the pause had reached it."""
        if self.profile.update.lock == "one-shot":
            yield Variable("update_blind", Sort.BOOL)

    def update_rules(self) -> Iterable[Rule]:
        """What a trainer sends and a scheduler answers."""
        facts = self.profile.update
        if facts.flush == "waits":
            yield Rule("UpdateAsked", "trainer", facts.source, self.UpdateAsked)
            yield Rule("UpdateAnswered", "scheduler", facts.source, self.UpdateAnswered, Fairness.WEAK)
        elif facts.lock in _ASKED:
            yield Rule("UpdateAsked", "trainer", facts.source, self.UpdateLocks)
            yield Rule("UpdateFlushed", "scheduler", facts.source, self.UpdateFlushed, Fairness.WEAK, UPDATE)
            yield Rule("UpdateRefused", "scheduler", facts.source, self.UpdateRefused, Fairness.WEAK, UPDATE)
        else:
            # A second update is a new request of the trainer: help, as seen from the first.
            yield Rule("UpdateFlushed", "trainer", facts.source, self.UpdateFlushed, help=True)
            yield Rule("UpdateRefused", "trainer", facts.source, self.UpdateRefused)
        if facts.may_skip_flush:
            yield Rule("UpdateUnflushed", "trainer", facts.source, self.UpdateUnflushed)

    def update_waits(self) -> bool:
        """Whether an update is asked first and answered later."""
        return self.profile.update.flush == "waits" or self.profile.update.lock in _ASKED

    def can_update(self, s: Draft) -> BoolTerm:
        """When an update reaches the scheduler: after the pause, or once no request is left (the writer lock)."""
        nobody = total(s.waiting, s.running, s.late) == 0
        lock = self.profile.update.lock
        if lock in _ASKED:
            free = nobody if lock == "requests" else s.gate_closed
            ready = conj(s.update_waiting, ite(s.update_blind, nobody, free) if lock == "one-shot" else free)
        elif lock == "abort":  # what waited has left at once, what runs is only marked
            ready = conj(s.gate_closed, total(s.waiting, s.late) == 0)
        else:
            ready = s.paused if self.mode.sets_flag else conj(s.gate_closed, nobody)
        return conj(ready, *self.writable(s))

    def resumable(self, s: Draft) -> list[BoolTerm]:
        """A continue waits for an update that holds the pause (`is_pause_cond`), not for one that waits for readers."""
        lock = self.profile.update.lock
        if lock == "requests":
            return []
        return [neg(conj(s.update_waiting, neg(s.update_blind)) if lock == "one-shot" else s.update_waiting)]

    def readable(self, s: Draft) -> list[BoolTerm]:
        """A writer that waits for the readers goes before new ones (`RWLock`)."""
        lock = self.profile.update.lock
        if lock == "one-shot":
            return [neg(conj(s.update_waiting, s.update_blind))]
        return [neg(s.update_waiting)] if lock == "requests" else []

    def writable(self, s: Draft) -> Iterable[BoolTerm]:
        """What the handler of an update waits for before it writes weights."""
        if self.profile.update.waits_for_forward and "forward_busy" in s:
            yield neg(s.forward_busy)
        yield from (part for concern in self.concerns for part in concern.may_update(s))

    def UpdateFlushed(self, s: Draft) -> None:
        """An update with `flush_cache=True` loads the weights and its one flush is granted."""
        s.when(self.can_update(s), self.gate(s, "flush"))
        self.load(s)
        self.reset(s)
        self.answer_update(s)

    def UpdateRefused(self, s: Draft) -> None:
        """An update with `flush_cache=True` loads the weights, then its one flush is refused: `success=False`."""
        s.when(self.can_update(s), neg(self.gate(s, "flush")))
        self.load(s)
        s.unflushed = True
        if self.profile.update.lock in _ASKED:
            s.update_waiting = False
        if self.profile.update.refused == "asserts":
            s.raised = True
        if self.profile.update.refused == "succeeds":
            self.answer_update(s)
        else:
            s.update_refused = True
        self.want_flush(s)

    def UpdateUnflushed(self, s: Draft) -> None:
        """An update with `flush_cache=False`: the caller leaves the caches as they are."""
        s.when(self.can_update(s))
        self.load(s)
        self.answer_update(s)

    def UpdateAsked(self, s: Draft) -> None:
        """An update arrives and waits for the gate (a profile whose update waits)."""
        s.when(self.can_update(s), neg(s.update_waiting))
        s.update_waiting = True

    def UpdateLocks(self, s: Draft) -> None:
        """An update arrives in the tokenizer and waits for its lock; which one, it decides by one look at the flag."""
        s.when(s.gate_closed, neg(s.update_waiting))
        s.update_waiting = True
        if self.profile.update.lock == "one-shot":
            sees = s.choose("sees", high=1, meaning="whether the pause has reached this worker")
            s.update_blind = sees == 0

    def UpdateAnswered(self, s: Draft) -> None:
        """The waiting update finds the gate open: weights and caches change together."""
        s.when(s.update_waiting, self.gate(s, "flush"), *self.writable(s))
        self.load(s)
        self.reset(s)
        self.answer_update(s)
