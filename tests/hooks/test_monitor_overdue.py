"""What lasts: ages by the monotonic clock, of passes that may all say the same."""

from __future__ import annotations

import pytest
from hooks_fakes import Bench

from engine_hooks.alignment import Alignment
from engine_hooks.errors import SettingsError
from engine_hooks.monitor import MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.monitor_overdue import OVERDUE, PATIENCE_SECONDS
from engine_hooks.settings import Settings
from engine_hooks.sglang.probes_ledgers import FirstReady

PATIENCE = 10
READY, DRAIN, RETURN, ANSWERED, ENDS = OVERDUE


@pytest.fixture
def bench() -> Bench:
    return Bench(MonitorOptions(patience=PATIENCE))


def look(bench: Bench, seconds: int, *, paused: bool = False, **variables: object) -> dict[str, int]:
    """Passes for so many seconds, one a second; what was counted so far."""
    for _ in range(seconds):
        bench.clock.now += 1.01
        (bench.paused_pass if paused else bench.observe)(**variables)
    return bench.sink.violated()


def test_what_is_ready_and_stays_is_counted_once(bench: Bench) -> None:
    state: dict[str, object] = {"ready_since": {"write_through": 5.0}, "write_through_ready": 1}
    assert look(bench, PATIENCE, **state) == {}
    assert look(bench, 3 * PATIENCE, **state) == {READY: 1}
    assert look(bench, 1) == {READY: 1}
    assert look(bench, 2 * PATIENCE, **state) == {READY: 2}


def test_what_is_ready_and_goes_is_not(bench: Bench) -> None:
    for since in range(2 * PATIENCE):
        assert look(bench, PATIENCE // 2, ready_since={"write_through": float(since)}) == {}


def test_a_pause_keeps_what_is_ready_and_is_no_running_pass(bench: Bench) -> None:
    assert look(bench, 3 * PATIENCE, paused=True, ready_since={"write_through": 5.0}) == {}


def test_an_entry_ages_in_a_pause_and_anew_after_it(bench: Bench) -> None:
    state: dict[str, object] = {"oldest": {"write_through": 5.0}, "write_through_submitted": 1}
    bench.monitor.paused("retract", "file")
    assert look(bench, 2 * PATIENCE, paused=True, **state) == {DRAIN: 1}
    bench.monitor.continued()
    assert look(bench, PATIENCE // 2, **state) == {DRAIN: 1}


def test_requests_of_which_none_moves(bench: Bench) -> None:
    for forwards in range(3 * PATIENCE):
        assert look(bench, 1, waiting=3, forwards=forwards) == {}
    assert look(bench, 2 * PATIENCE, paused=True, waiting=3, forwards=99) == {}
    assert look(bench, 2 * PATIENCE, forwards=99) == {}
    assert look(bench, 2 * PATIENCE, running=1, forwards=99) == {RETURN: 1}


def test_a_loop_that_stood_still_ages_nothing(bench: Bench) -> None:
    """A load of weights that takes an hour."""
    state: dict[str, object] = {"oldest": {"write_through": 5.0}, "waiting": 1}
    assert look(bench, 1, **state) == {}
    bench.clock.now += 3600
    assert look(bench, 1, **state) == {}


def test_a_deferred_flush_past_its_time_and_the_patience(bench: Bench) -> None:
    until = bench.clock.now + PATIENCE
    state: dict[str, object] = {"deferred_pending": True, "deferred_until": until, "running": 1}
    assert ANSWERED not in look(bench, 2 * PATIENCE - 1, **state)
    assert look(bench, 3, **state)[ANSWERED] == 1


def test_lookups_late_in_a_pause(bench: Bench) -> None:
    bench.monitor.paused("retract", "file")
    assert look(bench, 1, paused=True, lookups=1) == {}
    assert look(bench, 2 * PATIENCE, paused=True, lookups=2) == {}
    assert look(bench, 1, paused=True, lookups=3) == {ENDS: 1}


def test_lost_sight_of_the_state_judges_nothing(bench: Bench) -> None:
    bench.monitor.lost("state", "for a test")
    assert look(bench, 3 * PATIENCE, waiting=1) == {}


def test_the_head_of_a_queue_by_identity() -> None:
    ready, one, other = FirstReady(), object(), object()
    found = [ready.since(head, now) for now, head in enumerate((None, one, one, other, None, other))]
    assert found == [None, 1, 1, 3, None, 5]


def test_the_patience_of_the_environment() -> None:
    def read(text: str) -> int:
        return Settings.from_environment({"QUIESCE_PATIENCE": text}).patience_seconds()

    assert (read(""), read(" 7 ")) == (PATIENCE_SECONDS, 7)
    with pytest.raises(SettingsError, match="QUIESCE_PATIENCE='soon' is not valid; valid: a number of seconds"):
        read("soon")


def test_ranks_that_do_the_same_have_one_digest() -> None:
    def digest(*done: tuple[str, int]) -> float:
        bench = Bench()
        alignment = Alignment(Board([bench.sink]))
        for what, number in done:
            alignment.did(what, number)
        return bench.sink.gauges[("protocol_digest",)]

    same = ("pause retract", 4), ("flush refused", 9), ("flush granted", 12)
    assert digest(*same) == digest(*same)
    for other in (same[:2], same[::-1], (*same[:2], ("flush granted", 13)), (*same[:2], ("flush refused", 12))):
        assert digest(*other) != digest(*same)
