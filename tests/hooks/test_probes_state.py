"""Reading the scheduler's state, on stand-ins."""

# A parametrized test has booleans as arguments.
# ruff: noqa: FBT001

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hooks_fakes import Batch, ack, operation, queue_of, scheduler, tree

from engine_hooks.observation import Observation, Rank
from engine_hooks.sglang.probes_state import EngineKind, StateReader, lookups_issued, loop_name, storage_kind


def test_the_state_is_what_the_engines_gate_reads() -> None:
    batch = Batch("a", "b")
    state = scheduler(
        running_batch=batch,
        last_batch=batch,
        chunked_req=object(),
        enable_overlap=True,
        result_queue=[object()],
        waiting_queue=[1, 2, 3],
        forward_ct=9,
        _engine_paused=True,
        grammar_manager=SimpleNamespace(grammar_queue=[1]),
    )
    seen = StateReader(state, Rank(1, 2, 3), "overlap", EngineKind()).read(Observation(), 4)
    assert (seen.running, seen.waiting, seen.last_batch, seen.result_pending) == (3, 3, True, True)
    assert (seen.paused, seen.step, seen.sequence, seen.forwards) == (True, "paused", 4, 9)
    assert (seen.rank, seen.loop, seen.unmodelled) == (Rank(1, 2, 3), "overlap", ("grammar",))


def test_the_ledgers_by_stage_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 50.0)
    query, hit, loading, done = (SimpleNamespace(id=i) for i in range(4))
    one = tree(
        ongoing_write_through={1: 0, 2: 0, 3: 0, 4: 0},
        ongoing_load_back={9: 0},
        ongoing_backup={7: 0, 8: 0},
        ongoing_prefetch={
            i: SimpleNamespace(operation=o, host_indices=h)
            for i, (o, h) in enumerate([(query, None), (hit, None), (loading, [1]), (done, [1])])
        },
    )
    controller = one.cache_controller
    controller.write_queue = [operation(1)]
    controller.ack_write_queue = [ack(2, done=True), ack(3, done=False), ack(4, done=True)]
    controller.load_queue = [operation(9)]
    controller.ack_backup_queue = queue_of(SimpleNamespace(id=7))
    controller.prefetch_hit_queue = queue_of(hit)
    controller.ack_prefetch_queue = queue_of(SimpleNamespace(operation=done, completed_req=True))
    seen = StateReader(scheduler(tree_cache=one), Rank(), "normal", EngineKind()).read(Observation(), 1)
    assert (seen.write_through_queued, seen.write_through_submitted, seen.write_through_ready) == (1, 2, 1)
    assert (seen.load_back_queued, seen.load_back_submitted, seen.load_back_ready) == (1, 0, 0)
    assert (seen.backup_queued, seen.backup_ready) == (1, 1)
    assert (seen.prefetch_query, seen.prefetch_hit, seen.prefetch_loading, seen.prefetch_done) == (1, 1, 1, 1)
    assert seen.oldest == dict.fromkeys(("write_through", "load_back", "backup", "prefetch"), 50.0)


def test_a_request_that_waits_with_its_kv_closes_the_gate_of_a_decision() -> None:
    waiting = [SimpleNamespace(kv=SimpleNamespace(holds_kv=True))]
    reader = StateReader(scheduler(waiting_queue=waiting, _engine_paused=True), Rank(), "normal", EngineKind())
    assert reader.read(Observation(), 1).unmodelled == ()
    assert reader.read_decision(Observation(), 1).unmodelled == ("waiting_holds_kv",)


def test_an_engine_without_hicache_has_empty_ledgers() -> None:
    plain = scheduler(enable_hierarchical_cache=False, tree_cache=object())
    seen = StateReader(plain, Rank(), "normal", EngineKind()).read(Observation(), 1)
    assert seen.oldest == {}
    assert lookups_issued(plain)() == 0
    assert storage_kind(plain, "write_through", "cache") == "none"


@pytest.mark.parametrize(
    ("changes", "pp_size", "name"),
    [
        ({}, 1, "normal"),
        ({"enable_overlap": True}, 1, "overlap"),
        ({"enable_overlap_mlx": True}, 1, "mlx-overlap"),
        ({"enable_overlap": True}, 2, "pp"),
        ({"enable_pdmux": True}, 1, "pdmux"),
        ({"disaggregation_mode": SimpleNamespace(value="prefill"), "enable_overlap": True}, 1, "prefill-overlap"),
        ({"disaggregation_mode": SimpleNamespace(value="prefill")}, 2, "prefill-pp"),
        ({"disaggregation_mode": SimpleNamespace(value="decode")}, 1, "decode-normal"),
    ],
)
def test_loop_names(changes: dict[str, Any], pp_size: int, name: str) -> None:
    assert loop_name(scheduler(**changes), pp_size) == name


@pytest.mark.parametrize(
    ("policy", "host_mode", "enabled", "kind"),
    [
        ("write_through", "cache", True, "file"),
        ("write_through", "cache", False, "none"),
        ("write_back", "cache", True, "cache/write_back"),
        ("write_through", "buffer_only", True, "buffer_only/write_through"),
    ],
)
def test_what_a_region_was_not_proved_for_has_a_name_of_its_own(
    policy: str, host_mode: str, enabled: bool, kind: str
) -> None:
    assert storage_kind(scheduler(tree_cache=tree(enable_storage=enabled)), policy, host_mode) == kind
