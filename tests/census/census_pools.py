"""Pools for the tests of the census, and an independent count of them in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from engine_hooks.census.words import Holdings, Owner

SAMPLE = 8
INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
PAGE_SIZES = (1, 2, 3, 16, 64, 256)


@dataclass(frozen=True)
class Pool:
    """The same as Holdings, in plain lists."""

    pages: int
    page_size: int
    free: list[list[int]]
    cached: list[int]
    rows: list[list[int]]
    owners: list[tuple[int, int, int]]

    def holdings(self, device: str = "cpu") -> Holdings:
        width = len(self.rows[0]) if self.rows else 0
        return Holdings(
            self.pages,
            self.page_size,
            [torch.tensor(part, dtype=torch.int64, device=device) for part in self.free],
            torch.tensor(self.cached, dtype=torch.int64, device=device),
            torch.tensor(self.rows, dtype=torch.int32, device=device).reshape(len(self.rows), width),
            [Owner(*owner) for owner in self.owners],
        )


def slots_of(page: int, size: int) -> list[int]:
    return [page * size + i for i in range(size)]


def counted(pool: Pool) -> dict[str, object]:
    """What a census of the pool must say: classes, and defects as kind to (count, sample)."""
    size = pool.page_size
    held: dict[str, Counter[int]] = {name: Counter() for name in ("free", "cached", "owned", "shared")}
    held["free"].update(page for part in pool.free for page in part)
    held["cached"].update(slot // size for slot in pool.cached[::size])
    for row, shared, end in pool.owners:
        for place in range(0, len(pool.rows[row]), size):
            page = pool.rows[row][place] // size
            if place < shared:
                held["shared"][page] += 1
            elif place < end:
                held["owned"][page] += 1
    strays = [page for holders in held.values() for page in holders.elements() if not 1 <= page <= pool.pages]
    classes, wrong = Counter(dict.fromkeys(("free", "cached", "owned", "unaccounted"), 0)), {}
    for page in range(1, pool.pages + 1):
        free, cached, owned, shared = (held[name][page] for name in held)
        name = "owned" if owned else "cached" if cached else "free" if free else "unaccounted"
        classes[name] += 1
        kinds = {
            "unaccounted": name == "unaccounted",
            "freed_twice": free > 1,
            "free_and_held": free and (cached or owned or shared),
            "owned_twice": owned > 1,
            "cached_twice": cached > 1,
            "owned_and_cached": owned and cached,
        }
        for kind, applies in kinds.items():
            if applies:
                wrong.setdefault(kind, []).append(page)
    defects = {kind: (len(pages), tuple(pages[:SAMPLE])) for kind, pages in wrong.items()}
    if strays:
        defects["out_of_range"] = (len(strays), tuple(sorted({min(strays), max(strays)})))
    return {"classes": dict(classes), "defects": defects}


def found(census: object) -> dict[str, object]:
    return {
        "classes": dict(census.counts),
        "defects": {defect.kind: (defect.count, defect.sample) for defect in census.defects},
    }


@st.composite
def pools(draw: st.DrawFn, most_pages: int = 12) -> Pool:
    """Pools with a few mistakes, or all mistakes, hostile ids among them."""
    size, pages = draw(st.sampled_from(PAGE_SIZES)), draw(st.integers(0, most_pages))
    inside = st.integers(-1, pages + 2)

    def ids(limits: tuple[int, int]) -> st.SearchStrategy[int]:
        edges = (*limits, limits[0] // size, limits[1] // size, -size, 0)
        return st.one_of(inside, inside, inside, st.sampled_from(edges))

    def slots(limits: tuple[int, int], most: int) -> list[int]:
        first = [min(max(page * size, limits[0]), limits[1]) for page in draw(st.lists(ids(limits), max_size=most))]
        return [min(slot + i, limits[1]) for slot in first for i in range(size)]

    free = draw(st.lists(st.lists(ids(INT64), max_size=most_pages), max_size=2))
    height, wide = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    rows = [(slots(INT32, wide) + [0] * wide * size)[: wide * size] for _ in range(height)]
    length = st.integers(0, wide * size)
    owner = st.tuples(st.integers(0, height - 1), length, length) if height else st.nothing()
    return Pool(pages, size, free, slots(INT64, most_pages), rows, draw(st.lists(owner, max_size=4)) if height else [])


def conserved(pages: int, size: int = 1) -> Pool:
    """A clean pool of 8 pages or more, of which a quarter is cached, a quarter owned; one row shares two pages."""
    quarter = pages // 4
    cached = [slot for page in range(1, quarter + 1) for slot in slots_of(page, size)]
    owned = [slot for page in range(quarter + 1, 2 * quarter + 1) for slot in slots_of(page, size)]
    row = cached[: 2 * size] + owned
    free = list(range(2 * quarter + 1, pages + 1))
    padding = [0] * len(row)
    return Pool(pages, size, [free[:3], free[3:]], cached, [padding, row], [(1, 2 * size, len(row) - size + 1)])
