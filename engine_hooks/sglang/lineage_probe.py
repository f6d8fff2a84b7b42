"""The lineage of one scheduler's pages: what the engine's own batches and copies are to it, and where it is hooked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from engine_hooks.errors import LostSightError
from engine_hooks.lineage.pages import Pages, Shape
from engine_hooks.lineage.report import Report
from engine_hooks.lineage.stored import Stored
from engine_hooks.lineage.tracker import Held, Lineage
from engine_hooks.sglang import census_pools
from engine_hooks.sglang.probes_targets import SCHEDULER, UPDATES, Target, missing_targets

if TYPE_CHECKING:
    from engine_hooks.sglang.probes_session import Session

logger = logging.getLogger("quiesce")

# Objects of the engine; its modules are imported only where an engine runs.
Engine = Any
Call = Callable[..., Any]

_TREE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
_CONTROLLER = "sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller.HybridCacheController"

LINEAGE_TARGETS = (
    Target("lineage", f"{SCHEDULER}.run_batch", "BEFORE", "forward"),
    Target("lineage", f"{SCHEDULER}.on_idle", "BEFORE", "idling"),
    Target("lineage", f"{SCHEDULER}.pause_generation", "AFTER", "paused"),
    Target("lineage", f"{SCHEDULER}.flush_cache", "AROUND", "flush"),
    *(Target("lineage", path, "AROUND", "update") for path in UPDATES),
    Target("lineage", f"{_TREE}.checkpoint_into_tree", "AFTER", "checkpointed"),
    Target("lineage", f"{_TREE}._handle_prefetch_result", "BEFORE", "prefetched"),
    Target("lineage", f"{_CONTROLLER}.write", "AFTER", "written_through"),
    Target("lineage", f"{_CONTROLLER}.load", "AFTER", "loaded_back"),
    Target("lineage", f"{_CONTROLLER}.write_storage", "BEFORE", "backing_up"),
    Target("lineage", f"{_CONTROLLER}._page_backup", "AROUND", "backup"),
)
"""Hooked only where the lineage is asked for; after the other hooks, so that their own come before these return."""


class LineageProbe:
    """Reads one scheduler's batches and copies for the lineage. On its thread, but for `backup`."""

    def __init__(self, scheduler: Engine, lineage: Lineage) -> None:
        self.lineage = lineage
        self._table = scheduler.req_to_token_pool.req_to_token
        self._size: int = scheduler.token_to_kv_pool_allocator.page_size
        self.goes_on = lineage.goes_on
        self.failed: list[Exception] = []
        """What the thread that writes to the storage raised."""

    def judge(self) -> None:
        """Say what readings have arrived."""
        if self.failed:
            raise RuntimeError(f"the backup thread cannot be followed: {self.failed[0]}") from self.failed[0]
        self.lineage.judge()

    def forward(self, batch: Engine) -> None:
        """Before `Scheduler.run_batch`."""
        self.judge()
        mode = batch.forward_mode
        if mode.is_decode():
            held = partial(_decoding, batch)
            self.lineage.decode(self._table, held, batch.req_pool_indices, batch.out_cache_loc)
        elif not mode.is_idle():
            self._extend(batch)

    def _extend(self, batch: Engine) -> None:
        if any(request.beam_group is not None for request in batch.reqs):
            raise RuntimeError("a beam search copies pages, which is not followed")
        held = [
            Held(request.kv.req_pool_idx, request.rid, length)
            for request, length in zip(batch.reqs, batch.prefix_lens, strict=True)
        ]
        self.lineage.extend(self._table, held, batch.req_pool_indices, batch.out_cache_loc, batch.extend_lens)

    def checkpointed(self, request: Engine) -> None:
        """After `UnifiedRadixCache.checkpoint_into_tree`: pages that the tree has already take the place of its own."""
        if request.kv.req_pool_idx is not None and not request.finished():
            self.lineage.adopted(request.kv.req_pool_idx)

    def prefetched(self, tree: Engine, operation: Engine) -> None:
        """Before `UnifiedRadixCache._handle_prefetch_result`, which puts what a storage gave into the tree."""
        completed = operation.completed_tokens
        if completed:
            host_slots = tree.ongoing_prefetch[operation.handle].host_indices[:completed]
            keys = operation.hash_value[: completed // self._size]
            self.lineage.from_storage(tree.cache_controller.storage_backend, keys, host_slots)

    def backup(self, original: Call, controller: Engine, operation: Engine) -> object:
        """Around `HybridCacheController._page_backup`, on the backup thread: must not raise, nor touch the monitor."""
        there = self._attempt(
            self.lineage.writing, controller.storage_backend, operation.hash_value, controller.storage_backend.exists
        )
        try:
            return original(controller, operation)
        finally:
            # A rank that leaves the writing to another cannot know what that one wrote.
            pages = 0 if controller.backup_skip else operation.completed_tokens // self._size
            if there is not None:
                wrote = partial(self.lineage.wrote, keeps_first=controller.storage_backend_type == "file")
                self._attempt(wrote, operation.host_indices, operation.hash_value[:pages], there)

    def _attempt(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - whatever it gives
        try:
            return function(*args)
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self.failed.append(error)
            return None


def _decoding(batch: Engine) -> list[Held]:
    """What the rows of a batch held before the token that it now computes for each."""
    lengths = batch.seq_lens_cpu.tolist()
    return [
        Held(request.kv.req_pool_idx, request.rid, length - 1)
        for request, length in zip(batch.reqs, lengths, strict=True)
    ]


class LineageHooks:
    """The functions that SGLang's HookRegistry calls. They do nothing until `begin`."""

    def __init__(self, keys: int) -> None:
        """`keys`: how many storage keys are remembered."""
        self._keys = keys
        missing = missing_targets(LINEAGE_TARGETS)
        self.targets = tuple(target for target in LINEAGE_TARGETS if target.path not in missing)
        """Those that this engine has."""
        self._session: Session | None = None
        self._probe: LineageProbe | None = None

    def begin(self, session: Session, pp_size: int) -> None:
        """Follow the pages of a scheduler that has just been built.

        Raises LostSightError where its pages move in ways that are not followed, AttributeError where the engine's
        attributes are not those of its version.
        """
        from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - imported only where an engine runs

        applied = HookRegistry._patched  # noqa: SLF001 - the engine has no public name for it
        missing = [target.path for target in LINEAGE_TARGETS if target.path not in applied]
        if missing:
            raise LostSightError(f"not applied by the engine: {', '.join(missing)}")
        scheduler, monitor = session.scheduler, session.monitor
        reason = _unfollowed(scheduler, pp_size)
        if reason:
            raise LostSightError(f"{reason}; QUIESCE_LINEAGE=off leaves the lineage out")
        report = Report(monitor.board, monitor.stale_read, lambda: monitor.epoch)
        table = scheduler.req_to_token_pool.req_to_token
        pages = Pages(_shape(scheduler), str(table.device))
        self._probe = LineageProbe(scheduler, Lineage(pages, Stored(self._keys), report))
        self._session = session
        session.timed_out = self._probe.lineage.flush_asked

    def _guarded(self, function: Callable[..., Any], *args: object) -> None:
        if self._session is not None:
            self._session.guarded("lineage", function, *args)

    def forward(self, _scheduler: Engine, batch: Engine, *_args: object, **_kwargs: object) -> None:
        """BEFORE `Scheduler.run_batch`. Most decode steps have nothing to write, and end here."""
        probe = self._probe
        if probe is not None and not probe.goes_on(batch.req_pool_indices):
            self._guarded(probe.forward, batch)

    def idling(self, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """BEFORE `Scheduler.on_idle`."""
        if self._probe is not None:
            self._guarded(self._probe.judge)

    def paused(self, _result: None, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """AFTER `Scheduler.pause_generation`: nothing is launched for a while, nor is the engine called idle."""
        if self._probe is not None:
            self._guarded(self._probe.judge)

    def flush(self, original: Call, *args: object, **kwargs: object) -> object:
        """AROUND `Scheduler.flush_cache`."""
        if self._probe is None:
            return original(*args, **kwargs)
        self._guarded(self._probe.judge)
        self._guarded(self._probe.lineage.flush_asked)
        granted = original(*args, **kwargs)
        if granted:
            self._guarded(self._probe.lineage.flushed)
        return granted

    def update(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """AROUND each `SchedulerWeightUpdaterManager.update_weights_from_*`; inside it the monitor counts epochs."""
        session, probe = self._session, self._probe
        before = session.monitor.epoch if session is not None else 0
        reply = original(manager, *args, **kwargs)
        if session is not None and probe is not None and session.monitor.epoch != before:
            request = args[0] if args else next(iter(kwargs.values()), None)
            asked = bool(getattr(request, "flush_cache", False))
            self._guarded(lambda: probe.lineage.loaded(session.monitor.epoch, flush_asked=asked))
        return reply

    def checkpointed(self, _result: None, _tree: Engine, req: Engine, **_kwargs: object) -> None:
        """AFTER `UnifiedRadixCache.checkpoint_into_tree`."""
        if self._probe is not None:
            self._guarded(self._probe.checkpointed, req)

    def prefetched(self, tree: Engine, operation: Engine) -> None:
        """BEFORE `UnifiedRadixCache._handle_prefetch_result`."""
        if self._probe is not None:
            self._guarded(self._probe.prefetched, tree, operation)

    def written_through(
        self, result: Engine, _controller: Engine, device_indices: Engine, *_args: object, **_kwargs: object
    ) -> None:
        """AFTER `HybridCacheController.write`, which gives the slots on the host, or None."""
        if self._probe is not None and result is not None:
            self._guarded(self._probe.lineage.to_host, device_indices, result)

    def loaded_back(
        self, result: Engine, _controller: Engine, host_indices: Engine, *_args: object, **_kwargs: object
    ) -> None:
        """AFTER `HybridCacheController.load`, which gives the slots on the device, or None."""
        if self._probe is not None and result is not None:
            self._guarded(self._probe.lineage.to_device, host_indices, result)

    def backing_up(self, _controller: Engine, host_indices: Engine, *_args: object, **_kwargs: object) -> None:
        """BEFORE `HybridCacheController.write_storage`."""
        if self._probe is not None:
            self._guarded(self._probe.lineage.to_storage, host_indices)

    def backup(self, original: Call, controller: Engine, operation: Engine) -> object:
        """AROUND `HybridCacheController._page_backup`, on the thread that writes to the storage."""
        if self._probe is None:
            return original(controller, operation)
        return self._probe.backup(original, controller, operation)


def _shape(scheduler: Engine) -> Shape:
    allocator, controller = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache.cache_controller
    size = allocator.page_size
    return Shape(
        pages=allocator.size // size,
        page_size=size,
        rows=scheduler.req_to_token_pool.req_to_token.shape[0],
        host_pages=0 if controller is None else controller.mem_pool_host.size // size + 1,
    )


def _unfollowed(scheduler: Engine, pp_size: int) -> str | None:
    """Which ways of this engine's pages are not followed; None where all are."""
    reason = census_pools.unread(scheduler, pp_size)
    if reason is not None:
        return reason
    tree = scheduler.tree_cache
    controller = tree.cache_controller
    if controller is not None and controller.mem_pool_host.page_size != tree.page_size:
        host, device = controller.mem_pool_host.page_size, tree.page_size
        return f"pages of the host have {host} tokens, those of the device {device}"
    others = {
        "speculative decoding": not scheduler.spec_algorithm.is_none(),
        "an encoder": scheduler.model_config.is_encoder_decoder,
        "an external cache": tree.linker is not None,
        "host memory that is only staging": tree.buffer_pipeline is not None,
    }
    return next((f"KV is written or moved by {name}" for name, present in others.items() if present), None)
