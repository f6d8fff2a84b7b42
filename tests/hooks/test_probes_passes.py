"""What each pass runs of the hooks: one function that mostly looks away, and a launch only where it matters."""

from __future__ import annotations

import functools
from types import SimpleNamespace

from hooks_fakes import PROFILE, scheduler
from test_probes import Engine

from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.sglang.probes import Probes
from engine_hooks.sglang.probes_session import Session, Sources


def test_a_running_pass_is_read_at_intervals_and_always_while_a_flush_waits() -> None:
    engine = Engine()
    for _ in range(50):
        engine.scheduler.ingest_requests()
    engine.monitor.board.tick(force=True)
    few = engine.sink.checked()["deferred-flush-agrees"]
    assert 1 <= few < 50
    engine.scheduler.waiting_queue.append(SimpleNamespace(kv=SimpleNamespace(holds_kv=False)))
    engine.deferred()
    for _ in range(50):
        engine.scheduler.ingest_requests()
    engine.scheduler.flush_wrapper._pending = None
    for _ in range(50):
        engine.scheduler.ingest_requests()
    engine.monitor.continued()
    engine.monitor.board.tick(force=True)
    assert engine.sink.checked()["deferred-flush-agrees"] - few == 50


def test_each_pass_is_counted_and_each_paused_one_is_looked_at() -> None:
    engine = Engine()
    looks: list[object] = []
    ingested = engine.session.ingested
    engine.session.ingested = lambda received: (looks.append(received), ingested(received))  # type: ignore[method-assign, func-returns-value]
    for _ in range(20):
        assert engine.scheduler.ingest_requests() is engine.received
    assert len(looks) < 20
    looks.clear()
    engine.pause()
    for _ in range(20):
        engine.paused_pass()
    assert (len(looks), engine.session.sequence) == (20, 40)
    engine.scheduler._engine_paused = False
    engine.probes.continued(None, engine.scheduler, SimpleNamespace())
    for _ in range(20):
        engine.scheduler.ingest_requests()
    assert (len(looks), engine.session.sequence) == (21, 60)


def test_a_launch_is_hooked_only_while_it_may_be_a_violation() -> None:
    engine = Engine()
    bare = engine.scheduler.run_batch

    def continued() -> None:
        engine.scheduler._engine_paused = False
        engine.probes.continued(None, engine.scheduler, SimpleNamespace())

    for number in (1, 2):
        engine.pause("in_place")
        engine.pause("in_place")
        assert engine.scheduler.run_batch is not bare
        engine.scheduler.run_batch()
        assert engine.sink.violated()["no-forward-while-paused"] == number
        continued()
        assert engine.scheduler.run_batch is bare
    engine.scheduler.tree_cache.ongoing_write_through[5] = object()
    engine.update()
    engine.scheduler.run_batch()
    assert engine.sink.violated()["update-tells-truth"] == 1
    engine.pause()
    continued()
    assert engine.scheduler.run_batch is not bare  # of the update, still
    engine.scheduler.tree_cache.ongoing_write_through.clear()
    engine.flush()
    assert engine.scheduler.run_batch is bare
    assert engine.calls.count("forward") == 3


def test_a_launch_that_somebody_else_hooks_in_a_pause_gets_no_second_hook() -> None:
    engine = Engine()
    engine.pause()
    inner = engine.scheduler.run_batch
    engine.scheduler.run_batch = functools.partial(inner)
    for _ in range(3):
        engine.probes.continued(None, engine.scheduler, SimpleNamespace())
        engine.pause()
    seen: list[int] = []
    engine.monitor.forward = lambda: seen.append(1)  # type: ignore[method-assign]
    engine.scheduler.run_batch()
    assert (len(seen), engine.calls) == (1, ["forward"])


def test_an_engine_without_these_places_loses_sight_of_them() -> None:
    engine = Engine()
    bare = scheduler()
    monitor = Monitor(PROFILE, Board([engine.sink]), MonitorOptions())
    session = Session(bare, monitor, Sources(None, lambda: 0, lambda: "file", ()))
    Probes(lambda _: session).started(None, bare)
    session.paused("retract")
    assert [engine.sink.gauges["hook_applied", hook] for hook in ("pass", "forward")] == [0, 0]
