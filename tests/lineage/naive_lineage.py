"""The lineage of every single token, as the set of all that went into it: slow, and with nothing to be clever about."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

FOREIGN = "?"
"""In a token's set: something of which nothing is known."""

Token = frozenset


@dataclass
class Page:
    """What a page holds, and what brought it to where it is."""

    tokens: list[Token] = field(default_factory=list)
    tier: str = "device"

    @property
    def everything(self) -> Token:
        return Token().union(*self.tokens) if self.tokens else Token({FOREIGN})


@dataclass
class Row:
    """A request: its pages in their order, and how many tokens it holds."""

    request: int
    pages: list[int] = field(default_factory=list)
    length: int = 0
    counted_at: tuple[int, int] | None = None
    worst: int = 0
    """The kind of what the row holds, at `counted_at`."""


KINDS = ("current", "unknown", "mixed", "stale")


class Naive:
    """One engine with a pool of pages, a host pool and a storage."""

    def __init__(self, size: int, keys: int) -> None:
        self.size, self.most = size, keys
        self.epoch = self.floor = 0
        self.device: dict[int, Page] = {}
        self.host: dict[int, Page] = {}
        self.storage: dict[str, list[Token]] = {}
        self.remembered: list[str] = []

    def kind(self, token: Token) -> int:
        epochs = [e for e in token if e != FOREIGN]
        if any(e < self.floor for e in epochs):
            return 3
        if any(e < self.epoch for e in epochs):
            return 2
        return 1 if FOREIGN in token else 0

    def held(self, row: Row) -> list[tuple[Page, int]]:
        """The pages of a row, with the tokens that it holds of each."""
        return [
            (self.device[page], min(self.size, row.length - i * self.size))
            for i, page in enumerate(row.pages)
            if row.length > i * self.size
        ]

    def everything(self, row: Row) -> Token:
        return Token().union(*(page.everything for page, _ in self.held(row)))

    def read(self, row: Row, *, new: bool) -> Counter[tuple[str, str]]:
        """What is counted when a row is read: all of it where it is new, else what is worse than it was."""
        counts: Counter[tuple[str, str]] = Counter()
        for page, number in self.held(row):
            kind = self.kind(page.everything)
            if new or kind > row.worst:
                counts[page.tier, KINDS[kind]] += number
        row.worst = self.kind(self.everything(row))
        row.counted_at = (self.epoch, self.floor)
        return counts

    def compute(self, row: Row, number: int) -> None:
        """The next tokens; the row has the pages for them."""
        for _ in range(number):
            token = Token({self.epoch}) | self.everything(row)
            page = row.pages[row.length // self.size]
            if row.length % self.size == 0:
                self.device[page] = Page()
            self.device[page].tokens.append(token)
            row.length += 1

    def remember(self, key: str) -> None:
        self.forget(key)
        self.remembered.append(key)
        del self.remembered[: -self.most]

    def forget(self, key: str) -> None:
        if key in self.remembered:
            self.remembered.remove(key)
