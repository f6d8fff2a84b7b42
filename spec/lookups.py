"""Lookups in the storage tier, as arrivals, retracts, admissions and aborts begin and end them."""

from __future__ import annotations

from spec.draft import Draft
from spec.ledger import Ledger
from spec.steps import Steps
from spec.terms import BoolTerm, NatTerm, conj, ite, least, minus, nat, total


class Lookups(Steps):
    """What the primitives do with the storage tier."""

    def lookup_stages(self) -> list[tuple[Ledger, str]]:
        """Where what a waiting request has looked up can be: in flight, or in a ledger that goes on from there."""
        ledgers = [x for x in self.ledgers.values() if x.name == "prefetch" or x.facts.created_by == "prefetch"]
        return [(ledger, stage) for ledger in ledgers for stage in ledger.facts.stages]

    def release_aborted(self, s: Draft, ledger: Ledger, stage: str, count: NatTerm) -> None:
        """`release_aborted_request`: these entries go; their threads may still be in the storage call."""
        reads = ledger.name == "prefetch" and stage in ("query", "loading")
        ledger.drop(s, stage, count)
        if reads:
            s.prefetch_orphan += count
        for concern in self.concerns:
            concern.aborted(s, ledger, count, reads=reads)

    def end_lookup(self, s: Draft, waits: BoolTerm) -> None:
        """What one aborted request had, if it waits: its lookup or its retry, which no request has both of.

        Each belongs to a request that waits; where there are as many as these, the aborted one has one.
        """
        if not self.storage:
            return
        counts = [s[ledger.counter(stage)] for ledger, stage in self.lookup_stages()]
        held = total(*counts, s.prefetch_retry)
        low = ite(conj(waits, held > 0, held >= s.waiting), nat(1), nat(0))
        # 0: none, i: the i-th of all, the retries last.
        place = s.choose("lookup", low=low, high=ite(waits, held, nat(0)), meaning="what the aborted request looked up")
        ahead: NatTerm = nat(0)
        for (ledger, stage), count in zip(self.lookup_stages(), counts, strict=True):
            here = conj(place > ahead, place <= ahead + count)
            self.release_aborted(s, ledger, stage, ite(here, nat(1), nat(0)))
            ahead += count
        s.prefetch_retry = ite(place > ahead, s.prefetch_retry - 1, s.prefetch_retry)

    def queue_one(self, s: Draft) -> None:
        """`_add_request_to_queue`: one request joins the queue; a long uncached part is looked up in storage."""
        if self.storage:
            least_tokens = self.profile.prefetch.threshold_tokens
            tokens = s.choose("tokens", low=1, witness=max(1, least_tokens), meaning="uncached tokens of the request")
            self.look_up(s, ite(tokens >= least_tokens, nat(1), nat(0)), nat(1))
        if self.mine:
            follows = self.mine.arrive(s)
            for concern in self.concerns:
                concern.followed(s, follows)
        self.start(s, "arrive", nat(1))
        s.waiting += 1
        s.arrived += 1

    def look_up(self, s: Draft, count: NatTerm, queued: NatTerm) -> None:
        """`prefetch_from_storage`: `count` lookups start, of `queued` requests, each of which may be retried."""
        count = self.stored(s, count)
        s.lookups += count
        if attempts := self.profile.prefetch.retry_attempts:
            s.prefetch_budget += attempts * queued
        self.send(s, count)

    def send(self, s: Draft, count: NatTerm) -> None:
        """`count` lookups are handed to the threads of the storage tier."""
        self.begin(s, self.ledgers["prefetch"], count)
        for concern in self.concerns:
            concern.looked_up(s, count)

    def may_retry(self, s: Draft, revoked: NatTerm) -> None:
        """`storage_prefetch_retries`: some of what was revoked is kept to be looked up again."""
        s.prefetch_retry += s.choose("kept", high=revoked, witness=revoked, meaning="revoked lookups to retry")

    def look_up_lost(self, s: Draft, able: NatTerm) -> tuple[NatTerm, NatTerm]:
        """`_prefetch_after_device_hit_loss`: a request whose prefix a flush took is looked up again, not admitted.

        Of `able` requests, less those that are looked up now. Returns how many have lost one, and of how many too
        little is left to send a lookup.
        """
        if not self.loses_prefixes:
            return nat(0), nat(0)
        high = ite(s.prefix_lost, minus(able, self.ledgers["prefetch"].entries(s)), nat(0))
        lost = s.choose("lost", high=high, meaning="waiting requests whose prefix is gone")
        most = least(lost, s.prefetch_budget) if self.profile.prefetch.retry_attempts else lost
        sent = self.stored(s, s.choose("lost_sent", high=most, witness=most, meaning="of these, looked up again"))
        if self.profile.prefetch.retry_attempts:
            s.prefetch_budget -= sent
        s.lookups += sent
        self.send(s, sent)
        return lost, lost - sent
