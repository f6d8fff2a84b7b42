"""A probe that holds the scheduler is borne three times."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hooks_fakes import PROFILE, RecordingSink, scheduler

from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.sglang import probes_session
from engine_hooks.sglang.probes_session import Session, Sources

if TYPE_CHECKING:
    import pytest


class Slow:
    """A session whose probe takes as long as it is told; the time is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 100.0, 0
        monkeypatch.setattr(probes_session.time, "monotonic", lambda: self.now)
        self.sink = RecordingSink()
        monitor = Monitor(PROFILE, Board([self.sink]), MonitorOptions())
        self.session = Session(scheduler(), monitor, Sources(None, lambda: 0, lambda: "file", ()))

    def probe(self, seconds: float, hook: str = "forward") -> None:
        def function() -> None:
            self.now += seconds
            self.calls += 1

        self.session.guarded(hook, function)


def test_the_third_slow_call_is_the_last(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow(monkeypatch)
    with caplog.at_level(logging.WARNING, "quiesce"):
        for _ in range(5):
            slow.probe(1.0)
    assert slow.calls == 3
    assert slow.sink.gauges["hook_applied", "forward"] == 0
    assert "hook forward is lost (LostSightError: a call took 1.0 s, number 3 of a second or more)" in caplog.text


def test_quick_calls_and_slow_ones_of_other_hooks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    for hook in ("forward", "flush"):
        for seconds in (1.5, 0.9, 1.5):
            slow.probe(seconds, hook)
    slow.probe(0.5)
    assert slow.calls == 7
    assert slow.sink.gauges.get(("hook_applied", "forward")) != 0
