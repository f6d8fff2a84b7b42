"""Reached only through PYTHONPATH, in the engine of `test_planted`: small defects of SGLang, each a hook of its own.

They do nothing until the test writes their names into the file `defects` below the folder QUIESCE_TEST_DEFECTS; each
then says in a file of its name, with the number of the pass, that it has been carried out. The hooks are registered
before those of quiesce, which so see what a defect has made of a call.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
FLUSH = "sglang.srt.managers.scheduler_components.flush_wrapper.SchedulerFlushWrapper"
WEIGHTS = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
TREE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
ALLOCATOR = "sglang.srt.mem_cache.allocator.paged.PagedTokenToKVPoolAllocator"
LEDGERS = ("write_through", "load_back", "backup", "prefetch")


class Defects:
    """One method for each place; which defects are on is read once a pass."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._on: frozenset[str] = frozenset()
        self._told: set[str] = set()
        self._pass = 0
        self._lie: bool | None = None
        self._keeping = False
        self.places: dict[str, Callable[..., Any]] = {
            f"{SCHEDULER}.ingest_requests": self.ingest,
            f"{SCHEDULER}.is_fully_idle": self.idle,
            f"{SCHEDULER}._process_hicache_events": self.reap,
            f"{SCHEDULER}._record_scheduler_state_for_paused_engine": self.record,
            f"{SCHEDULER}.pause_generation": self.pause,
            f"{FLUSH}.check_pending": self.pending,
            f"{SCHEDULER}.record_weight_version_change": self.stamp,
            f"{WEIGHTS}.flush_cache_after_weight_update": self.flush_of_update,
            "sglang.srt.managers.schedule_batch.release_kv_cache": self.release,
            f"{ALLOCATOR}.clear": self.clear,
            f"{ALLOCATOR}.free": self.free,
            f"{ALLOCATOR}.free_segment": self.free,
            f"{TREE}.reset": self.reset,
        }

    def is_on(self, name: str) -> bool:
        if name not in self._on:
            return False
        if name not in self._told:
            self._told.add(name)
            temporary = self._folder / f"{name}.tmp"
            temporary.write_text(str(self._pass))
            temporary.replace(self._folder / f"{name}.done")
        return True

    def ingest(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        self._pass += 1
        asked = self._folder / "defects"
        self._on = frozenset(asked.read_text().split()) if asked.exists() else frozenset()
        self._told &= self._on
        result = original(scheduler, *args, **kwargs)
        for name, spoil in (("a_page_leaks", _leak), ("a_page_is_freed_twice", _free_twice)):
            if name in self._on and name not in self._told and self.is_on(name):
                spoil(scheduler.token_to_kv_pool_allocator)
        if scheduler._engine_paused and scheduler.waiting_queue:
            if self.is_on("requeue_looks_up"):
                scheduler._prefetch_kvcache(scheduler.waiting_queue[0])
            if self.is_on("launch_while_paused"):
                self._run_one_pass(scheduler)
        return result

    def _run_one_pass(self, scheduler: Any) -> None:
        """The loop misses the flag: one running pass of the normal loop."""
        scheduler._engine_paused = False
        try:
            plan = scheduler.get_next_batch_to_run(
                running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
            )
            scheduler.running_batch = plan.running_batch
            if plan.batch_to_run:
                scheduler._engine_paused = True
                scheduler.process_batch_result(plan.batch_to_run, scheduler.run_batch(plan.batch_to_run))
            scheduler.last_batch = plan.batch_to_run
        finally:
            scheduler._engine_paused = True

    def idle(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(scheduler, *args, **kwargs)
        if self._lie is not None:
            return self._lie
        if answer and kwargs.get("ignore_waiting") and self.is_on("flush_refuses_an_open_gate"):
            return False
        for ledger in LEDGERS:
            name = f"flush_ignores_{ledger}"
            if name in self._on and not answer and kwargs.get("ignore_waiting") and self._only(scheduler, ledger):
                return self.is_on(name)
        return answer

    @staticmethod
    def _only(scheduler: Any, ledger: str) -> bool:
        tree = scheduler.tree_cache
        full = [name for name in LEDGERS if len(getattr(tree, f"ongoing_{name}"))]
        return full == [ledger] and scheduler.running_batch.is_empty() and scheduler.last_batch is None

    def reap(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        if not scheduler._engine_paused and self.is_on("running_reap_skipped"):
            return None
        if scheduler._engine_paused and self.is_on("reap_skipped"):
            return None
        if scheduler._engine_paused and self.is_on("reap_retries"):
            return original(scheduler)
        return original(scheduler, *args, **kwargs)

    def pending(self, original: Any, wrapper: Any) -> Any:
        return None if self.is_on("pending_flush_forgotten") else original(wrapper)

    def record(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        for name, lie in (("record_says_idle", True), ("record_says_active", False)):
            if self.is_on(name):
                self._lie = lie
        try:
            return original(scheduler, *args, **kwargs)
        finally:
            self._lie = None

    def pause(self, original: Any, scheduler: Any, request: Any) -> Any:
        if request.mode == "retract" and self.is_on("retract_keeps_running"):
            return original(scheduler, SimpleNamespace(mode="in_place"))
        return original(scheduler, request)

    def stamp(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        return None if self.is_on("version_not_stamped") else original(scheduler, *args, **kwargs)

    def flush_of_update(self, original: Any, manager: Any, request: Any, success: bool, message: str) -> Any:  # noqa: FBT001 - the engine's own
        if self.is_on("update_claims_its_flush"):
            return success, message
        return original(manager, request, success, message)

    def release(self, original: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._keeping = (
            not request.finished() and kwargs.get("checkpoint") is False and self.is_on("retract_frees_nothing")
        )
        try:
            return original(request, *args, **kwargs)
        finally:
            self._keeping = False

    def free(self, original: Any, allocator: Any, *args: Any, **kwargs: Any) -> Any:
        return None if self._keeping else original(allocator, *args, **kwargs)

    def clear(self, original: Any, allocator: Any, *args: Any, **kwargs: Any) -> Any:
        return None if self.is_on("flush_frees_nothing") else original(allocator, *args, **kwargs)

    def reset(self, original: Any, tree: Any, *args: Any, **kwargs: Any) -> Any:
        return None if self.is_on("flush_keeps_the_tree") else original(tree, *args, **kwargs)


def _leak(allocator: Any) -> None:
    allocator.free_pages = allocator.free_pages[1:]


def _free_twice(allocator: Any) -> None:
    import torch  # noqa: PLC0415 - not before SGLang has set its environment

    allocator.free_pages = torch.cat((allocator.free_pages, allocator.free_pages[2:3]))


def install(folder: Path) -> None:
    from engine_hooks.sglang import plugin  # noqa: PLC0415 - only where defects are asked for

    register = plugin.register_hooks

    def register_hooks(environ: Any) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - as above

        if "sglang.srt.managers.scheduler" in sys.modules:
            for path, hook in Defects(folder).places.items():
                HookRegistry.register(path, hook, HookType.AROUND)
        register(environ)

    plugin.register_hooks = register_hooks


if "QUIESCE_TEST_DEFECTS" in os.environ:
    install(Path(os.environ["QUIESCE_TEST_DEFECTS"]))
