"""Reads one observation from SGLang's scheduler: plain attributes, on the scheduler's own thread."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_hooks.observation import Observation, Rank
from engine_hooks.sglang.probes_ledgers import LedgerReader
from engine_hooks.sglang.probes_workers import worker_queues

if TYPE_CHECKING:
    from collections.abc import Callable

# Objects of the engine; its modules are not imported here.
Engine = Any

NO_STORAGE = "none"


def loop_name(scheduler: Engine, pp_size: int) -> str:
    """The event loop that `_dispatch_event_loop_once` picks, by the design's names."""
    kind = scheduler.disaggregation_mode.value
    pipeline = pp_size > 1
    if kind in ("prefill", "decode"):
        return f"{kind}-{'pp' if pipeline else 'overlap' if scheduler.enable_overlap else 'normal'}"
    if scheduler.enable_pdmux:
        return "pdmux"
    if pipeline:
        return "pp"
    if scheduler.enable_overlap_mlx:
        return "mlx-overlap"
    return "overlap" if scheduler.enable_overlap else "normal"


def storage_kind(scheduler: Engine, write_policy: str, host_mode: str) -> str:
    """The key under which a stuck region is looked up: `none`, or the storage backend's name.

    What a region was not proved for gets a name that no profile has: staging in host memory (`buffer_only`), and the
    policies that back up at other moments than write-through.
    """
    if not scheduler.enable_hierarchical_cache:
        return NO_STORAGE
    if host_mode != "cache" or write_policy != "write_through":
        return f"{host_mode}/{write_policy}"
    tree = scheduler.tree_cache
    return str(tree.cache_controller.storage_backend_type) if tree.enable_storage else NO_STORAGE


@dataclass(frozen=True)
class EngineKind:
    """What of the engine's configuration decides which terms its gate has."""

    pp_size: int = 1
    buffer_only: bool = False
    """HiCache's host memory is only staging."""


class StateReader:
    """Reads one scheduler. Construction checks that every attribute is there."""

    def __init__(self, scheduler: Engine, rank: Rank, loop: str, kind: EngineKind) -> None:
        """Raises AttributeError where the engine's attributes are not those of the profile's version."""
        self._scheduler = scheduler
        self._rank = rank
        self._loop = loop
        self._ledgers = LedgerReader() if scheduler.enable_hierarchical_cache else None
        self._unmodelled = _unmodelled_terms(scheduler, kind)
        self._queues = worker_queues(scheduler)
        self.read(Observation(), 0)

    def read(self, seen: Observation, sequence: int) -> Observation:
        """Fill `seen` with the state now, as `Scheduler.is_fully_idle` would read it."""
        scheduler = self._scheduler
        last_batch = scheduler.last_batch
        seen.rank = self._rank
        seen.loop = self._loop
        seen.sequence = sequence
        seen.forwards = scheduler.forward_ct
        seen.paused = paused = scheduler._engine_paused  # noqa: SLF001 - the engine has no public name for it
        seen.step = "paused" if paused else "running"
        seen.recorded_idle = None
        pending = scheduler.flush_wrapper._pending  # noqa: SLF001 - the engine has no public name for it
        seen.deferred_pending = pending is not None
        seen.deferred_until = None if pending is None else pending[1]
        seen.last_batch = last_batch is not None and not last_batch.is_empty()
        seen.result_pending = scheduler.enable_overlap and len(scheduler.result_queue) > 0
        # A request in the middle of a chunked prefill is running work that no batch holds between its chunks.
        seen.running = len(scheduler.running_batch.reqs) + (scheduler.chunked_req is not None)
        seen.waiting = len(scheduler.waiting_queue)
        for name, count in self._queues:
            setattr(seen, name, count())
        seen.unmodelled = ()
        for name, closed in self._unmodelled:
            if closed():
                seen.unmodelled += (name,)
        if self._ledgers is not None:
            self._ledgers.read(scheduler.tree_cache, seen, time.time())
        return seen

    def read_decision(self, seen: Observation, sequence: int) -> Observation:
        """As `read`, with what only a gate's decision needs: waiting requests that own KV close it while paused."""
        self.read(seen, sequence)
        if seen.paused and any(request.kv.holds_kv for request in self._scheduler.waiting_queue):
            seen.unmodelled += ("waiting_holds_kv",)
        return seen


def lookups_issued(scheduler: Engine) -> Callable[[], int]:
    """A function that says how many storage lookups were issued so far (`UnifiedRadixCache.prefetch_from_storage`).

    It reads the engine's own counter, which counts only lookups that reached the storage queue. Raises AttributeError
    or KeyError where there is no such counter.
    """
    if not scheduler.enable_hierarchical_cache:
        return lambda: 0
    # One dict for the life of the tree: a reset leaves it alone.
    outcomes: dict[str, float] = scheduler.tree_cache._prefetch_outcome_stats  # noqa: SLF001 - the engine has no public name for it
    int(outcomes["issued"])  # a KeyError now, not on each pass
    return lambda: int(outcomes["issued"])


def version_reader() -> Callable[[], str]:
    """A function that says which weight version this process has (`Scheduler.record_weight_version_change`).

    Raises ImportError or AttributeError where the engine keeps none.
    """
    from sglang.srt.runtime_context import get_serving  # noqa: PLC0415 - imported only where an engine runs

    str(get_serving().weight_version)  # an AttributeError now, not at an update
    return lambda: str(get_serving().weight_version)


def _unmodelled_terms(scheduler: Engine, kind: EngineKind) -> tuple[tuple[str, Callable[[], bool]], ...]:
    """The terms of `Scheduler.is_fully_idle` that the profile leaves out; each says whether it closes the gate now."""
    grammar = scheduler.grammar_manager
    terms: list[tuple[str, Callable[[], bool]]] = [("grammar", lambda: len(grammar.grammar_queue) > 0)]
    if scheduler.dllm_config is not None:
        terms.append(("dllm_staging", scheduler.dllm_manager.any_staging_reqs))
    if kind.pp_size > 1:
        # The loop itself makes them (`SchedulerPPMixin.init_pp_loop_state`), after the scheduler has been built.
        drained = scheduler._pp_microbatches_drained  # noqa: SLF001 - the engine has no public name for it
        terms.append(("microbatches", lambda: hasattr(scheduler, "running_mbs") and not drained()))
    if scheduler.disaggregation_mode.value in ("prefill", "decode"):
        terms.append(("disaggregation", lambda: _disaggregation_busy(scheduler)))
    if scheduler.enable_hisparse:
        terms.append(("hisparse_staging", scheduler.hisparse_coordinator.has_ongoing_staging))
    if scheduler.enable_hierarchical_cache:
        if kind.buffer_only:
            tree = scheduler.tree_cache
            terms.append(("buffer", lambda: tree.enable_storage and not tree.buffer_pipeline.is_idle()))
    elif scheduler.enable_lmcache:
        terms.append(("lmcache", scheduler.tree_cache.has_pending_cache_operations))
    return tuple(terms)


def _disaggregation_busy(scheduler: Engine) -> bool:
    """The prefill and decode terms of `Scheduler.is_fully_idle`."""
    if scheduler.disaggregation_mode.value == "prefill":
        bootstrap = scheduler.disagg_prefill_bootstrap_queue.queue
        return len(scheduler.disagg_prefill_inflight_queue) + len(bootstrap) > 0
    prealloc = scheduler.disagg_decode_prealloc_queue
    transfer = scheduler.disagg_decode_transfer_queue
    offload = scheduler.decode_offload_manager
    return (
        len(prealloc.queue) + len(prealloc.retracted_queue) + len(transfer.queue) > 0
        or transfer.has_pending_deferred_releases()
        or (offload is not None and len(offload.ongoing_offload) > 0)
    )
