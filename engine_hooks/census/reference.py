"""The census in plain torch, for every device that torch has. What the Triton kernel is tested against."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine_hooks.census.words import SAMPLED, WORDS, Census, Holdings, Strays, Tensor, census

_WRAPS_AT = 256


def take(holdings: Holdings) -> Census:
    """Take a census. No sort; memory is a few bytes a page and a reference."""
    outside = _Outside(holdings.pages)
    free = _holders(holdings.pages, [outside.within(part) for part in holdings.free], holdings.rows.device)
    cached = outside.within(_pages(holdings.cached[:: holdings.page_size], holdings.page_size))
    owned, shared = (outside.within(_pages(slots, holdings.page_size)) for slots in _slots(holdings))
    words = free | (_holders(holdings.pages, [cached], cached.device) << 2)
    words |= _holders(holdings.pages, [owned], owned.device) << 4
    words |= (_holders(holdings.pages, [shared], shared.device) & 1) << 6
    words = words[1:]
    histogram = torch.bincount(words, minlength=WORDS).tolist()
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
        owned.append(rows[row, first:end:size])
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


def _holders(pages: int, parts: Sequence[Tensor], device: object) -> Tensor:
    """Of each page 0 to `pages`, uint8: 0 without a holder, 1 with one, 3 with more."""
    number = sum(map(len, parts))
    counts = _counted(pages, parts, torch.uint8, device)
    if number >= _WRAPS_AT and int(counts.sum(dtype=torch.int64)) != number:
        counts = _counted(pages, parts, torch.int32, device).clamp_(max=2).to(torch.uint8)
    counts.clamp_(max=2)
    return counts | (counts >> 1)


def _counted(pages: int, parts: Sequence[Tensor], dtype: object, device: object) -> Tensor:
    counts = torch.zeros(pages + 1, dtype=dtype, device=device)
    one = torch.ones((), dtype=dtype, device=device)
    for part in parts:
        counts.scatter_add_(0, part.long(), one.expand(len(part)))
    return counts
