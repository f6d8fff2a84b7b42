"""A monitor with a flight recorder."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from hooks_fakes import Bench

from checker.record import Record, read_record
from engine_hooks.monitor import MonitorOptions
from engine_hooks.observation import Rank
from engine_hooks.recorder import FlightRecorder, Identity
from engine_hooks.recorder_writer import RecordWriter

IDENTITY = Identity("sglang", "0.5.23", "0.1.0", "small", "d1", Rank(1, 0, 2), "normal", ("reap-while-paused",))
HELD = {"waiting": 1, "write_through_submitted": 1}
STUCK = "paused-flush-succeeds"


class Recorded(Bench):
    """A monitor with a flight recorder that writes into `folder`."""

    def __init__(self, folder: Path, options: MonitorOptions | None = None) -> None:
        super().__init__(options)
        self.folder = folder
        self.writer = RecordWriter(folder, "tp1 pp0 dp2")
        self.recorder = FlightRecorder(IDENTITY, self.writer, self.clock)
        self.monitor.record_with(self.recorder)

    def episode(self, times: int = 1) -> None:
        """A pause in which a flush is refused and can never be granted, so often."""
        for _ in range(times):
            self.observe(running=1)
            self.monitor.paused("retract", "file")
            self.paused_pass(**HELD)
            self.monitor.flush_decided("immediate", "refused")
            self.paused_pass(**HELD)
            self.monitor.continued()

    def wait_for_folder(self) -> None:
        while not self.folder.exists():
            time.sleep(0.001)

    def files(self) -> list[Path]:
        self.writer.settle(30)
        return sorted(self.folder.glob("*"))

    def written(self) -> Record:
        (path,) = self.files()
        return read_record(path)

    def dropped(self) -> dict[str, int]:
        """Reason to number, as exported."""
        self.writer.settle(30)
        counts = self.settle().counts
        return {key[1]: n for key, n in counts.items() if key[0] == "trace_events_dropped_total"}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        r.getMessage() for r in caplog.records if "flight record" in r.getMessage() and r.levelno >= logging.WARNING
    ]
