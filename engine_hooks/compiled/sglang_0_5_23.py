"""PROVISIONAL, by hand, in the form that `python -m checker.compile` will generate."""

from engine_hooks.compiled.types import CompiledLedger, CompiledProfile, State, StuckKey


def gate_flush(s: State) -> bool:
    return (
        s.running == 0
        and not s.last_batch
        and not s.result_pending
        and (s.paused or s.waiting == 0)
        and s.write_through_queued + s.write_through_submitted + s.write_through_ready == 0
        and s.load_back_queued + s.load_back_submitted + s.load_back_ready == 0
        and s.backup_queued + s.backup_ready == 0
        and s.prefetch_query + s.prefetch_hit + s.prefetch_loading + s.prefetch_done == 0
    )


def gate_deferred_flush(s: State) -> bool:
    return gate_flush(s) and s.waiting == 0


def blocks_write_through(s: State) -> bool:
    return bool(s.write_through_queued + s.write_through_submitted + s.write_through_ready > 0)


def blocks_load_back(s: State) -> bool:
    return bool(s.load_back_queued + s.load_back_submitted + s.load_back_ready > 0)


def blocks_backup(s: State) -> bool:
    return bool(s.backup_queued + s.backup_ready > 0)


def blocks_prefetch(s: State) -> bool:
    return bool(s.prefetch_query + s.prefetch_hit + s.prefetch_loading + s.prefetch_done > 0)


def blocks_running(s: State) -> bool:
    return bool(s.running > 0 or s.last_batch or s.result_pending)


def blocks_waiting(s: State) -> bool:
    return bool(s.waiting > 0)


def stuck_retract(s: State) -> bool:
    return bool(
        s.paused
        and s.flush_wanted
        and (blocks_write_through(s) or blocks_load_back(s) or blocks_backup(s) or blocks_prefetch(s))
    )


def always_deferred_flush_agrees(s: State) -> bool:
    return bool(not s.deferred_pending or not gate_flush(s) or gate_deferred_flush(s))


def step_no_new_lookup_while_paused(s: State, t: State) -> bool:
    return bool(not (s.paused and t.paused) or t.lookups == s.lookups)


_LEDGERS = ("write_through", "load_back", "backup", "prefetch")
_BLOCKERS = {
    "write_through": blocks_write_through,
    "load_back": blocks_load_back,
    "backup": blocks_backup,
    "prefetch": blocks_prefetch,
    "running": blocks_running,
}
_REAPER = "srt/mem_cache/unified_radix_cache.py:check_hicache_events"

PROFILE = CompiledProfile(
    engine="sglang",
    engine_version="0.5.23",
    profile="sglang-0.5.23",
    spec_digest="provisional",
    variables=(
        "paused", "flush_wanted", "deferred_pending", "last_batch", "result_pending", "running", "waiting",
        "write_through_queued", "write_through_submitted", "write_through_ready",
        "load_back_queued", "load_back_submitted", "load_back_ready",
        "backup_queued", "backup_ready",
        "prefetch_query", "prefetch_hit", "prefetch_loading", "prefetch_done", "lookups",
    ),
    ledgers={
        "write_through": CompiledLedger(
            {"queued": ("write_through_queued",), "submitted": ("write_through_submitted",), "ready": ("write_through_ready",)}, _REAPER
        ),
        "load_back": CompiledLedger(
            {"queued": ("load_back_queued",), "submitted": ("load_back_submitted",), "ready": ("load_back_ready",)}, _REAPER
        ),
        "backup": CompiledLedger({"queued": (), "submitted": ("backup_queued",), "ready": ("backup_ready",)}, _REAPER, needs_storage=True),
        "prefetch": CompiledLedger(
            {"queued": ("prefetch_query",), "submitted": ("prefetch_loading",), "ready": ("prefetch_hit", "prefetch_done")},
            _REAPER,
            needs_storage=True,
        ),
    },
    gates={"flush": gate_flush, "deferred_flush": gate_deferred_flush},
    blockers={"flush": _BLOCKERS, "deferred_flush": {**_BLOCKERS, "waiting": blocks_waiting}},
    stuck={
        StuckKey(loop, "retract", storage): {"paused-flush-succeeds": stuck_retract}
        for loop in ("normal", "overlap")
        for storage in ("none", "file")
    },
    stuck_ledgers={
        StuckKey(loop, "retract", storage): {"paused-flush-succeeds": _LEDGERS}
        for loop in ("normal", "overlap")
        for storage in ("none", "file")
    },
    always={"deferred-flush-agrees": always_deferred_flush_agrees},
    steps={"no-new-lookup-while-paused": step_no_new_lookup_while_paused},
    remedies={"reap-while-paused": "each paused pass first reaps HiCache events, without storage retries"},
)
