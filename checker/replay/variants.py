"""The protocol as a replay asks it: of one rank, with no prefill in chunks; and as it is with a known difference."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from checker.replay.differences import CHUNKS, WAITS
from spec.draft import Draft
from spec.facts import ACTORS, Move
from spec.ledger import Ledger
from spec.protocol import Protocol
from spec.terms import BoolTerm, NatTerm, ite, nat


class _Whole(Protocol):
    """A prefill is one batch: where others have a result in flight, at least one who runs is theirs."""

    def runs(self, s: Draft) -> BoolTerm:
        """Somebody runs in the micro-batch whose turn it is."""
        return s.running > ite(s.result_pending, nat(1), nat(0)) if self.loop.micro_batches else super().runs(s)


class _Together(Protocol):
    """One rank of several, of which a reap takes what all have (`_all_reduce`): of its own any number, from the first.

    Only what a device or a storage has moved may wait: what a rank does by itself it does as ever.
    """

    def move(self, s: Draft, ledger: Ledger, move: Move) -> NatTerm:
        """One move, of all entries of a stage but those that wait."""
        landed = any(m.to == move.from_ and m.by in ACTORS for m in ledger.facts.moves)
        if move.by != "reap" or not landed:
            return super().move(s, ledger, move)
        counter = ledger.counter(move.from_)
        waits = s.choose(f"{counter}_waits", high=s[counter], meaning="entries that have not landed on every rank")
        s[counter] -= waits
        moved = super().move(s, ledger, move)
        s[counter] += waits
        return moved


class _TogetherWhole(_Together, _Whole):
    """Both."""


def protocol_with(differences: AbstractSet[str]) -> type[Protocol]:
    """The protocol of a trace, where these differences are taken for granted."""
    if WAITS in differences:
        return _Together if CHUNKS in differences else _TogetherWhole
    return Protocol if CHUNKS in differences else _Whole
