"""What a census is taken of, what it finds, and how one word per page becomes counts.

Both implementations (`reference`, plain torch; `kernel`, Triton) fill one word per page and count how many pages have
each word; all that follows from those counts is worked out here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, NamedTuple

from engine_hooks.errors import CensusInputError

# Torch's; this module works without torch.
Tensor = Any

SAMPLED = 8
"""How many offending pages of each kind are named."""


class Word(IntFlag):
    """What is known of one page. The `_TWICE` bits are set with the second holder of the kind, and stay."""

    FREE = 1
    FREE_TWICE = 2
    CACHED = 4
    CACHED_TWICE = 8
    OWNED = 16
    OWNED_TWICE = 32
    SHARED = 64
    """A row reads the page as its prefix, which belongs to the tree."""


WORDS = 128
"""How many words there are."""

CLASSES = ("free", "cached", "owned", "unaccounted")
"""The classes of pages. A page that several hold is of the last of the first three that hold it."""


class Owner(NamedTuple):
    """One row of `req_to_token` that a request or a session holds. Lengths are in tokens."""

    row: int
    shared: int
    """The row's prefix `[0, shared)` belongs to the tree."""
    end: int
    """The row itself owns `[shared, end)`, whose last page may be filled in part."""


@dataclass(frozen=True)
class Holdings:
    """Who holds the pages `1..pages` of a pool. Page 0 is the engine's own, for padding: nobody may hold it.

    All tensors lie on one device. Of the slots of one page, which are `page * page_size + i`, only the first of each
    run is read.
    """

    pages: int
    page_size: int
    """Tokens a page."""
    free: Sequence[Tensor]
    """Parts of the free list: page ids, int64 `[n]` each."""
    cached: Tensor
    """Slots that the tree holds, in whole pages: int64 `[m * page_size]`."""
    rows: Tensor
    """`req_to_token`: slots by row and position, int32 `[rows, width]`."""
    owners: Sequence[Owner]

    def __post_init__(self) -> None:
        """Raises CensusInputError where a row cannot be read; what its slots say is never an error."""
        if self.pages < 0 or self.page_size < 1:
            raise CensusInputError(
                f"a pool of {self.pages} pages of {self.page_size} tokens; valid: 0 pages or more of 1 token or more"
            )
        height, width = self.rows.shape
        for owner in self.owners:
            if not (0 <= owner.row < height and 0 <= owner.shared <= width and 0 <= owner.end <= width):
                raise CensusInputError(
                    f"{owner} is outside req_to_token; valid: rows 0 to {height - 1}, lengths 0 to {width}"
                )


class Kind(NamedTuple):
    """One way in which pages are held wrongly."""

    name: str
    text: str
    applies: Callable[[Word], bool]


def _held(word: Word) -> bool:
    return bool(word & (Word.CACHED | Word.OWNED | Word.SHARED))


KINDS = (
    Kind("unaccounted", "held by nobody: leaked", lambda w: not w & (Word.FREE | Word.CACHED | Word.OWNED)),
    Kind("freed_twice", "twice in the free list", lambda w: bool(w & Word.FREE_TWICE)),
    Kind("free_and_held", "in the free list and held", lambda w: bool(w & Word.FREE) and _held(w)),
    Kind("owned_twice", "owned by two rows, or twice by one", lambda w: bool(w & Word.OWNED_TWICE)),
    Kind("cached_twice", "twice in the tree", lambda w: bool(w & Word.CACHED_TWICE)),
    Kind("owned_and_cached", "owned by a row and by the tree", lambda w: bool(w & Word.OWNED and w & Word.CACHED)),
)
"""The kinds that a page's word shows. Besides them there is `out_of_range`, of references and not of pages."""
OUT_OF_RANGE = "out_of_range"


@dataclass(frozen=True)
class Strays:
    """References to pages that the pool does not have; `lowest` and `highest` are page ids, and 0 without any."""

    count: int = 0
    lowest: int = 0
    highest: int = 0


@dataclass(frozen=True)
class Defect:
    """Pages of one kind that are held wrongly."""

    kind: str
    count: int
    """Pages; of `out_of_range`, references."""
    sample: tuple[int, ...]
    """The lowest SAMPLED of them; of `out_of_range`, the lowest and the highest page id."""

    def __str__(self) -> str:
        text = next((kind.text for kind in KINDS if kind.name == self.kind), "references outside the pool")
        more = ", ..." if self.count > len(self.sample) else ""
        return f"{self.count} {text} ({', '.join(map(str, self.sample))}{more})"


@dataclass(frozen=True)
class Census:
    """What one census found."""

    pages: int
    counts: Mapping[str, int]
    """Pages by class; they add up to `pages`."""
    defects: tuple[Defect, ...] = ()

    @property
    def conserved(self) -> bool:
        """Whether every page has exactly the holders that it may have."""
        return not self.defects

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        return "; ".join([f"{self.pages} pages: {counts}", *map(str, self.defects)])


def class_of(word: int) -> str:
    """The class of a page with this word."""
    if word & Word.OWNED:
        return "owned"
    if word & Word.CACHED:
        return "cached"
    return "free" if word & Word.FREE else "unaccounted"


def census(
    pages: int, histogram: Sequence[int], strays: Strays, lowest: Callable[[Sequence[int]], Sequence[int]]
) -> Census:
    """A census from the number of pages with each word, `[WORDS]`.

    `lowest` gives the lowest SAMPLED pages, ascending, whose word is one of those given; it is asked only of kinds
    that some page has.
    """
    counts = dict.fromkeys(CLASSES, 0)
    present = [word for word in range(WORDS) if histogram[word]]
    for word in present:
        counts[class_of(word)] += histogram[word]
    defects = []
    for kind in KINDS:
        words = [word for word in present if kind.applies(Word(word))]
        if words:
            number = sum(histogram[word] for word in words)
            defects.append(Defect(kind.name, number, tuple(lowest(words))))
    if strays.count:
        ends = (strays.lowest,) if strays.lowest == strays.highest else (strays.lowest, strays.highest)
        defects.append(Defect(OUT_OF_RANGE, strays.count, ends))
    return Census(pages, counts, tuple(defects))
