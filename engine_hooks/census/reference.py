"""The census in plain torch, for every device that torch has. What the Triton kernel is tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine_hooks.census.words import SAMPLED, WORDS, Census, Holdings, Strays, Tensor, Word, census

_SIMPLE = Word.FREE | Word.CACHED | Word.OWNED | Word.SHARED
# What one holder adds to a page's word; the two bits of a kind count its holders while there are few.
_UNITS = (Word.FREE, Word.CACHED, Word.OWNED)


def take(holdings: Holdings) -> Census:
    """Take a census. No sort; memory is a few bytes a page and a reference."""
    outside = _Outside(holdings.pages)
    free = [outside.within(part) for part in holdings.free]
    cached = outside.within(_pages(holdings.cached[:: holdings.page_size], holdings.page_size))
    owned, shared = (outside.within(_pages(slots, holdings.page_size)) for slots in _slots(holdings))
    words = torch.zeros(holdings.pages + 1, dtype=torch.uint8, device=holdings.rows.device)
    words.scatter_(0, shared.long(), int(Word.SHARED))
    held = free, [cached], [owned]
    histogram = _added(words, held)
    if not _is_exact(histogram, held):
        histogram = _recounted(words, held, shared)
    words = words[1:]
    return census(holdings.pages, histogram, outside.found(), lambda chosen: lowest(words, chosen))


def lowest(words: Tensor, chosen: Sequence[int]) -> list[int]:
    """The lowest SAMPLED pages whose word is one of `chosen`; `words` begins with that of page 1."""
    wanted = torch.zeros(WORDS, dtype=torch.bool)
    wanted[list(chosen)] = True
    found = wanted.to(words.device)[words.int()].nonzero().flatten()[:SAMPLED]
    return [int(page) + 1 for page in found]


def _pages(slots: Tensor, page_size: int) -> Tensor:
    """The pages of slots; a negative slot has a negative page."""
    if page_size == 1:
        return slots
    if page_size & (page_size - 1) == 0:
        return slots >> (page_size.bit_length() - 1)
    return torch.div(slots, page_size, rounding_mode="floor")


def _slots(holdings: Holdings) -> tuple[Tensor, Tensor]:
    """The first slot of each page that rows own, and of each that they read as their prefix."""
    size, rows = holdings.page_size, holdings.rows
    owned, shared = [rows.new_empty(0)], [rows.new_empty(0)]
    for row, start, end in holdings.owners:
        first = -(-start // size) * size
        if first < end:
            owned.append(rows[row, first:end:size])
        if start:
            shared.append(rows[row, 0:start:size])
    return torch.cat(owned), torch.cat(shared)


class _Outside:
    """Collects the references to pages that the pool does not have."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._count = 0
        self._ends: list[int] = []

    def within(self, pages: Tensor) -> Tensor:
        """Those of `pages` that the pool has."""
        if not len(pages):
            return pages
        low, high = (int(end) for end in torch.aminmax(pages))
        if low >= 1 and high <= self._pages:
            return pages
        good = (pages >= 1) & (pages <= self._pages)
        strays = pages[~good]
        self._count += len(strays)
        self._ends += [int(end) for end in torch.aminmax(strays)]
        return pages[good]

    def found(self) -> Strays:
        """What was collected."""
        return Strays(self._count, min(self._ends), max(self._ends)) if self._ends else Strays()


def _added(words: Tensor, held: Sequence[Sequence[Tensor]]) -> list[int]:
    """Add every holder to the words, whatever overflows; how many pages have each of the 256 sums."""
    for unit, parts in zip(_UNITS, held, strict=True):
        _add(words, parts, unit)
    return _histogram(words[1:], 256)


def _is_exact(histogram: Sequence[int], held: Sequence[Sequence[Tensor]]) -> bool:
    """Whether no page has a second holder of any kind, so that its sum is its word.

    Read as words without a `_TWICE` bit, the sums never show more holders of a kind than there are on any page: the
    sum and the word agree modulo 4, 16 and 64. So where they show as many in all, they show them on every page.
    """
    present = [word for word in range(256) if histogram[word]]
    if any(word & ~_SIMPLE for word in present):
        return False
    shown = [sum(histogram[word] for word in present if word & unit) for unit in _UNITS]
    return shown == [sum(map(len, parts)) for parts in held]


def _recounted(words: Tensor, held: Sequence[Sequence[Tensor]], shared: Tensor) -> list[int]:
    """Rewrite the words, each kind counted by itself and without overflow; how many pages have each."""
    words.zero_().scatter_(0, shared.long(), int(Word.SHARED))
    for unit, parts in zip(_UNITS, held, strict=True):
        counts = torch.zeros(len(words), dtype=torch.int32, device=words.device)
        _add(counts, parts, 1)
        words += (counts > 0).to(torch.uint8) * int(unit) + (counts > 1).to(torch.uint8) * int(2 * unit)
    return _histogram(words[1:], WORDS)


def _add(counts: Tensor, parts: Sequence[Tensor], unit: int) -> None:
    one = torch.full((), unit, dtype=counts.dtype, device=counts.device)
    for part in parts:
        counts.scatter_add_(0, part.long(), one.expand(len(part)))


def _histogram(words: Tensor, size: int) -> list[int]:
    return [int(number) for number in torch.bincount(words, minlength=size).tolist()]
