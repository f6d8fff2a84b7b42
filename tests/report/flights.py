"""Flight records, written by the real monitor and recorder; what the passes saw is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_hooks.compiled import compiled_profile
from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.observation import Observation
from engine_hooks.recorder import FlightRecorder, Identity
from engine_hooks.recorder_writer import RecordWriter

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = compiled_profile("sglang", "0.5.23")
assert PROFILE is not None
AT = 1_800_000_000.0


class Flight:
    """One scheduler; the clock goes on by half a second with each pass."""

    def __init__(self, folder: Path, digest: str = PROFILE.spec_digest) -> None:
        self.now = AT
        self._folder, self._number = folder, 0
        options = MonitorOptions()
        self._writer = RecordWriter(folder, "tp0")
        identity = Identity(
            "sglang", "0.5.23", "0.1.0", PROFILE.profile, digest, options.rank, options.loop, options.remedies
        )
        self.monitor = Monitor(PROFILE, Board([]), options, self._clock)
        self.monitor.record_with(FlightRecorder(identity, self._writer, self._clock))

    def _clock(self) -> float:
        return self.now

    def passes(self, *, paused: bool, **values: int) -> None:
        self.now += 0.5
        self._number += 1
        step = "paused" if paused else "running"
        seen = Observation(sequence=self._number, loop="normal", step=step, paused=paused, **values)
        if values.get("write_through_submitted"):
            seen.oldest["write_through"] = AT + 1
        self.monitor.observe(seen)

    def written(self) -> Path:
        self._writer.settle(30)
        (path,) = self._folder.glob("*.ndjson")
        return path


def founding(folder: Path, *, before: int = 0, digest: str = PROFILE.spec_digest) -> Path:
    """The founding case, after so many different passes."""
    flight = Flight(folder, digest)
    for number in range(before):
        flight.passes(paused=False, running=number % 7 + 1, lookups=number)
    flight.passes(paused=False, running=1)
    flight.passes(paused=False, running=1, write_through_submitted=1)
    flight.monitor.paused("retract", "none")
    for _ in range(3):
        flight.passes(paused=True, waiting=1, write_through_submitted=1)
    flight.monitor.weights_loaded()
    flight.monitor.flush_decided("update", "refused")
    flight.monitor.update_answered("disk", "unflushed")
    flight.passes(paused=True, waiting=1, write_through_submitted=1)
    flight._writer.settle(30)
    # The update that was answered unflushed left one too.
    (record,) = folder.glob("*paused-flush-succeeds.ndjson")
    return record


def forward_while_paused(folder: Path) -> Path:
    flight = Flight(folder)
    flight.monitor.paused("in_place", "none")
    flight.passes(paused=True, running=1)
    flight.monitor.forward()
    return flight.written()
