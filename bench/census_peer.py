"""SGLang's own pools, filled through its own allocator, and its own check of them: the peer of `census.py`.

Imported only where SGLang can be (census.py puts the testbed's stand-ins on the path first).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.managers.scheduler_components import invariant_checker
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

_ROW_TOKENS = 2048
_WIDTH = 4096
_NODE_TOKENS = 512


@dataclass(frozen=True)
class Pools:
    """One engine's pools, as its scheduler names them."""

    scheduler: SimpleNamespace
    checker: invariant_checker.SchedulerInvariantChecker


def pools(slots: int, page_size: int, device: str, *, shuffled: bool) -> Pools:
    """SGLang's own pools, filled through its own allocator."""
    slots -= slots % (4 * _ROW_TOKENS)
    arguments: dict[str, Any] = {"dtype": torch.bfloat16, "device": device, "kvcache": None, "need_sort": False}
    kind = TokenToKVPoolAllocator if page_size == 1 else PagedTokenToKVPoolAllocator
    allocator = kind(slots, **arguments) if page_size == 1 else kind(slots, page_size, **arguments)
    if shuffled:
        order = torch.randperm(len(allocator.free_pages), generator=torch.Generator().manual_seed(5))
        allocator.free_pages = allocator.free_pages[order.to(device)]
    height = slots // 2 // _ROW_TOKENS
    rows = ReqToTokenPool(height, _WIDTH, device, enable_memory_saver=False)
    requests = []
    for row in rows.alloc_rows(height):
        rows.write((row, slice(0, _ROW_TOKENS)), allocator.alloc(_ROW_TOKENS).to(torch.int32))
        kv = ReqKvInfo(req_pool_idx=row, kv_committed_len=_ROW_TOKENS, kv_allocated_len=_ROW_TOKENS)
        requests.append(SimpleNamespace(rid=str(row), kv=kv, beam_group=None))
    nodes = [allocator.alloc(_NODE_TOKENS) for _ in range(slots // 4 // _NODE_TOKENS)]
    # The walk over the nodes is the tree's; joining their values is in the census's time.
    tree = SimpleNamespace(session_records=dict, all_values_flatten=lambda: torch.cat(nodes))
    batch = SimpleNamespace(reqs=requests)
    scheduler = SimpleNamespace(
        token_to_kv_pool_allocator=allocator,
        req_to_token_pool=rows,
        tree_cache=tree,
        running_batch=batch,
        last_batch=batch,
        chunked_req=None,
        waiting_queue=[],
    )
    return Pools(scheduler, _checker(scheduler, slots, page_size))


def _checker(scheduler: SimpleNamespace, slots: int, page_size: int) -> invariant_checker.SchedulerInvariantChecker:
    return invariant_checker.SchedulerInvariantChecker(
        is_hybrid_swa=False,
        is_hybrid_ssm=False,
        disaggregation_mode=DisaggregationMode.NULL,
        page_size=page_size,
        full_tokens_per_layer=None,
        swa_tokens_per_layer=None,
        max_total_num_tokens=slots,
        tree_cache=scheduler.tree_cache,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        req_to_token_pool=scheduler.req_to_token_pool,
        pool_stats_observer=SimpleNamespace(),
        get_last_batch=lambda: scheduler.last_batch,
        get_running_batch=lambda: scheduler.running_batch,
        scheduler_stage_metrics=SimpleNamespace(),
    )
