"""The monitor's episodes, with exact counts."""

# A parametrized test has booleans as arguments.
# ruff: noqa: FBT001

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hooks_fakes import KEY, PROFILE, REAPER, Bench

from engine_hooks.errors import LostSightError, ProtocolViolationError
from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_overdue import OVERDUE
from engine_hooks.monitor_text import HOOKS, NEEDS

STUCK = ("stuck", "paused-flush-succeeds")
BLOCKED = ("flush_blocked", "write_through")


def refused(bench: Bench, kind: str = "immediate") -> None:
    bench.monitor.flush_decided(kind, "refused")


def paused_with_copy_in_flight(bench: Bench) -> None:
    bench.monitor.paused("retract", "file")
    bench.paused_pass(write_through_submitted=1)


def test_stuck_is_said_on_the_first_paused_pass_after_the_refusal_and_counted_once() -> None:
    bench = Bench()
    paused_with_copy_in_flight(bench)
    assert bench.sink.violated() == {}
    refused(bench)
    assert bench.sink.gauges.get(STUCK) != 1
    bench.paused_pass(write_through_submitted=1)
    assert bench.sink.violated() == {"paused-flush-succeeds": 1}
    assert bench.sink.gauges[STUCK] == 1
    assert bench.sink.gauges[BLOCKED] == 1
    for _ in range(100):
        bench.paused_pass(write_through_submitted=1)
    for _ in range(100):
        bench.paused_pass(write_through_ready=1)
    refused(bench)
    bench.paused_pass(write_through_ready=1)
    assert bench.sink.violated() == {"paused-flush-succeeds": 1}
    assert [v.pass_number for v in bench.sink.violations] == [2]


def test_it_says_what_a_person_needs(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.monitor.paused("retract", "file")
    refused(bench)
    with caplog.at_level(logging.ERROR, "quiesce"):
        bench.paused_pass(write_through_submitted=2, write_through_ready=1, oldest={"write_through": 990.0})
    (record,) = caplog.records
    text = record.getMessage()
    for needed in ("paused-flush-succeeds", "write_through (2 submitted, 1 ready", REAPER, "continue_generation"):
        assert needed in text
    assert "the oldest seen 10.00 s ago" in text
    assert text == f"quiesce: {bench.sink.violations[0].message}"


@pytest.mark.parametrize("ending", ["granted", "continued"])
def test_an_episode_ends_with_the_goal_or_continue(ending: str) -> None:
    bench = Bench()
    for expected in (1, 2):
        paused_with_copy_in_flight(bench)
        refused(bench)
        bench.paused_pass(write_through_submitted=1)
        assert bench.sink.violated() == {"paused-flush-succeeds": expected}
        if ending == "granted":
            bench.monitor.flush_decided("immediate", "granted")
        else:
            bench.monitor.continued()
        assert bench.sink.gauges[STUCK] == 0
        assert bench.sink.gauges[BLOCKED] == 0


def test_the_gate_opening_ends_the_episode_and_the_want_remains() -> None:
    bench = Bench()
    paused_with_copy_in_flight(bench)
    refused(bench)
    bench.paused_pass(write_through_submitted=1)
    bench.paused_pass()
    assert bench.sink.gauges[STUCK] == 0
    assert bench.monitor.flush_wanted
    bench.paused_pass(write_through_submitted=1)
    assert bench.sink.violated() == {"paused-flush-succeeds": 2}


def test_with_the_remedy_a_slow_transfer_is_no_violation() -> None:
    bench = Bench(MonitorOptions(remedies=("reap-while-paused",)))
    paused_with_copy_in_flight(bench)
    refused(bench)
    for _ in range(50):
        bench.paused_pass(write_through_submitted=1)
    assert bench.sink.violated() == {}
    assert bench.sink.gauges[BLOCKED] == 1
    assert bench.sink.gauges["hook_applied", "stuck_region"] == 1
    bench.paused_pass()
    assert bench.sink.gauges[BLOCKED] == 0


def test_in_place_is_never_stuck() -> None:
    bench = Bench()
    bench.monitor.paused("in_place", "file")
    refused(bench)
    bench.paused_pass(running=1, write_through_submitted=1)
    assert bench.sink.violated() == {}
    assert bench.sink.gauges.get(("hook_applied", "stuck_region"), 1) == 1


def test_a_retract_during_an_in_place_pause_makes_it_a_retract() -> None:
    bench = Bench()
    bench.monitor.paused("in_place", "file")
    refused(bench)
    bench.monitor.paused("retract", "file")
    bench.monitor.paused("in_place", "file")
    bench.paused_pass(write_through_submitted=1)
    assert bench.sink.violated() == {"paused-flush-succeeds": 1}


def test_a_refusal_before_the_pause_is_not_a_want() -> None:
    bench = Bench()
    refused(bench)
    paused_with_copy_in_flight(bench)
    assert not bench.monitor.flush_wanted
    assert bench.sink.violated() == {}


def test_without_a_region_for_the_configuration_it_says_so_once_and_does_not_judge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    applied = ("hook_applied", "stuck_region")
    with caplog.at_level(logging.WARNING, "quiesce"):
        for _ in range(3):
            bench.monitor.paused("retract", "cache/write_back")
            refused(bench)
            bench.paused_pass(write_through_submitted=1)
            bench.monitor.continued()
    assert bench.sink.gauges[applied] == 0
    assert bench.sink.violated() == {}
    assert len(caplog.records) == 1
    bench.monitor.paused("retract", KEY.storage)
    assert bench.sink.gauges[applied] == 1


def test_update_flushes_counts_an_unflushed_update_once_a_pause() -> None:
    bench = Bench()
    bench.monitor.paused("retract", "file")
    for _ in range(3):
        bench.monitor.update_answered("disk", "unflushed")
    bench.monitor.update_answered("tensor", "failed")
    assert bench.sink.violated() == {"update-flushes": 1}
    assert bench.sink.counts["updates_total", "disk", "unflushed"] == 3
    assert bench.sink.counts["updates_total", "tensor", "failed"] == 1
    assert bench.settle().checked()["update-flushes"] == 4


@pytest.mark.parametrize("mode", [None, "in_place"])
def test_update_flushes_is_about_a_pause_by_retract(mode: str | None) -> None:
    bench = Bench()
    if mode:
        bench.monitor.paused(mode, "file")
    bench.monitor.update_answered("disk", "unflushed")
    assert bench.sink.violated() == {}


def test_a_forward_while_paused_is_one_violation_a_pause() -> None:
    bench = Bench()
    bench.monitor.forward()
    for _ in range(2):
        bench.monitor.paused("in_place", "none")
        for _ in range(5):
            bench.monitor.forward()
        bench.monitor.continued()
    assert bench.sink.violated() == {"no-forward-while-paused": 2}


def test_each_launch_is_a_check_whether_or_not_it_was_hooked() -> None:
    bench = Bench()
    for launched in (3, 3, 11):
        bench.clock.now += 2
        bench.observe(forwards=launched)
    checked = bench.settle(forwards=11).checked()
    assert [checked[p] for p in ("no-forward-while-paused", "no-stale-kv", "update-tells-truth")] == [11, 11, 11]


def test_stale_kv_from_the_refused_flush_of_an_update_until_a_flush_is_granted() -> None:
    bench = Bench()
    bench.monitor.update_answered("disk", "ok")
    bench.monitor.forward()
    assert bench.sink.violated() == {}
    bench.monitor.update_answered("disk", "unflushed")
    bench.monitor.forward()
    bench.monitor.forward()
    assert bench.sink.violated() == {"no-stale-kv": 1, "update-tells-truth": 1}
    bench.monitor.flush_decided("immediate", "granted")
    bench.monitor.forward()
    assert bench.sink.violated() == {"no-stale-kv": 1, "update-tells-truth": 1}


def test_a_deferred_flush_that_waits_where_an_immediate_one_would_pass() -> None:
    bench = Bench()
    bench.monitor.paused("retract", "file")
    bench.paused_pass(deferred_pending=True, waiting=2)
    bench.paused_pass(deferred_pending=True, waiting=2)
    assert bench.sink.violated() == {"deferred-flush-agrees": 1}
    assert bench.sink.gauges["flush_blocked", "waiting"] == 1
    bench.monitor.flush_decided("deferred", "timed_out")
    assert bench.monitor.flush_wanted
    bench.paused_pass(waiting=2)
    bench.paused_pass(deferred_pending=True, waiting=2)
    assert bench.sink.violated() == {"deferred-flush-agrees": 2}


def test_a_lookup_started_by_a_paused_pass() -> None:
    bench = Bench()
    bench.monitor.paused("retract", "file")
    bench.paused_pass(lookups=3)
    # Started by a request that arrived, before the paused part of the pass.
    bench.paused_pass(lookups=4)
    assert bench.sink.violated() == {}
    bench.paused_pass(began={"lookups": 4}, lookups=5)
    assert bench.sink.violated() == {"no-new-lookup-while-paused": 1}


@pytest.mark.parametrize(
    ("recorded", "state", "holds"),
    [
        (True, {}, True),
        (False, {"write_through_ready": 1}, True),
        (False, {"waiting": 1}, True),
        (False, {"unmodelled": ("grammar",)}, True),
        (True, {"write_through_ready": 1}, False),
        (False, {}, False),
    ],
)
def test_idle_record(recorded: bool, state: dict[str, object], holds: bool) -> None:
    bench = Bench()
    bench.monitor.paused("retract", "file")
    bench.paused_pass(recorded_idle=recorded, **state)
    assert bench.sink.violated() == ({} if holds else {"idle-is-true": 1})
    assert bench.settle().checked()["idle-is-true"] == 1


def test_a_flush_granted_with_its_gate_closed_is_a_violation() -> None:
    bench = Bench()
    seen = bench_observation(write_through_submitted=1)
    bench.monitor.gate_answered("flush", seen, open_=True)
    assert bench.sink.violated() == {"flush-only-when-quiescent": 1}


def test_a_gate_that_disagrees_with_the_engine_ends_what_rests_on_it() -> None:
    bench = Bench()
    bench.monitor.paused("retract", "file")
    bench.monitor.gate_answered("flush", bench_observation(), open_=False)
    assert bench.sink.gauges["hook_applied", "gate"] == 0
    refused(bench)
    bench.paused_pass(write_through_submitted=1, recorded_idle=True)
    assert bench.sink.violated() == {}
    bench.monitor.forward()
    assert bench.sink.violated() == {"no-forward-while-paused": 1}


def test_what_the_profile_does_not_model_closes_the_gate_without_drift() -> None:
    bench = Bench()
    bench.monitor.gate_answered("flush", bench_observation(unmodelled=("grammar",)), open_=False)
    assert bench.sink.gauges.get(("hook_applied", "gate"), 1) == 1
    assert bench.sink.violated() == {}


def bench_observation(**variables: object) -> object:
    from engine_hooks.observation import Observation  # noqa: PLC0415 - kept next to its use

    return Observation(**variables)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_lost_hook_ends_exactly_the_checks_that_need_it(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(MonitorOptions(unasked=frozenset()))
    with caplog.at_level(logging.WARNING, "quiesce"):
        bench.monitor.lost(hook, "for a test")
        bench.monitor.lost(hook, "again")
    assert len(caplog.records) == 1
    assert bench.sink.gauges["hook_applied", hook] == 0
    assert bench.monitor.watched == {p for p, needs in NEEDS.items() if hook not in needs}


def test_a_profile_with_a_variable_that_no_probe_provides() -> None:
    bench = Bench(profile=replace(PROFILE, variables=(*PROFILE.variables, "moons")))
    assert bench.sink.gauges["hook_applied", "state"] == 0
    bench.monitor.paused("retract", "file")
    refused(bench)
    bench.paused_pass(write_through_submitted=1)
    assert bench.sink.violated() == {}


def test_losing_sight_ends_a_stuck_verdict() -> None:
    bench = Bench()
    paused_with_copy_in_flight(bench)
    refused(bench)
    bench.paused_pass(write_through_submitted=1)
    bench.monitor.lost("state", "for a test")
    assert bench.sink.gauges[STUCK] == 0
    assert bench.sink.gauges[BLOCKED] == 0


def test_an_update_whose_flush_is_out_of_sight_is_not_called_failed() -> None:
    bench = Bench()
    bench.monitor.lost("flush", "for a test")
    bench.monitor.update_answered("disk", "failed")
    assert bench.sink.counts["updates_total", "disk", "failed"] == 0


def test_enforce_raises() -> None:
    bench = Bench(MonitorOptions(enforce=True))
    paused_with_copy_in_flight(bench)
    refused(bench)
    with pytest.raises(ProtocolViolationError, match="paused-flush-succeeds"):
        bench.paused_pass(write_through_submitted=1)
    with pytest.raises(LostSightError, match="hook idle is lost"):
        bench.monitor.lost("idle", "for a test")


def test_epoch_counts_loads() -> None:
    bench = Bench()
    bench.monitor.weights_loaded()
    bench.monitor.weights_loaded()
    assert bench.sink.gauges["weight_epoch",] == 2


def test_gauges_are_written_on_change_and_at_most_once_a_second() -> None:
    bench = Bench()
    bench.observe(write_through_submitted=1)
    series = ("ledger_entries", "write_through", "submitted")
    writes = lambda: [value for key, value in bench.sink.written if key == series]  # noqa: E731 - read twice
    assert writes() == [1]
    for number in range(2, 12):
        bench.observe(write_through_submitted=number)
    assert writes() == [1]
    bench.clock.now += 1.5
    bench.observe(write_through_submitted=7)
    assert writes() == [1, 7]
    bench.clock.now += 1.5
    bench.observe(write_through_submitted=7)
    assert writes() == [1, 7]


def test_a_clean_run_counts_no_violation_and_every_check() -> None:
    bench = Bench(MonitorOptions(remedies=("reap-while-paused",)))
    for number in range(200):
        bench.observe(running=1, forwards=number)
        bench.monitor.forward()
        bench.monitor.paused("retract", "file")
        bench.paused_pass(waiting=1, recorded_idle=False, write_through_submitted=1)
        bench.paused_pass(waiting=1, recorded_idle=False)
        bench.monitor.gate_answered("flush", bench_observation(paused=True, waiting=1), open_=True)
        bench.monitor.flush_decided("update", "granted")
        bench.monitor.weights_loaded()
        bench.monitor.update_answered("disk", "ok")
        bench.monitor.continued()
    assert bench.settle(forwards=200).violated() == {}
    assert bench.sink.checked() == {
        "deferred-flush-agrees": 601,
        "no-new-lookup-while-paused": 400,
        "idle-is-true": 400,
        "paused-flush-succeeds": 400,
        "no-forward-while-paused": 200,
        "no-stale-kv": 200,
        "flush-only-when-quiescent": 200,
        "update-flushes": 200,
        "update-tells-truth": 200,
        **dict.fromkeys(OVERDUE, 2),
    }


def test_the_monitor_is_the_one_that_is_tested() -> None:
    assert Bench().monitor.__class__ is Monitor
