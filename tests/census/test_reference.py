"""The census in plain torch: on pools of every shape, against a count in plain Python."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from census_pools import INT32, INT64, PAGE_SIZES, Pool, conserved, counted, found, pools, slots_of
from hypothesis import given, settings

from engine_hooks.census import reference
from engine_hooks.census.words import Holdings, Owner
from engine_hooks.errors import CensusInputError


def test_an_empty_pool() -> None:
    census = reference.take(Pool(0, 16, [], [], [], []).holdings())
    assert census.conserved
    assert census.counts == {"free": 0, "cached": 0, "owned": 0, "unaccounted": 0}
    assert str(census) == "0 pages: 0 free, 0 cached, 0 owned, 0 unaccounted"


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_a_clean_pool_whose_last_page_is_filled_in_part(size: int) -> None:
    census = reference.take(conserved(40, size).holdings())
    assert census.conserved
    assert census.counts == {"free": 20, "cached": 10, "owned": 10, "unaccounted": 0}


@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize(
    ("kind", "count", "sample", "spoil"),
    [
        ("unaccounted", 3, (21, 22, 23), lambda p: replace(p, free=p.free[1:])),
        ("unaccounted", 20, tuple(range(21, 29)), lambda p: replace(p, free=[])),
        ("freed_twice", 1, (40,), lambda p: replace(p, free=[*p.free, [40]])),
        ("free_and_held", 1, (15,), lambda p: replace(p, free=[*p.free, [15]])),  # owned
        ("free_and_held", 1, (1,), lambda p: replace(p, free=[*p.free, [1]])),  # cached, and a row's prefix
        ("owned_twice", 10, tuple(range(11, 19)), lambda p: replace(p, owners=p.owners * 2)),
        ("cached_twice", 1, (5,), lambda p: replace(p, cached=p.cached + slots_of(5, p.page_size))),
        ("owned_and_cached", 1, (12,), lambda p: replace(p, cached=p.cached + slots_of(12, p.page_size))),
        ("out_of_range", 1, (41,), lambda p: replace(p, free=[*p.free, [41]])),
        ("out_of_range", 4, (INT64[0], INT64[1]), lambda p: replace(p, free=[*p.free, [0, -1, *INT64]])),
    ],
)
def test_one_kind_of_mistake(kind: str, count: int, sample: tuple[int, ...], spoil: object, size: int) -> None:
    census = reference.take(spoil(conserved(40, size)).holdings())
    assert [(d.kind, d.count, d.sample) for d in census.defects] == [(kind, count, sample)]
    assert sum(census.counts.values()) == 40
    assert not census.conserved


def test_what_is_said_of_several_mistakes() -> None:
    pool = conserved(40)
    spoilt = replace(pool, free=[pool.free[1], [30, 50, -7]], cached=pool.cached + pool.cached[:9])
    assert str(reference.take(spoilt.holdings())) == (
        "40 pages: 17 free, 10 cached, 10 owned, 3 unaccounted; 3 held by nobody: leaked (21, 22, 23); "
        "1 twice in the free list (30); 9 twice in the tree (1, 2, 3, 4, 5, 6, 7, 8, ...); "
        "2 references outside the pool (-7, 50)"
    )


def test_a_row_that_shares_a_free_page_reads_what_another_may_get() -> None:
    pool = conserved(40)
    moved = replace(pool, cached=pool.cached[1:], free=[*pool.free, [1]])
    assert found(reference.take(moved.holdings()))["defects"] == {"free_and_held": (1, (1,))}


@pytest.mark.parametrize("times", [2, 3, 4, 5, 8, 15, 16, 17, 64, 68, 128, 255, 256, 257, 260, 512])
def test_many_holders_of_a_page_look_like_nothing_else(times: int) -> None:
    """However a sum of holders in 8 bits might be read."""
    free = reference.take(Pool(3, 1, [[2] * times, [1, 3]], [], [], []).holdings())
    assert found(free)["defects"] == {"freed_twice": (1, (2,))}
    assert free.counts["free"] == 3
    cached = reference.take(Pool(3, 1, [[1, 3]], [2] * times, [], []).holdings())
    assert found(cached)["defects"] == {"cached_twice": (1, (2,))}
    rows = [[2] * times]
    owned = reference.take(Pool(3, 1, [[1, 3]], [], rows, [(0, 0, times)]).holdings())
    assert found(owned)["defects"] == {"owned_twice": (1, (2,))}
    read = reference.take(Pool(3, 1, [[1, 3]], [2], rows, [(0, times, 0)] * 3).holdings())
    assert read.conserved


@settings(max_examples=400, deadline=None)
@given(pools())
def test_any_pool_is_counted_as_plain_python_counts_it(pool: Pool) -> None:
    assert found(reference.take(pool.holdings())) == counted(pool)


def test_four_million_slots() -> None:
    pages, height, width = 4_000_000, 256, 8192
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(7)) + 1
    used = height * width
    rows = order[:used].to(torch.int32).reshape(height, width)
    owners = [Owner(row, 0, width) for row in range(height)]
    clean = Holdings(pages, 1, [order[used + 100_000 :]], order[used : used + 100_000], rows, owners)
    census = reference.take(clean)
    assert census.conserved
    assert census.counts == {"free": 1_802_848, "cached": 100_000, "owned": 2_097_152, "unaccounted": 0}
    leaked = replace(clean, free=[order[used + 100_001 :]], owners=owners[1:])
    lost = sorted([int(order[used + 100_000]), *map(int, order[:width])])
    assert found(reference.take(leaked))["defects"] == {"unaccounted": (8193, tuple(lost[:8]))}


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        (Owner(2, 0, 1), "Owner(row=2, shared=0, end=1) is outside req_to_token; valid: rows 0 to 1, lengths 0 to 22"),
        (Owner(-1, 0, 1), "rows 0 to 1"),
        (Owner(1, 0, 23), "lengths 0 to 22"),
        (Owner(1, -1, 2), "lengths 0 to 22"),
        (Owner(1, INT32[1], 2), "lengths 0 to 22"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(owner: Owner, says: str) -> None:
    holdings = conserved(80).holdings()
    with pytest.raises(CensusInputError) as error:
        replace(holdings, owners=[owner])
    assert says in str(error.value)


def test_a_pool_of_no_size_is_refused() -> None:
    with pytest.raises(CensusInputError, match="a pool of 4 pages of 0 tokens; valid: 0 pages or more"):
        replace(conserved(8).holdings(), page_size=0, pages=4)
