"""What is known of one KV page in one int32, and what a batch's requests read, by tier and by kind.

An epoch counts loads of weights. The epoch of a page is the least of the epoch in which it was computed and those of
all pages that it attended to; so a page that new weights compute over an old prefix is old too. Works without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

TIERS = ("device", "host", "storage")
"""What brought a page to where it is read: `device`, a forward of this engine; the others, a copy from there."""
DEVICE, HOST, STORAGE = range(3)

KINDS = ("current", "unknown", "mixed", "stale")
"""From good to bad. `current`: of the weights now. `unknown`: of weights that this engine has not seen. `mixed`: some
of it is older than the weights, but nobody asked for a flush since: mixed by choice. `stale`: some of it is older than
a flush that was asked for."""
CURRENT, UNKNOWN, MIXED, STALE = range(4)

PLACES = tuple(product(TIERS, KINDS))
"""Tier and kind of each of the numbers that are kept for one request."""

# A word is a value and, in the low bits, a tier. A value is twice the epoch, plus one where nothing unknown went into
# the page: so the least of several values is the value of what attends to them all.
TIER_BITS = 2
TIER_MASK = (1 << TIER_BITS) - 1
UNSEEN_VALUE = (1 << 29) - 2
"""The value of a page of which nothing is known, not even that it is old."""
UNSEEN = UNSEEN_VALUE << TIER_BITS
"""The word of such a page."""
LAST_EPOCH = UNSEEN_VALUE // 2 - 2

_NAMED = 4
"""How many requests of a batch a text tells of, by their place in it."""


def value_of(epoch: int) -> int:
    """The value of what weights of this epoch computed, and what attends to nothing older."""
    return 2 * epoch + 1


def word_of(value: int, tier: int) -> int:
    """A value and a tier in one word."""
    return value << TIER_BITS | tier


def told(tokens: Sequence[Sequence[int]], kind: int) -> str:
    """Which requests of a batch read how many tokens of this kind, by tier; '' where none did.

    `tokens`: for each request one number for each of PLACES. Requests are named by their place in the batch only.
    """
    parts = []
    for place, numbers in enumerate(tokens, start=1):
        found = [
            f"{number} from {PLACES[i][0]}" for i, number in enumerate(numbers) if number and i % len(KINDS) == kind
        ]
        if found:
            parts.append(f"request {place} of {len(tokens)}: {', '.join(found)}")
    more = f"; and {len(parts) - _NAMED} more requests" if len(parts) > _NAMED else ""
    return "; ".join(parts[:_NAMED]) + more


@dataclass(frozen=True)
class Reading:
    """What the requests of one batch read of KV that was there before, in tokens: each token once for each request."""

    tokens: Sequence[Sequence[int]]
    """For each request, one number for each of PLACES."""

    def total(self) -> dict[tuple[str, str], int]:
        """(Tier, kind) to tokens, over all requests; zeros are left out."""
        sums = map(sum, zip(*self.tokens, strict=True))
        return {place: number for place, number in zip(PLACES, sums, strict=False) if number}

    def told(self, kind: int) -> str:
        """Which requests read tokens of this kind, and from where; '' where none did."""
        return told(self.tokens, kind)
