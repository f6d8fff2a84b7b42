"""Who owns pages: requests, in units of one request; and entries in flight that copy pages while others free them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from spec.concern import Concern, Part, Rule
from spec.draft import Draft
from spec.terms import BoolTerm, NatTerm, conj, disj, least, minus, nat, neg
from spec.tla import Always, Sort, Variable

if TYPE_CHECKING:
    from spec.facts import Accounts, Eviction
    from spec.steps import Steps

CONSERVED = "pages-conserved"


class Accounting(Concern):
    """The pages that running requests own: `kv_used`, as the allocator counts them.

    In an overlap loop each launch allocates a slot for the next token of each request. `kv_fresh` counts the requests
    of the last prefill, `kv_ended` those that have ended and stand in the batch, `kv_twice` the frees of free pages.
    """

    def __init__(self, steps: Steps, facts: Accounts) -> None:
        """`facts` say what a retract takes back."""
        self.steps = steps
        self.facts = facts
        self.ahead = steps.loop.result_queue

    def variables(self) -> Iterable[Variable]:
        """Four counters."""
        return [Variable(name, Sort.NAT, ghost=True) for name in ("kv_used", "kv_fresh", "kv_ended", "kv_twice")]

    def claims(self, property_id: str) -> Iterable[Part]:
        """What the allocator counts is what the requests own; nothing is freed twice."""
        if property_id == CONSERVED:
            s = self.steps.now
            owned = s.running + s.running if self.ahead else s.running
            yield Part(Always(s.kv_used == owned), "owned")
            yield Part(Always(s.kv_twice == 0), "freed twice")

    def admitted(self, s: Draft, count: NatTerm) -> None:
        """Each gets its pages; the batch is filtered, and the last prefill is merged into it."""
        s.kv_used += count
        s.kv_fresh = count
        s.kv_ended = 0

    def launched(self, s: Draft) -> None:
        """The slots ahead are used up, and allocated anew for all that run."""
        if self.ahead:
            s.kv_used = s.running + s.running

    def finished(self, s: Draft, count: NatTerm) -> None:
        """They give back what they own, and stand in the batch until it is filtered."""
        s.kv_used = minus(s.kv_used, count + count if self.ahead else count)
        s.kv_ended += count

    def retracted(self, s: Draft, count: NatTerm) -> None:
        """What the handler takes back, of whom."""
        missed = nat(0) if "fresh" in self.facts.covers else least(s.kv_fresh, count)
        covered = count - missed
        slots = 2 if self.ahead and "ahead" in self.facts.frees else 1
        s.kv_used = minus(s.kv_used, slots * covered)
        if not self.facts.skips_finished:
            s.kv_twice += s.kv_ended
        s.kv_ended = 0
        s.kv_fresh = 0


class Evictions(Concern):
    """Pages that are freed under an entry that copies them: `freed_in_use`."""

    def __init__(self, steps: Steps, facts: Eviction) -> None:
        """`facts` say in which tiers pages are evicted."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """One flag."""
        return [Variable("freed_in_use", Sort.BOOL, ghost=True)]

    def claims(self, property_id: str) -> Iterable[Part]:
        """It never happens."""
        if property_id == CONSERVED:
            yield Part(Always(neg(self.steps.now.freed_in_use)), "in use")

    def rules(self) -> Iterable[Rule]:
        """An eviction in each tier that has one."""
        for tier in self.facts.tiers:
            yield Rule(f"Evict({tier})", "scheduler", self.facts.source, partial(self.Evict, tier=tier))

    def Evict(self, s: Draft, tier: str) -> None:
        """For want of room some page that nothing locks is freed."""
        s.when(s[f"has_{tier}"])
        self._free(s, tier, s[f"has_{tier}"])

    def retracted(self, s: Draft, count: NatTerm) -> None:
        """What the requests own is freed."""
        self._free(s, "request", count > 0)

    def _free(self, s: Draft, tier: str, when: BoolTerm) -> None:
        ledgers = self.steps.ledgers.values()
        bare = [x for x in ledgers if tier in x.facts.touches and tier not in x.facts.locks]
        s.freed_in_use = disj(s.freed_in_use, conj(when, disj(*(x.entries(s) > 0 for x in bare))))


class HeldRequests(Concern):
    """Requests that wait with their KV: `has_held`, and `stale_held` where older weights computed it."""

    def __init__(self, steps: Steps) -> None:
        """A retract is what lets requests wait so."""
        self.steps = steps

    def variables(self) -> Iterable[Variable]:
        """Two flags."""
        return [Variable("has_held", Sort.BOOL), Variable("stale_held", Sort.BOOL, ghost=True)]

    def requeued(self, s: Draft, count: NatTerm) -> None:
        """They keep it, of whatever weights."""
        s.has_held = disj(s.has_held, count > 0)
        s.stale_held = disj(s.stale_held, conj(count > 0, s.stale_running))

    def loaded(self, s: Draft) -> None:
        """What they hold is older now."""
        s.stale_held = disj(s.stale_held, s.has_held)

    def admitted(self, s: Draft, count: NatTerm) -> None:
        """They go on from it."""
        s.stale_running = disj(s.stale_running, conj(count > 0, s.stale_held))
        s.has_held = conj(s.has_held, s.waiting > 0)
        s.stale_held = conj(s.stale_held, s.waiting > 0)
