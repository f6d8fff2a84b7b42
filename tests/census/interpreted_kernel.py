"""Run by `test_kernel.py` in a process of its own, whose TRITON_INTERPRET=1 comes before the first import of Triton."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from census_pools import PAGE_SIZES, Pool, conserved, counted, found, pools
from hypothesis import given, settings
from triton.runtime.interpreter import InterpretedFunction

from engine_hooks.census import kernel, reference


def test_it_is_the_kernel_that_is_interpreted() -> None:
    assert isinstance(kernel.mark_all, InterpretedFunction)


@settings(max_examples=150, deadline=None)
@given(pools())
def test_any_pool_is_counted_as_the_reference_counts_it(pool: Pool) -> None:
    holdings = pool.holdings()
    census = kernel.take(holdings)
    assert census == reference.take(holdings)
    assert found(census) == counted(pool)


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_a_clean_pool_of_several_blocks(size: int) -> None:
    pages = 3 * kernel.BLOCK + 1 if size < 16 else 40
    census = kernel.take(conserved(pages, size).holdings())
    assert census.conserved
    assert census.counts == {
        "free": pages - 2 * (pages // 4),
        "cached": pages // 4,
        "owned": pages // 4,
        "unaccounted": 0,
    }


def test_mistakes_in_different_blocks() -> None:
    pool = conserved(4 * kernel.BLOCK)
    spoilt = replace(pool, free=[pool.free[1][1:], [3, 4 * kernel.BLOCK, -1], [2 * kernel.BLOCK], [], [9]])
    holdings = spoilt.holdings()
    assert kernel.take(holdings) == reference.take(holdings)
    assert found(kernel.take(holdings))["defects"] == {
        "unaccounted": (4, (2049, 2050, 2051, 2052)),
        "freed_twice": (1, (4096,)),
        "free_and_held": (3, (3, 9, 2048)),
        "out_of_range": (1, (-1,)),
    }


def test_any_number_of_rows_may_share_a_prefix() -> None:
    pool = conserved(40)
    wide = len(pool.rows[0])
    shared = replace(pool, rows=[*pool.rows, pool.rows[1]], owners=[*pool.owners, (2, 2, 2), (2, 1, 0)])
    census = kernel.take(shared.holdings())
    assert census.conserved
    assert census == reference.take(shared.holdings())
    assert not kernel.take(replace(shared, owners=[*shared.owners, (2, 0, wide)]).holdings()).conserved


def test_tensors_that_are_views() -> None:
    holdings = conserved(40, 16).holdings()
    wide = torch.zeros(holdings.rows.shape[0], 3 * holdings.rows.shape[1], dtype=torch.int32)
    wide[:, : holdings.rows.shape[1]] = holdings.rows
    free = torch.cat([torch.tensor([7]), *holdings.free])[1:]
    assert kernel.take(replace(holdings, rows=wide, free=[free])) == reference.take(holdings)
