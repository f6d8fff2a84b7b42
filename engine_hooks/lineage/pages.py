"""A word for each page of the device's pool and of the host's, and for each row of requests, on the device.

A row's word is that of what its request computes next: the least of the current epoch and all that the row holds. So
it is worked out from pages only where a row begins, or takes over pages; each decode step then writes the row's word to
the page of its new token, whose last token attends to all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine_hooks.lineage.words import (
    CURRENT,
    HOST,
    KINDS,
    MIXED,
    PLACES,
    STALE,
    STORAGE,
    TIER_BITS,
    TIER_MASK,
    TIERS,
    UNKNOWN,
    UNSEEN,
    value_of,
)

# Torch's.
Tensor = Any


@dataclass(frozen=True)
class Shape:
    """How large the engine's pools are."""

    pages: int
    """Pages of the device's pool; their numbers are 0 to this one, page 0 being the engine's own."""
    page_size: int
    """Tokens a page, on the device and on the host."""
    rows: int
    host_pages: int = 0
    """Their numbers begin at 0."""


class Pages:
    """The words. Every method works on the current stream of the device, and none waits for it."""

    def __init__(self, shape: Shape, device: str = "cpu") -> None:
        self.page_size = shape.page_size
        self._device = device
        # A shift is far cheaper than a division.
        size = shape.page_size
        self._shift = size.bit_length() - 1 if size & (size - 1) == 0 else None
        self._words, self._rows, self._host = (
            torch.full((number,), UNSEEN, dtype=torch.int32, device=device)
            for number in (shape.pages + 1, shape.rows, shape.host_pages)
        )

    def forget(self) -> None:
        """Every page is dropped, on the device and on the host."""
        self._words.fill_(UNSEEN)
        self._host.fill_(UNSEEN)

    # What forwards write.

    def decode(self, slots: Tensor, rows: Tensor) -> None:
        """One token each for these rows: slots int64 `[n]`, rows int64 `[n]`."""
        self._words.index_copy_(0, self._pages(slots), self._rows.index_select(0, rows))

    def extend(self, slots: Tensor, rows: Tensor, lengths: Sequence[int]) -> None:
        """Tokens of these rows: slots int64 `[sum of lengths]`, row by row; rows int64 `[n]`."""
        words = self._rows.index_select(0, rows)
        number = torch.tensor(lengths).to(self._device, non_blocking=True)
        words = words.repeat_interleave(number, output_size=sum(lengths))
        self._words.index_copy_(0, self._pages(slots), words)

    # What copies move. Slots are those of whole pages, page by page, of which the first of each is read.

    def to_host(self, slots: Tensor, host_slots: Tensor) -> None:
        """Pages are copied from the device to the host (slots of both: int64 `[m * page_size]`)."""
        words = self._words.index_select(0, self._pages(slots[:: self.page_size]))
        words = words.bitwise_and(~TIER_MASK).bitwise_or_(HOST)
        self._host.index_copy_(0, self._host_pages(host_slots), words)

    def to_device(self, host_slots: Tensor, slots: Tensor) -> None:
        """Pages are copied from the host to the device, and keep the tier that they came from."""
        words = self._host.index_select(0, self._host_pages(host_slots))
        self._words.index_copy_(0, self._pages(slots[:: self.page_size]), words)

    def of_host(self, host_slots: Tensor) -> Tensor:
        """The words of pages on the host: int32 `[m]`, a copy on the device."""
        return self._host.index_select(0, self._host_pages(host_slots))

    def from_storage(self, host_slots: Tensor, words: Sequence[int]) -> None:
        """Pages with these words were read from a storage into the host's pool."""
        brought = [word & ~TIER_MASK | STORAGE for word in words]
        there = torch.tensor(brought, dtype=torch.int32).to(self._device, non_blocking=True)
        self._host.index_copy_(0, self._host_pages(host_slots), there)

    # What rows hold.

    def begin(self, rows: Tensor, epoch: int) -> None:
        """These rows (int64 `[n]`) are empty."""
        self._rows.index_fill_(0, rows, value_of(epoch) << TIER_BITS)

    def hold(self, table: Tensor, held: Sequence[tuple[int, int, bool]], epoch: int, floor: int) -> Tensor:
        """Work the words of rows out anew; what they hold, in tokens: int64 `[n, len(PLACES)]`, on the device.

        `table` is `req_to_token`. Each of `held` is a row, how many tokens it holds, and whether all of them count:
        else only those of a worse kind than the row was so far. Pages of an epoch before `floor` are stale.
        """
        rows, lengths, fresh = zip(*held, strict=True)
        parts = [table[row, 0 : length : self.page_size] for row, length in zip(rows, lengths, strict=True)]
        numbers = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        pages = self._pages(torch.cat(parts))
        place = torch.arange(len(rows)).repeat_interleave(numbers)
        # A page has as many tokens as it can, but for the last one of a row.
        tokens = torch.full((len(place),), self.page_size)
        ends = numbers.cumsum(0)[numbers > 0] - 1
        tokens[ends] = torch.tensor([(n - 1) % self.page_size + 1 for n in lengths if n], dtype=torch.int64)
        index, place, tokens, new = (
            tensor.to(self._device, non_blocking=True)
            for tensor in (torch.tensor(rows), place, tokens, torch.tensor(fresh))
        )
        words = self._words.index_select(0, pages)
        values = words >> TIER_BITS
        now = value_of(epoch)
        # What is unknown may be current: it is as old as the weights now, and not known to be.
        known = values.where(values <= now, now - 1)
        before = self._rows.index_select(0, index) >> TIER_BITS
        least = torch.full_like(before, now).scatter_reduce_(0, place, known, "amin")
        self._rows.index_copy_(0, index, least << TIER_BITS)
        kinds = _kinds(values, epoch, floor)
        counted = kinds > torch.where(new, CURRENT - 1, _kinds(before, epoch, floor))[place]
        columns = (words & TIER_MASK) * len(KINDS) + kinds
        sums = torch.zeros(len(rows) * len(PLACES), dtype=torch.int64, device=self._device)
        sums.index_add_(0, place * len(PLACES) + columns, tokens * counted)
        return sums.view(len(rows), len(TIERS) * len(KINDS))

    def _pages(self, slots: Tensor) -> Tensor:
        if self._shift is not None:
            return slots.long() >> self._shift if self._shift else slots.long()
        return slots.long() // self.page_size

    def _host_pages(self, host_slots: Tensor) -> Tensor:
        pages = host_slots[:: self.page_size] // self.page_size
        # On a GPU an index outside the table would end the process, not raise.
        if len(pages) and (int(pages.min()) < 0 or int(pages.max()) >= len(self._host)):
            raise IndexError(f"host pages {int(pages.min())} to {int(pages.max())} of a pool of {len(self._host)}")
        return pages.to(self._device, non_blocking=True)


def _kinds(values: Tensor, epoch: int, floor: int) -> Tensor:
    """The kind of each value, int64: see `words.KINDS`."""
    now = value_of(epoch)
    kinds = torch.where(values == now, CURRENT, UNKNOWN)
    kinds = torch.where(values < now - 1, MIXED, kinds)
    return torch.where(values < 2 * floor, STALE, kinds)
