"""The census as Triton kernels: atomic flags over one word per page, then a histogram of the words.

No sort; what is copied to the host is one tally of WORDS + 3 numbers, and the pages of a sample where there is a
defect. With TRITON_INTERPRET=1, set before this module is imported, the same kernels run on the CPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from engine_hooks.census import reference
from engine_hooks.census.words import WORDS, Census, Holdings, Strays, Tensor, Word, census

BLOCK = 1024
"""References, or pages, for each program."""
_COUNT, _LOWEST, _HIGHEST = WORDS, WORDS + 1, WORDS + 2
# More parts of a free list than this are joined first: each part is a launch.
_MOST_PARTS = 4
_INT64 = torch.iinfo(torch.int64)

# What kernels read must be constants to Triton.
_OWNED, _SHARED = (tl.constexpr(int(word)) for word in (Word.OWNED, Word.SHARED))
_TALLY_COUNT, _TALLY_LOWEST, _TALLY_HIGHEST = (tl.constexpr(place) for place in (_COUNT, _LOWEST, _HIGHEST))
_HISTOGRAM = tl.constexpr(WORDS)
_LARGEST, _SMALLEST = tl.constexpr(_INT64.max), tl.constexpr(_INT64.min)
# `do_not_specialize`, below: Triton would compile again for a length or an address that divides by 16, and hold up the
# scheduler meanwhile. So the first census with holders of all kinds compiles all that there is for its page size.


def take(holdings: Holdings) -> Census:
    """Take a census on the device of the pool; waits for it once, and again for samples where there is a defect."""
    marks = _Marks(holdings)
    free = holdings.free if len(holdings.free) <= _MOST_PARTS else [torch.cat(tuple(holdings.free))]
    for part in free:
        marks.all(part, Word.FREE, unit=1)
    marks.all(holdings.cached, Word.CACHED, unit=holdings.page_size)
    marks.owners()
    return marks.census()


class _Marks:
    """The words of one pool on its device, and the tally: WORDS counts, then those of references outside the pool."""

    def __init__(self, holdings: Holdings) -> None:
        device = holdings.rows.device
        self._holdings = holdings
        self._pages = holdings.pages
        self._words = torch.zeros(holdings.pages + 1, dtype=torch.int32, device=device)
        self._tally = torch.zeros(WORDS + 3, dtype=torch.int64, device=device)
        self._tally[_LOWEST], self._tally[_HIGHEST] = _INT64.max, _INT64.min

    def all(self, ids: Tensor, flag: Word, *, unit: int) -> None:
        """Mark the pages of `ids`, which are pages (unit 1), or slots of which the first of each `unit` is read."""
        number = triton.cdiv(len(ids), unit)
        if number:
            grid = (triton.cdiv(number, BLOCK),)
            mark_all[grid](ids, self._words, self._tally, number, self._pages, flag=int(flag), unit=unit, block=BLOCK)

    def owners(self) -> None:
        """Mark what the rows own, and what they read as their prefix."""
        held = self._holdings
        longest = max((max(owner.shared, owner.end) for owner in held.owners), default=0)
        if not longest:
            return
        owners = torch.tensor(held.owners, dtype=torch.int64).to(held.rows.device)
        grid = (len(owners), triton.cdiv(triton.cdiv(longest, held.page_size), BLOCK))
        where = held.rows, owners, self._words, self._tally, held.rows.stride(0)
        mark_owners[grid](*where, self._pages, unit=held.page_size, block=BLOCK)

    def census(self) -> Census:
        """Count the words, and wait for the counts."""
        if self._pages:
            count_words[(triton.cdiv(self._pages, BLOCK),)](self._words, self._tally, self._pages, block=BLOCK)
        found = self._tally.tolist()
        strays = Strays(found[_COUNT], found[_LOWEST], found[_HIGHEST]) if found[_COUNT] else Strays()
        return census(self._pages, found[:WORDS], strays, lambda chosen: reference.lowest(self._words[1:], chosen))


@triton.jit  # type: ignore[untyped-decorator]
def page_of(slots, unit: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - Triton's blocks have no type
    """The page of each slot, rounded down: Triton's division rounds towards zero, so it is given no negative number."""
    if unit == 1:
        pages = slots
    else:
        below = -((-(slots + 1)) // unit) - 1
        pages = tl.where(slots < 0, below, slots // unit)
    return pages


@triton.jit  # type: ignore[untyped-decorator]
def mark(words, tally, page, read, limit, flag: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0913, PLR0917 - as above; a block and where it goes
    """Set `flag` in the words of pages, its `_TWICE` bit where it is set already; tally those outside the pool."""
    inside = read & (page >= 1) & (page <= limit)
    place = words + tl.where(inside, page, 0)
    before = tl.atomic_or(place, flag, mask=inside, sem="relaxed")
    if flag != _SHARED:  # a prefix may have any number of readers
        again = inside & ((before & flag) != 0) & ((before & (2 * flag)) == 0)
        tl.atomic_or(place, 2 * flag, mask=again, sem="relaxed")
    stray = read & ~inside
    number = tl.sum(stray.to(tl.int64), axis=0)
    if number > 0:
        tl.atomic_add(tally + _TALLY_COUNT, number, sem="relaxed")
        wide = page.to(tl.int64)
        tl.atomic_min(tally + _TALLY_LOWEST, tl.min(tl.where(stray, wide, _LARGEST), axis=0), sem="relaxed")
        tl.atomic_max(tally + _TALLY_HIGHEST, tl.max(tl.where(stray, wide, _SMALLEST), axis=0), sem="relaxed")


@triton.jit(do_not_specialize=("ids", "words", "tally", "number", "limit"))  # type: ignore[untyped-decorator]
def mark_all(ids, words, tally, number, limit, flag: tl.constexpr, unit: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0913, PLR0917 - as above
    """One block of a list: the free list's pages, or the tree's slots."""
    offset = tl.program_id(0) * block + tl.arange(0, block)
    read = offset < number
    ids_read = tl.load(ids + offset.to(tl.int64) * unit, mask=read, other=0)
    mark(words, tally, page_of(ids_read, unit), read, limit, flag)


@triton.jit(do_not_specialize=("rows", "owners", "words", "tally", "stride", "limit"))  # type: ignore[untyped-decorator]
def mark_owners(rows, owners, words, tally, stride, limit, unit: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, PLR0913, PLR0917 - as above
    """One block of one row: pages that it owns, and pages of its prefix."""
    owner = owners + tl.program_id(0) * 3
    row, shared, end = tl.load(owner), tl.load(owner + 1), tl.load(owner + 2)
    position = (tl.program_id(1) * block + tl.arange(0, block)).to(tl.int64) * unit
    prefix = position < shared
    own = (position >= shared) & (position < end)
    slots = tl.load(rows + row * stride + position, mask=prefix | own, other=0)
    pages = page_of(slots, unit)
    mark(words, tally, pages, own, limit, _OWNED)
    mark(words, tally, pages, prefix, limit, _SHARED)


@triton.jit(do_not_specialize=("words", "tally", "limit"))  # type: ignore[untyped-decorator]
def count_words(words, tally, limit, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as above
    """How many pages of one block have each word."""
    page = tl.program_id(0) * block + tl.arange(0, block) + 1
    read = page <= limit
    found = tl.load(words + page, mask=read, other=0)
    number = tl.histogram(found, _HISTOGRAM, mask=read).to(tl.int64)
    tl.atomic_add(tally + tl.arange(0, _HISTOGRAM), number, mask=number > 0, sem="relaxed")
