"""A sink that remembers, a profile small enough to predict, and stand-ins for what the probes read."""

from __future__ import annotations

import queue
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from engine_hooks.compiled import CompiledLedger, CompiledProfile, StuckKey
from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.observation import VARIABLES, Observation

if TYPE_CHECKING:
    from engine_hooks.monitor_board import Violation

REAPER = "srt/mem_cache/unified_radix_cache.py:check_hicache_events"
KEY = StuckKey("normal", "retract", "file")


def in_flight(s: Any) -> int:
    return s.write_through_queued + s.write_through_submitted + s.write_through_ready


def gate(s: Any) -> bool:
    return s.running == 0 and in_flight(s) == 0 and (s.paused or s.waiting == 0)


def deferred_gate(s: Any) -> bool:
    return gate(s) and s.waiting == 0


def blocked(s: Any) -> bool:
    return in_flight(s) > 0


BLOCKERS = {"write_through": blocked, "running": lambda s: s.running > 0}
PROFILE = CompiledProfile(
    engine="sglang",
    engine_version="0.5.23",
    profile="small",
    spec_digest="d1",
    variables=VARIABLES,
    ledgers={
        "write_through": CompiledLedger(
            {
                "queued": ("write_through_queued",),
                "submitted": ("write_through_submitted",),
                "ready": ("write_through_ready",),
            },
            REAPER,
        )
    },
    gates={"flush": gate, "deferred_flush": deferred_gate},
    blockers={"flush": BLOCKERS, "deferred_flush": {**BLOCKERS, "waiting": lambda s: s.waiting > 0}},
    stuck={
        KEY: {"paused-flush-succeeds": lambda s: s.paused and s.flush_wanted and in_flight(s) > 0},
        # With the remedy no state is stuck, which is not the same as no region being known.
        replace(KEY, remedies=("reap-while-paused",)): {},
    },
    stuck_ledgers={KEY: {"paused-flush-succeeds": ("write_through",)}},
    always={"deferred-flush-agrees": lambda s: not s.deferred_pending or not gate(s) or deferred_gate(s)},
    steps={"no-new-lookup-while-paused": lambda s, t: not (s.paused and t.paused) or t.lookups == s.lookups},
    remedies={"reap-while-paused": "each paused pass first reaps"},
)


@dataclass
class RecordingSink:
    """Keeps every number that it is given."""

    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    gauges: dict[tuple[str, ...], float] = field(default_factory=dict)
    written: list[tuple[tuple[str, ...], float]] = field(default_factory=list)
    observed: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    flushes: int = 0

    def count(self, series: str, labels: tuple[str, ...], by: int) -> None:
        self.counts[series, *labels] += by

    def gauge(self, series: str, labels: tuple[str, ...], value: float) -> None:
        self.gauges[series, *labels] = value
        self.written.append(((series, *labels), value))

    def observe(self, series: str, _value: float) -> None:
        self.observed[series] += 1

    def report(self, violation: Violation) -> None:
        self.violations.append(violation)

    def flush(self) -> None:
        self.flushes += 1

    def violated(self) -> dict[str, int]:
        """Property to its number of violations."""
        return {key[1]: n for key, n in self.counts.items() if key[0] == "violations_total"}

    def checked(self) -> dict[str, int]:
        """Property to its number of checks."""
        return {key[1]: n for key, n in self.counts.items() if key[0] == "checks_total"}


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A monitor with its sink and its clock."""

    def __init__(
        self, options: MonitorOptions | None = None, profile: CompiledProfile = PROFILE, kind: type[Monitor] = Monitor
    ) -> None:
        self.sink = RecordingSink()
        self.clock = Clock()
        self.board = Board([self.sink], self.clock)
        self.monitor = kind(profile, self.board, options or MonitorOptions(), self.clock)
        self.passes = 0

    def observe(self, **variables: Any) -> None:
        """A running pass that ends in this state."""
        self.passes += 1
        self.monitor.observe(Observation(sequence=self.passes, loop="normal", **variables))

    def paused_pass(self, *, began: dict[str, Any] | None = None, **variables: Any) -> None:
        """A paused pass that began and ended in this state, unless it is said how it began."""
        self.passes += 1
        common = {"paused": True, "step": "paused", "loop": "normal", "sequence": self.passes}
        before = Observation(**common, **(variables if began is None else began))
        before.recorded_idle = None
        self.monitor.observe(Observation(**common, **variables), before)

    def settle(self, **variables: Any) -> RecordingSink:
        """Have everything written that is held back, by a running pass that ends in this state."""
        self.clock.now += 2
        self.observe(**variables)
        return self.sink


def event(*, done: bool) -> Any:
    return SimpleNamespace(query=lambda: done)


def operation(*nodes: int) -> Any:
    return SimpleNamespace(node_ids=list(nodes))


def ack(*nodes: int, done: bool) -> Any:
    return SimpleNamespace(node_ids=list(nodes), finish_event=event(done=done))


def queue_of(*items: Any) -> queue.Queue[Any]:
    filled: queue.Queue[Any] = queue.Queue()
    for item in items:
        filled.put(item)
    return filled


class Batch:
    def __init__(self, *requests: Any) -> None:
        self.reqs = list(requests)

    def is_empty(self) -> bool:
        return not self.reqs


def tree(**changes: Any) -> Any:
    controller = SimpleNamespace(
        write_queue=[],
        ack_write_queue=[],
        load_queue=[],
        ack_load_queue=[],
        ack_backup_queue=queue_of(),
        prefetch_hit_queue=queue_of(),
        ack_prefetch_queue=queue_of(),
        storage_backend_type="file",
    )
    fields = {
        "cache_controller": controller,
        "ongoing_write_through": {},
        "ongoing_load_back": {},
        "ongoing_backup": {},
        "ongoing_prefetch": {},
        "enable_storage": True,
        "_prefetch_outcome_stats": {"issued": 0},
    }
    return SimpleNamespace(**(fields | changes))


def scheduler(**changes: Any) -> Any:
    """What the probes read of a scheduler, quiescent and running."""
    fields = {
        "tree_cache": tree(),
        "enable_hierarchical_cache": True,
        "enable_lmcache": False,
        "enable_hisparse": False,
        "enable_overlap": False,
        "enable_overlap_mlx": False,
        "enable_pdmux": False,
        "disaggregation_mode": SimpleNamespace(value="null"),
        "dllm_config": None,
        "grammar_manager": SimpleNamespace(grammar_queue=[]),
        "flush_wrapper": SimpleNamespace(_pending=None),
        "running_batch": Batch(),
        "last_batch": None,
        "chunked_req": None,
        "result_queue": [],
        "waiting_queue": [],
        "forward_ct": 0,
        "_engine_paused": False,
    }
    return SimpleNamespace(**(fields | changes))
