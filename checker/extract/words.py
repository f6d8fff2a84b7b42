"""What is known of the engine's names before its source is read: the only knowledge of the engine in this package.

Three tables. `PRIMITIVES`: which of its functions is which primitive of the spec. `SCOPE`: what the profile speaks of,
as values of the engine's own settings. `IRRELEVANT`: calls that the protocol does not see, each group with its reason.
A call that is in none of them and leads to no function of the engine makes the step that it stands in unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from typing import Any, Final

from checker.extract.reading import SOME, short

SCHEDULER = ("srt/managers/scheduler.py", "Scheduler")
TREE = ("srt/mem_cache/unified_radix_cache.py", "UnifiedRadixCache")
CONTROLLER = ("srt/mem_cache/hybrid_cache/hybrid_cache_controller.py", "HybridCacheController")
BASE_CONTROLLER = ("srt/managers/cache_controller.py", "HiCacheController")
FLUSHER = ("srt/managers/scheduler_components/flush_wrapper.py", "SchedulerFlushWrapper")
UPDATER = ("srt/managers/scheduler_components/weight_updater.py", "SchedulerWeightUpdaterManager")
TOKENIZER = ("srt/managers/tokenizer_manager.py", "TokenizerManager")
WATCHDOG = ("srt/managers/scheduler_components/invariant_checker.py", "create_scheduler_watchdog")
HASHES = "srt/mem_cache/utils.py"
SETTINGS = "srt/server_args.py"
POLICY = "hicache_storage_prefetch_policy"

OBJECTS: Final[Mapping[str, tuple[str, str]]] = {
    "self.tree_cache": TREE,
    "self.cache_controller": CONTROLLER,
    "self.flush_wrapper": FLUSHER,
    "self.weight_updater": UPDATER,
    "self.scheduler": SCHEDULER,
    "scheduler": SCHEDULER,
}
"""Whose methods are called where an attribute is named: one kind of tree and controller, which the scope names."""

PRIMITIVES: Final[Mapping[str, str]] = {
    "check_hicache_events": "reap",
    "_process_storage_prefetch_retries": "retry",
    "get_new_batch_prefill": "schedule",
    "run_batch": "launch",
    "process_batch_result": "process",
    "_add_request_to_queue": "requeue",
    "is_fully_idle": "query",
    "record_scheduler_idle": "write-record",
    "record_scheduler_active": "write-record",
    "ingest_requests": "ingest",
    "result_queue.append": "put",
    "result_queue.popleft": "take",
}
"""By the name of the function. `query` and `write-record` together are `record`."""

NAMED: Final[Mapping[str, tuple[tuple[str, str], str]]] = {
    "reap": (TREE, "check_hicache_events"),
    "retry": (SCHEDULER, "_process_storage_prefetch_retries"),
    "schedule": (SCHEDULER, "get_next_batch_to_run"),
    "launch": (SCHEDULER, "run_batch"),
    "process": (SCHEDULER, "process_batch_result"),
    "requeue": (SCHEDULER, "_add_request_to_queue"),
    "abort_all": (SCHEDULER, "abort_request"),
}
"""The functions after which a profile names its primitives; the function of `record` is found."""

SCOPE: Final[Mapping[str, Any]] = {
    # No PD, no pipeline, one rank, neither pdmux nor Apple's loop: other profiles, or none, speak of these.
    "disaggregation_mode": "DisaggregationMode.NULL",
    "enable_pdmux": False,
    "get_parallel().pp_size": 1,
    "get_parallel().pp_rank": 0,
    "pp_size": 1,
    "pp_rank": 0,
    "enable_overlap_mlx": False,
    "decode_offload_manager": None,
    "get_disagg().enable_pd_role_switch": False,
    # The unified tree with HiCache: write-through, host memory as a cache, no external store.
    "enable_hierarchical_cache": True,
    "tree_cache": SOME,
    "cache_controller": SOME,
    "linker": None,
    "enable_lmcache": False,
    "enable_unified_cache_external_linker": False,
    "get_memory().enable_flexkv": False,
    "buffer_pipeline": None,
    "host_memory_mode": "cache",
    "get_memory().hicache_host_memory_mode": "cache",
    "is_write_back": False,
    # Numbers, which a signature also allows to be None.
    "_sync_hicache_ready_counts()[0]": SOME,
    "_sync_hicache_ready_counts()[1]": SOME,
    # What no profile models: diffusion models, HiSparse, elastic EP, an external corpus.
    "dllm_config": None,
    "dllm_manager.any_staging_reqs()": False,
    "enable_hisparse": False,
    "hisparse_coordinator": None,
    "external_corpus_manager": None,
    "enable_unified_memory": False,
    # The process serves: it has started and does not end.
    "gracefully_exit": False,
    # Two prefills in a row: the earlier result is processed a little sooner, in the same pass.
    "is_disable_overlap_for_batch()": False,
    # Debugging aids, off by default.
    "envs.SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY.get()": False,
}
"""What expressions are worth, by their text without `self.` and the like."""

IRRELEVANT: Final[Mapping[str, tuple[str, ...]]] = {
    "logs, clocks, metrics and events that nobody waits for": (
        "logger.*",
        "logging.*",
        "time.*",
        "*metrics_reporter.*",
        "*metrics_collector.*",
        "*time_stats.*",
        "*kv_events_publisher.*",
        "*storage_metrics_collector.*",
        "*_log_*",
        "*load_publisher.*",
        "*publish_load_snapshot",
        "flush_trace_batch",
        "*update_device_timer",
        "*load_inquirer.*",
        "snapshot*",
    ),
    "settings, which do not change while the engine serves": ("get_spec", "get_parallel", "get_memory", "get_serving"),
    "Python and torch on plain values": (
        "len",
        "any",
        "all",
        "min",
        "max",
        "int",
        "float",
        "bool",
        "str",
        "list",
        "dict",
        "set",
        "tuple",
        "map",
        "zip",
        "range",
        "enumerate",
        "iter",
        "next",
        "isinstance",
        "hasattr",
        "getattr",
        "repr",
        "deque",
        "sorted",
        "super",
        "*.append",
        "*.extend",
        "*.items",
        "*.keys",
        "*.values",
        "*.get",
        "*.copy",
        "*.tolist",
        "*.item",
        "*.finished",
        "*.is_empty",
        "*.is_extend",
        "*.is_decode",
        "*.popleft",
        "*.update",
        "*.add",
        "torch.tensor",
        "*.qsize",
        "type",
        "*.startswith",
        "Known",
        "*._replace",
    ),
    "forming a batch, within `schedule`": (
        "*process_pending_chunked_abort",
        "*stash_chunked_request",
        "*filter_batch",
        "*merge_batch",
        "*batch_size",
        "*_should_defer_prefill",
        "*dp_attn_adapter.*",
        "*_arm_prefill_decode_interval",
        "*ngram_embedding_manager.*",
        "set_schedule_time_batch",
        "*update_running_batch",
        "NextBatchPlan",
        "*filter_finished_reqs",
        "*spec_algorithm.is_none",
        "envs.*",
        "*any_staging_reqs",
    ),
    "what an idle or a finished pass looks after: checks, sampling of the launched batch, the barrier of its reads": (
        "*on_idle",
        "*launch_batch_sample_if_needed",
        "*_apply_war_barrier",
        "*is_disable_overlap_for_batch",
        "*invariant_checker.*",
        "*_pp_microbatches_drained",
    ),
    "the tree, locks, host memory and accounts of what is already retired or moved on, within `reap`": (
        "*tree_core.*",
        "*dec_lock_ref",
        "*dec_host_lock_ref",
        "*inc_lock_ref",
        "*mem_pool_host.*",
        "torch.cat",
        "*append_host_mem_release",
        "*_finish_storage_prefetch",
        "*_record_storage_prefetch_hit",
        "*_replace",
        "*_account_prefetch_outcome",
        "*_invalidate_absent_from_hit_query",
        "*_apply_cache_actions",
        "*allocate_storage_hit",
        "*_alloc_prefetch_aux_staging",
        "*finish_event.synchronize",
        "*.elapsed_time",
        "*discard_storage_prefetch_accounting",
        "*_resolve_storage_prefetch_tokens",
        "*_check_hybrid_prefetch_result",
        "*.is_terminated",
        "*.empty",
        "*update_extra_pool_hit_pages",
        "*storage_backend.get_stats",
        "StorageMetrics",
        "*prefetch_loaded_*",
        "*prefetch_outcome_stats_snapshot",
        "*ack_write_queue.pop",
        "*ack_load_queue.pop",
    ),
    "what a processed result is worth: tokens, counters, answers, within `process`": (
        "*batch_result_processor.*",
        "*process_batch_result_*",
        "*_record_step_counters",
        "*is_dllm",
        "*is_prebuilt",
        "*is_idle",
        "*_maybe_clear_mm_inputs",
        "*maybe_send_health_check_signal",
    ),
    "sends of a pipeline, which has one stage here": ("*_drain_async_work",),
}
"""Patterns of calls, by reason."""

_PATTERN: Final = re.compile("|".join(translate(pattern) for group in IRRELEVANT.values() for pattern in group))


def irrelevant(name: str) -> bool:
    """Whether the protocol does not see a call of this name."""
    return _PATTERN.match(name) is not None or _PATTERN.match(short(name)) is not None


LEDGERS: Final = ("write_through", "load_back", "backup", "prefetch")
"""Kept by the tree in an attribute `ongoing_LEDGER` each."""
