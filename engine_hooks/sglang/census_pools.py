"""Reads from SGLang's live pools who holds which KV page: free list, tree, request rows, sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine_hooks.census.words import Holdings, Owner

# Objects of the engine; its modules are imported only where an engine runs.
Engine = Any


def holdings_of(scheduler: Engine) -> Holdings | None:
    """Who holds what now; None where the engine is in the middle of freeing, or decodes with beams.

    To be called on the scheduler's thread, between two of its steps. The tensors are the engine's own, not copies.
    Raises AttributeError where the engine has others than those of its version.
    """
    allocator, tree = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
    owners = _owners(scheduler)
    if allocator.free_group is not None or owners is None:
        return None
    size = allocator.page_size
    return Holdings(
        pages=allocator.size // size,
        page_size=size,
        free=_free(allocator),
        cached=tree.all_values_flatten(),
        rows=scheduler.req_to_token_pool.req_to_token,
        owners=owners,
    )


def _free(allocator: Engine) -> tuple[Engine, ...]:
    """The parts of the free list, as `get_all_free_pages` joins them; without its copy."""
    if hasattr(allocator, "staged_pages"):
        return (allocator.free_pages, *allocator.staged_pages)
    return (allocator.free_pages, allocator.release_pages)


def _owners(scheduler: Engine) -> list[Owner] | None:
    """The rows that requests and sessions hold; None where some of them have rows that no request names.

    As `SchedulerInvariantChecker._requests_owning_rows` and `_check_kv_page_invariants`, and requests that wait too.
    """
    seen: dict[int, Owner] = {}
    for request in _requests(scheduler):
        if request.beam_group is not None:
            return None
        _add(seen, request.kv)
    for kv in scheduler.tree_cache.session_records().values():
        _add(seen, kv)
    return list(seen.values())


def _add(seen: dict[int, Owner], kv: Engine) -> None:
    # A session's request borrows the session's record, and a batch may name a request again.
    if kv.req_pool_idx is not None and id(kv) not in seen:
        seen[id(kv)] = Owner(kv.req_pool_idx, kv.cache_protected_len, kv.kv_allocated_len)


def _requests(scheduler: Engine) -> Iterator[Engine]:
    for batch in (scheduler.running_batch, scheduler.last_batch):
        if batch is not None:
            yield from batch.reqs
    if scheduler.chunked_req is not None:
        yield scheduler.chunked_req
    yield from scheduler.waiting_queue


def unread(scheduler: Engine, pp_size: int) -> str | None:
    """What this engine has that is not read here; None where everything is."""
    from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator  # noqa: PLC0415 - imported only where an engine runs
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: PLC0415 - as above

    allocator, tree = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache
    # Exactly these: a subclass holds pages in other places too.
    if type(allocator) not in (TokenToKVPoolAllocator, PagedTokenToKVPoolAllocator):
        return f"the allocator is a {type(allocator).__name__}"
    if type(tree) is not UnifiedRadixCache:
        return f"the tree is a {type(tree).__name__}"
    if tree.supports_swa() or tree.supports_mamba():
        return "the tree has other components than full attention"
    if allocator.page_size != tree.page_size:
        return f"pages of the allocator have {allocator.page_size} tokens, those of the tree {tree.page_size}"
    if scheduler.disaggregation_mode.value != "null":
        return f"a {scheduler.disaggregation_mode.value} worker holds pages in its transfer queues"
    others = {
        "microbatches": pp_size > 1,
        "split prefill batches": scheduler.enable_pdmux,
        "pending MLX jobs": scheduler.enable_overlap_mlx,
        "HiSparse": scheduler.enable_hisparse,
        "diffusion staging": scheduler.dllm_config is not None,
    }
    return next((f"pages are held by {name}" for name, present in others.items() if present), None)
