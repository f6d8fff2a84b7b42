"""The exported series: names, closed label sets, and every child at 0 from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hooks_fakes import PROFILE
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from engine_hooks.metrics import SERIES, STAGES, PrometheusSink, Vocabulary
from engine_hooks.monitor_text import HOOKS, NEEDS, blocker_names

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = Vocabulary(
    properties=tuple(NEEDS),
    ledgers=tuple(PROFILE.ledgers),
    blockers=blocker_names(PROFILE),
    hooks=HOOKS,
    remedies=tuple(PROFILE.remedies),
    info=("digest", "0.1.0", "sglang", "0.5.23"),
)
RANK = {"tp_rank": "1", "pp_rank": "2", "dp_rank": "3"}
CHILDREN = {
    "quiesce_violations_total": [{"property": p} for p in NEEDS],
    "quiesce_checks_total": [{"property": p} for p in NEEDS],
    "quiesce_stuck": [{"property": p} for p in NEEDS],
    "quiesce_paused": [{"process": "scheduler"}],
    "quiesce_pause_start_timestamp_seconds": [{"process": "scheduler"}],
    "quiesce_flushes_total": [
        {"kind": k, "result": r}
        for k, r in product(["immediate", "deferred", "update", "release"], ["granted", "refused", "timed_out"])
    ],
    "quiesce_flush_blocked": [{"ledger": b} for b in ("write_through", "running", "waiting")],
    "quiesce_updates_total": [
        {"kind": k, "result": r}
        for k, r in product(["disk", "distributed", "tensor", "ipc"], ["ok", "failed", "unflushed"])
    ],
    "quiesce_update_start_timestamp_seconds": [{}],
    "quiesce_weight_epoch": [{}],
    "quiesce_version_mismatch": [{}],
    "quiesce_protocol_digest": [{}],
    "quiesce_ledger_entries": [{"ledger": "write_through", "stage": s} for s in STAGES],
    "quiesce_ledger_oldest_timestamp_seconds": [{"ledger": "write_through"}],
    "quiesce_kv_pages": [{"state": s} for s in ("free", "cached", "owned", "unaccounted")],
    "quiesce_kv_tokens_read_total": [
        {"tier": t, "lineage": k}
        for t, k in product(["device", "host", "storage"], ["current", "unknown", "mixed", "stale"])
    ],
    "quiesce_hook_applied": [{"hook": h} for h in HOOKS],
    "quiesce_remedy_active": [{"remedy": "reap-while-paused"}],
    "quiesce_trace_events_dropped_total": [{"reason": r} for r in ("folder", "disk", "files", "size", "busy", "error")],
    "quiesce_check_duration_seconds_count": [{}],
}


@pytest.fixture
def sink() -> tuple[PrometheusSink, CollectorRegistry]:
    registry = CollectorRegistry()
    return PrometheusSink(VOCABULARY, (1, 2, 3), registry), registry


@pytest.mark.parametrize("name", CHILDREN)
def test_every_child_is_there_at_zero(sink: tuple[PrometheusSink, CollectorRegistry], name: str) -> None:
    samples = {
        tuple(sorted(s.labels.items())): s.value
        for family in sink[1].collect()
        for s in family.samples
        if s.name == name
    }
    assert samples == {tuple(sorted((labels | RANK).items())): 0 for labels in CHILDREN[name]}


def test_every_series_is_tested(sink: tuple[PrometheusSink, CollectorRegistry]) -> None:
    exported = {f"quiesce_{name}" for name in SERIES}
    assert exported == {name.removesuffix("_count") for name in CHILDREN} | {"quiesce_info"}
    assert (
        sink[1].get_sample_value(
            "quiesce_info",
            RANK | {"spec_digest": "digest", "version": "0.1.0", "engine": "sglang", "engine_version": "0.5.23"},
        )
        == 1
    )


def test_writes_reach_the_child_and_a_foreign_label_is_dropped(
    sink: tuple[PrometheusSink, CollectorRegistry],
) -> None:
    writer, registry = sink
    writer.count("violations_total", ("update-flushes",), 2)
    writer.count("violations_total", ("nonsense",), 1)
    writer.gauge("stuck", ("paused-flush-succeeds",), 1)
    writer.gauge("stuck", ("nonsense",), 1)
    writer.observe("check_duration_seconds", 0.001)
    assert registry.get_sample_value("quiesce_violations_total", RANK | {"property": "update-flushes"}) == 2
    assert registry.get_sample_value("quiesce_stuck", RANK | {"property": "paused-flush-succeeds"}) == 1
    assert registry.get_sample_value("quiesce_stuck", RANK | {"property": "nonsense"}) is None
    assert registry.get_sample_value("quiesce_check_duration_seconds_count", RANK) == 1


_TWO_RANKS = """
import os, sys
import engine_hooks.sglang.plugin
assert "prometheus_client" not in sys.modules, "imported before the engine has set its variable"
os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]
from engine_hooks.metrics import PrometheusSink, Vocabulary
sink = PrometheusSink(Vocabulary(properties=("p",)), (int(sys.argv[2]), 0, 0))
sink.count("violations_total", ("p",), int(sys.argv[2]) + 1)
sink.gauge("stuck", ("p",), int(sys.argv[2]))
"""


def test_several_processes_are_read_as_the_engine_reads_them(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PROMETHEUS_MULTIPROC_DIR"}
    for rank in ("0", "1"):
        subprocess.run([sys.executable, "-c", _TWO_RANKS, str(tmp_path), rank], check=True, env=environment)
    script = (
        "from prometheus_client import CollectorRegistry, generate_latest, multiprocess\n"
        "r = CollectorRegistry(); multiprocess.MultiProcessCollector(r); print(generate_latest(r).decode())"
    )
    text = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env=environment | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    ).stdout
    values = {
        (sample.name, sample.labels["tp_rank"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in ("quiesce_violations_total", "quiesce_stuck", "quiesce_weight_epoch")
    }
    assert values == {
        ("quiesce_violations_total", "0"): 1,
        ("quiesce_violations_total", "1"): 2,
        ("quiesce_stuck", "0"): 0,
        ("quiesce_stuck", "1"): 1,
        ("quiesce_weight_epoch", "0"): 0,
        ("quiesce_weight_epoch", "1"): 0,
    }
