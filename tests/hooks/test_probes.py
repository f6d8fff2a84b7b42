"""The probes on stand-ins: what they hand to the monitor, and what becomes of their own errors."""

# A parametrized test has booleans as arguments.
# ruff: noqa: FBT001

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hooks_fakes import PROFILE, RecordingSink, operation, scheduler

from engine_hooks.compiled import compiled_profile
from engine_hooks.errors import LostSightError
from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.monitor_text import NEEDS
from engine_hooks.observation import VARIABLES, Observation, Rank
from engine_hooks.sglang.probes import Probes
from engine_hooks.sglang.probes_session import Session, Sources
from engine_hooks.sglang.probes_state import EngineKind, StateReader, lookups_issued


class Engine:
    """The scheduler's control flow, with the probes where SGLang's HookRegistry puts them."""

    def __init__(self, *, enforce: bool = False, remedies: tuple[Any, ...] = ()) -> None:
        self.scheduler = scheduler()
        self.sink = RecordingSink()
        self.calls: list[str] = []
        self.received: list[object] = []
        self.scheduler.ingest_requests = lambda: self.received
        self.scheduler.run_batch = lambda: self.calls.append("forward")
        names = ("reap-while-paused",) if remedies else ()
        self.monitor = Monitor(PROFILE, Board([self.sink]), MonitorOptions(remedies=names, enforce=enforce))
        reader = StateReader(self.scheduler, Rank(), "normal", EngineKind())
        sources = Sources(reader, lookups_issued(self.scheduler), lambda: "file", remedies)
        self.session = Session(self.scheduler, self.monitor, sources)
        self.probes = Probes(lambda _: self.session)
        self.probes.started(None, self.scheduler)

    def idle(self, *, ignore_waiting: bool = False) -> bool:
        s = self.scheduler
        idle = (
            not s.running_batch.reqs and not s.tree_cache.ongoing_write_through and not s.grammar_manager.grammar_queue
        )
        idle = idle and (ignore_waiting or not s.waiting_queue)
        self.probes.idle_answered(idle, s, ignore_waiting=ignore_waiting)
        return idle

    def flush(self) -> bool:
        def original(s: Any) -> bool:
            self.calls.append("flush")
            return self.idle(ignore_waiting=s._engine_paused)

        return bool(self.probes.flush(original, self.scheduler))

    def paused_pass(self) -> None:
        def original(_: Any) -> None:
            self.calls.append("record")
            self.idle()

        self.scheduler.ingest_requests()
        self.probes.paused_pass(original, self.scheduler)

    def pause(self, mode: str = "retract") -> None:
        self.scheduler._engine_paused = True
        self.probes.paused(lambda *_: None, self.scheduler, SimpleNamespace(mode=mode))

    def update(self, *, flush: bool = True, fails: bool = False) -> Any:
        def original(_manager: Any, _request: Any) -> Any:
            granted = not flush or self.flush()
            return SimpleNamespace(success=granted and not fails)

        return self.probes.update_from_disk(original, SimpleNamespace(), SimpleNamespace())

    def deferred(self, timeout_s: float = 1.0) -> None:
        wrapper = self.scheduler.flush_wrapper
        wrapper.check_pending = self.pending_checked

        def original(_wrapper: Any, request: Any) -> Any:
            if self.idle():
                return self.flush()
            wrapper._pending = (request, 0.0)
            return None

        self.probes.flush_requested(original, wrapper, SimpleNamespace(timeout_s=timeout_s))

    def check_pending(self, *, late: bool = False) -> None:
        self.late = late
        self.scheduler.flush_wrapper.check_pending()

    def pending_checked(self) -> None:
        """As `SchedulerFlushWrapper.check_pending`."""
        wrapper = self.scheduler.flush_wrapper
        if wrapper._pending is not None and self.idle():
            self.flush()
            wrapper._pending = None
        if self.late:
            wrapper._pending = None


def counts(engine: Engine, series: str) -> dict[tuple[str, ...], int]:
    return {key[1:]: n for key, n in engine.sink.counts.items() if key[0] == series}


def test_an_observation_has_the_variables_of_the_real_profile() -> None:
    profile = compiled_profile("sglang", "0.5.23")
    assert profile is not None
    assert set(profile.variables) <= set(VARIABLES)
    assert {*profile.always, *profile.steps, *(p for region in profile.stuck.values() for p in region)} <= set(NEEDS)
    state = Observation()
    assert profile.gates["flush"](state) is True
    assert profile.gates["deferred_flush"](state) is True


def test_the_founding_case() -> None:
    engine = Engine()
    engine.scheduler.tree_cache.ongoing_write_through[5] = object()
    engine.scheduler.tree_cache.cache_controller.write_queue.append(operation(5))
    engine.pause()
    engine.paused_pass()
    assert engine.sink.violated() == {}
    assert engine.update().success is False
    assert counts(engine, "updates_total") == {("disk", "unflushed"): 1}
    assert counts(engine, "flushes_total") == {("update", "refused"): 1}
    for _ in range(5):
        engine.paused_pass()
    assert engine.sink.violated() == {"update-flushes": 1, "paused-flush-succeeds": 1}
    assert engine.sink.gauges["weight_epoch",] == 1


def test_flush_kinds() -> None:
    engine = Engine()
    engine.flush()
    engine.update()
    engine.update(flush=False)
    engine.probes.release(lambda _: engine.flush(), SimpleNamespace())
    engine.deferred()
    engine.flush()
    assert counts(engine, "flushes_total") == {
        ("immediate", "granted"): 2,
        ("update", "granted"): 1,
        ("release", "granted"): 1,
        ("deferred", "granted"): 1,
    }
    assert counts(engine, "updates_total") == {("disk", "ok"): 2}
    assert engine.monitor.epoch == 2


def test_a_deferred_flush_that_times_out_is_wanted() -> None:
    engine = Engine()
    engine.scheduler.waiting_queue.append(SimpleNamespace(kv=SimpleNamespace(holds_kv=False)))
    engine.pause()
    engine.deferred()
    assert engine.scheduler.flush_wrapper.check_pending != engine.pending_checked  # hooked while one waits
    engine.check_pending()
    assert counts(engine, "flushes_total") == {}
    engine.paused_pass()
    assert engine.sink.violated() == {"deferred-flush-agrees": 1}
    engine.check_pending(late=True)
    engine.check_pending()
    assert engine.scheduler.flush_wrapper.check_pending == engine.pending_checked  # hooked no longer
    assert counts(engine, "flushes_total") == {("deferred", "timed_out"): 1}
    assert engine.monitor.flush_wanted
    assert engine.sink.gauges.get(("hook_applied", "gate"), 1) == 1


def test_a_deferred_flush_that_is_granted_later() -> None:
    engine = Engine()
    engine.scheduler.running_batch.reqs.append(object())
    engine.deferred()
    engine.scheduler.running_batch.reqs.clear()
    engine.check_pending()
    assert counts(engine, "flushes_total") == {("deferred", "granted"): 1}


def test_a_flush_with_a_timeout_of_none_is_immediate() -> None:
    engine = Engine()
    original = lambda *_: engine.flush()  # noqa: E731 - what the engine's handler does without a time-out
    engine.probes.flush_requested(original, engine.scheduler.flush_wrapper, SimpleNamespace(timeout_s=None))
    assert counts(engine, "flushes_total") == {("immediate", "granted"): 1}


@pytest.mark.parametrize(("could_load", "epoch"), [(True, 1), (False, 0)])
def test_a_failed_update_is_an_epoch_where_weights_may_have_been_written(could_load: bool, epoch: int) -> None:
    engine = Engine()
    manager = SimpleNamespace(_session=object() if could_load else None)
    engine.probes.update_from_tensor(lambda *_: SimpleNamespace(success=False), manager, SimpleNamespace())
    assert engine.monitor.epoch == epoch
    assert counts(engine, "updates_total") == {("tensor", "failed"): 1}


@pytest.mark.parametrize(
    ("message", "epoch"), [("Failed to get weights iterator: x.", 0), ("Failed to update weights: x.\nRolling back", 1)]
)
def test_a_failed_update_from_disk_is_an_epoch_where_loading_had_begun(message: str, epoch: int) -> None:
    engine = Engine()
    reply = SimpleNamespace(success=False, message=message)
    engine.probes.update_from_disk(lambda *_: reply, SimpleNamespace(), SimpleNamespace())
    assert engine.monitor.epoch == epoch


def test_a_term_that_the_profile_lacks_is_no_drift() -> None:
    engine = Engine()
    engine.scheduler.grammar_manager.grammar_queue.append(object())
    engine.pause()
    assert engine.flush() is False
    engine.paused_pass()
    engine.monitor.board.tick(force=True)
    assert engine.sink.gauges["hook_applied", "gate"] == 1
    assert engine.sink.violated() == {}


def test_an_engine_that_refuses_for_a_reason_unknown_to_us_is_drift() -> None:
    engine = Engine()
    engine.probes.flush(lambda _: False, engine.scheduler)
    assert engine.sink.gauges["hook_applied", "gate"] == 0


def test_the_record_is_compared_with_what_the_engine_said() -> None:
    engine = Engine()
    engine.pause()
    engine.paused_pass()
    engine.scheduler.ingest_requests()
    wrong = lambda s: engine.probes.idle_answered(False, s)  # noqa: E731 - the engine calls it like this
    engine.probes.paused_pass(wrong, engine.scheduler)
    assert engine.sink.violated() == {"idle-is-true": 1}


@pytest.mark.parametrize("place", ["ingested", "paused_pass", "flush", "paused", "update"])
def test_a_probe_that_raises_leaves_the_engine_alone(
    place: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    broken = {
        "ingested": "ingested",
        "paused_pass": "paused_pass_ended",
        "flush": "flush_begins",
        "paused": "paused",
        "update": "update_answered",
    }[place]

    def explode(*_: object) -> None:
        raise ZeroDivisionError("inside a probe")

    monkeypatch.setattr(engine.session, broken, explode)
    with caplog.at_level(logging.WARNING, "quiesce"):
        for _ in range(3):
            engine.pause()
            assert engine.flush() is True
            assert engine.update().success is True
            engine.paused_pass()
    assert engine.calls.count("record") == 3
    assert len(caplog.records) == 1
    assert "ZeroDivisionError: inside a probe" in caplog.text
    assert engine.sink.violated() == {}


def test_an_attribute_that_goes_away_loses_sight_of_the_state_only(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    del engine.scheduler.tree_cache.ongoing_prefetch
    engine.pause()
    with caplog.at_level(logging.WARNING, "quiesce"):
        for _ in range(3):
            engine.paused_pass()
            assert engine.flush() is True
    assert len(caplog.records) == 1
    assert "ongoing_prefetch" in caplog.text
    assert engine.sink.gauges["hook_applied", "state"] == 0
    assert engine.monitor.watched == {
        "update-flushes", "no-forward-while-paused", "no-stale-kv", "pages-conserved", "update-tells-truth",
        "versions-agree", "requests-conserved",
    }  # fmt: skip
    engine.scheduler.run_batch()
    assert engine.sink.violated() == {"no-forward-while-paused": 1}


def test_a_counter_that_goes_away_loses_sight_of_the_lookups_only() -> None:
    engine = Engine()
    del engine.scheduler.tree_cache._prefetch_outcome_stats["issued"]
    engine.pause()
    engine.paused_pass()
    assert engine.sink.gauges["hook_applied", "lookups"] == 0
    assert "no-new-lookup-while-paused" not in engine.monitor.watched
    assert "paused-flush-succeeds" in engine.monitor.watched


@pytest.mark.parametrize("received", [[], [object()]])
def test_a_lookup_of_a_paused_pass_is_seen_and_one_of_its_requests_is_not(received: list[object]) -> None:
    engine = Engine()
    issued = engine.scheduler.tree_cache._prefetch_outcome_stats
    engine.pause()
    for _ in range(3):
        engine.paused_pass()
    issued["issued"] += len(received)
    engine.received = received
    engine.scheduler.ingest_requests()
    engine.received = []
    engine.probes.paused_pass(lambda _: engine.idle(), engine.scheduler)
    assert engine.sink.violated() == {}

    def record(_: Any) -> None:
        issued["issued"] += 1
        engine.idle()

    engine.scheduler.ingest_requests()
    engine.probes.paused_pass(record, engine.scheduler)
    assert engine.sink.violated() == {"no-new-lookup-while-paused": 1}


def test_a_lost_pass_hook_gives_no_stale_beginning() -> None:
    engine = Engine()
    engine.pause()
    engine.paused_pass()
    engine.scheduler.tree_cache._prefetch_outcome_stats["issued"] += 1
    engine.probes.paused_pass(lambda _: engine.idle(), engine.scheduler)
    assert engine.sink.violated() == {}


def test_in_enforce_a_probe_that_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(enforce=True)
    monkeypatch.setattr(engine.session, "ingested", lambda _: 1 / 0)
    with pytest.raises(LostSightError, match="ZeroDivisionError"):
        engine.scheduler.ingest_requests()


def test_what_the_engine_raises_passes_through() -> None:
    engine = Engine()

    def original(*_: object) -> None:
        raise RuntimeError("storage thread is alive")

    with pytest.raises(RuntimeError, match="storage thread"):
        engine.probes.flush(original, engine.scheduler)
    with pytest.raises(RuntimeError, match="storage thread"):
        engine.probes.update_from_ipc(original, SimpleNamespace(), SimpleNamespace())
    assert engine.session.flush_kind == "immediate"


def test_the_remedy_runs_once_before_the_record_and_its_error_is_the_engines() -> None:
    class Remedy:
        def before_record(self) -> None:
            engine.calls.append("reap")

    engine = Engine(remedies=(Remedy(),))
    engine.pause()
    engine.paused_pass()
    engine.paused_pass()
    assert engine.calls == ["reap", "record", "reap", "record"]
    engine.session.remedies[0].before_record = lambda: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        engine.paused_pass()


def test_a_sink_that_fails_does_not_reach_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()

    def explode(*_: object) -> None:
        raise OSError("no space left")

    engine.sink.gauge = engine.sink.count = explode  # type: ignore[method-assign]
    engine.pause()
    assert engine.flush() is True
    assert engine.update().success is True
    engine.paused_pass()
    engine.probes.continued(None, engine.scheduler, SimpleNamespace())
    assert "that cannot be shown" in caplog.text


def test_handlers_may_be_called_by_keyword() -> None:
    engine = Engine()
    engine.probes.paused(lambda *_, **__: None, engine.scheduler, recv_req=SimpleNamespace(mode="retract"))
    assert engine.monitor.mode == "retract"
    reply = SimpleNamespace(success=True)
    call = lambda _manager, recv_req: recv_req.answer  # noqa: E731 - the engine's handler
    for update in (engine.probes.update_from_disk, engine.probes.update_from_ipc):
        assert update(call, SimpleNamespace(), recv_req=SimpleNamespace(answer=reply)) is reply
    assert counts(engine, "updates_total") == {("disk", "ok"): 1, ("ipc", "ok"): 1}


def test_a_session_that_cannot_start_leaves_the_engine_alone(caplog: pytest.LogCaptureFixture) -> None:
    probes = Probes(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    probes.started(None, scheduler())
    assert "nothing is watched" in caplog.text
    assert probes.flush(lambda _: "as it was", scheduler()) == "as it was"
    assert probes.paused_pass(lambda _: "as it was", scheduler()) == "as it was"
