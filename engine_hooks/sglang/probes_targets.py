"""The places in SGLang's code that are hooked: at class level, before `Scheduler.__init__` captures its methods."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
FLUSH = "sglang.srt.managers.scheduler_components.flush_wrapper.SchedulerFlushWrapper"
_WEIGHTS = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
UPDATES = tuple(f"{_WEIGHTS}.update_weights_from_{kind}" for kind in ("disk", "distributed", "tensor", "ipc"))
"""Where weights are written."""


@dataclass(frozen=True)
class Target:
    """One hooked function."""

    hook: str
    """The name that `quiesce_hook_applied` shows; one hook may need several functions."""
    path: str
    kind: str
    """Name of SGLang's HookType: AFTER, BEFORE, AROUND."""
    method: str
    """Name of the method of `Probes` that runs there."""


START = Target("profile", f"{SCHEDULER}.__init__", "AFTER", "started")

TARGETS = (
    Target("paused_pass", f"{SCHEDULER}._record_scheduler_state_for_paused_engine", "AROUND", "paused_pass"),
    Target("pause", f"{SCHEDULER}.pause_generation", "AROUND", "paused"),
    Target("resume", f"{SCHEDULER}.continue_generation", "AFTER", "continued"),
    Target("flush", f"{SCHEDULER}.flush_cache", "AROUND", "flush"),
    Target("flush", f"{_WEIGHTS}.release_memory_occupation", "AROUND", "release"),
    Target("idle", f"{SCHEDULER}.is_fully_idle", "AFTER", "idle_answered"),
    Target("census", f"{SCHEDULER}.on_idle", "BEFORE", "idling"),
    Target("deferred_flush", f"{FLUSH}.handle", "AROUND", "flush_requested"),
    Target("update", f"{_WEIGHTS}.update_weights_from_disk", "AROUND", "update_from_disk"),
    Target("update", f"{_WEIGHTS}.update_weights_from_distributed", "AROUND", "update_from_distributed"),
    Target("update", f"{_WEIGHTS}.update_weights_from_tensor", "AROUND", "update_from_tensor"),
    Target("update", f"{_WEIGHTS}.update_weights_from_ipc", "AROUND", "update_from_ipc"),
    Target("version", f"{SCHEDULER}.handle_update_weight_version", "AFTER", "version_set"),
)

ON_INSTANCE = (
    Target("pass", f"{SCHEDULER}.ingest_requests", "AROUND", "started"),
    Target("forward", f"{SCHEDULER}.run_batch", "AROUND", "forward"),
    Target("deferred_flush", f"{FLUSH}.check_pending", "AROUND", "pending_flush_checked"),
)
"""Hooked on the instance: the engine calls these in each pass, where each layer around a call costs more than a check
does. The first is one function; the others are hooked only while they matter."""


def missing_targets(targets: Iterable[Target] = (*TARGETS, *ON_INSTANCE)) -> dict[str, str]:
    """Path to reason, for each target that this engine does not have. Imports the targets' modules."""
    missing = {}
    for target in targets:
        try:
            pkgutil.resolve_name(target.path)
        except (ImportError, AttributeError) as error:
            missing[target.path] = f"{type(error).__name__}: {error}"
    return missing
