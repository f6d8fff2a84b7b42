"""Between the monitor and where its findings are shown: sinks, and how often they are written."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SECONDS_BETWEEN_WRITES = 1.0


@dataclass(frozen=True)
class Violation:
    """One episode of a property that does not hold."""

    property: str
    rank: str
    pass_number: int
    at: float
    """Wall-clock time (s) of the first pass on which it was false."""
    message: str
    """For a person: since when, which ledgers, how old, which engine function would have to run, what to do."""


class Sink(Protocol):
    """Where findings go. A sink never blocks and never raises for want of its backend."""

    def count(self, series: str, labels: tuple[str, ...], by: int) -> None:
        """Add `by` to a counter."""

    def gauge(self, series: str, labels: tuple[str, ...], value: float) -> None:
        """Set a gauge."""

    def observe(self, series: str, value: float) -> None:
        """Add an observation (s) to a histogram."""

    def report(self, violation: Violation) -> None:
        """A property's episode has begun."""

    def flush(self) -> None:
        """What was written since the last flush belongs together: show it."""


class Board:
    """Passes on counters at once, urgent gauges at once, and all else on change and at most once a second."""

    def __init__(self, sinks: Sequence[Sink], clock: Callable[[], float] = time.monotonic) -> None:
        self._sinks = tuple(sinks)
        self._clock = clock
        self._shown: dict[tuple[str, tuple[str, ...]], float] = {}
        self._pending: dict[tuple[str, tuple[str, ...]], float] = {}
        self._checks: dict[str, int] = {}
        self._due = clock()

    def attach(self, sink: Sink) -> None:
        """Write into this sink too, from now on."""
        self._sinks += (sink,)

    def count(self, series: str, *labels: str, by: int = 1) -> None:
        """Add to a counter, at once."""
        for sink in self._sinks:
            sink.count(series, labels, by)

    def checked(self, property_id: str, times: int = 1) -> None:
        """A check was evaluated; shown with the next `tick`, since some are evaluated on each pass."""
        self._checks[property_id] = self._checks.get(property_id, 0) + times

    def show(self, series: str, *labels: str, value: float, urgent: bool = False) -> None:
        """Set a gauge; nothing is written where it already shows this value."""
        key = (series, labels)
        if urgent:
            self._pending.pop(key, None)
            if self._shown.get(key) != value:
                self._write(key, value)
                self._flush_sinks()
        elif self._shown.get(key) != value:
            self._pending[key] = value
        else:
            self._pending.pop(key, None)

    def observe(self, series: str, value: float) -> None:
        """Add an observation (s) to a histogram, at once."""
        for sink in self._sinks:
            sink.observe(series, value)

    def report(self, violation: Violation) -> None:
        """Count and show a violation, at once."""
        self.count("violations_total", violation.property)
        for sink in self._sinks:
            sink.report(violation)
        self._flush_sinks()

    def now(self) -> float:
        """The time (monotonic s)."""
        return self._clock()

    def due(self) -> bool:
        """Whether a second has passed since the last tick, so that gauges are worth computing."""
        return self._clock() >= self._due

    def tick(self, *, force: bool = False) -> None:
        """Write what has changed, if a second has passed since the last time or if forced."""
        now = self._clock()
        if now < self._due and not force:
            return
        self._due = now + _SECONDS_BETWEEN_WRITES
        for key, value in self._pending.items():
            self._write(key, value)
        self._pending.clear()
        for property_id, number in self._checks.items():
            for sink in self._sinks:
                sink.count("checks_total", (property_id,), number)
        self._checks.clear()
        self._flush_sinks()

    def _write(self, key: tuple[str, tuple[str, ...]], value: float) -> None:
        self._shown[key] = value
        for sink in self._sinks:
            sink.gauge(*key, value)

    def _flush_sinks(self) -> None:
        for sink in self._sinks:
            sink.flush()
