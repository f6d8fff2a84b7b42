"""The flight recorder: keeps the last passes and events of one scheduler, and has them written at a violation.

Its memory is bounded: two rings of fixed length, in which what repeats is counted. Passes and events have a ring each,
so that a client that flushes without end cannot push out the passes, nor a spinning loop the events.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from engine_hooks.observation import COMPARED, VARIABLES
from engine_hooks.record import SCHEMA, Event, Header, Pass, State
from engine_hooks.recorder_writer import ERROR, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from engine_hooks.monitor_board import Violation
    from engine_hooks.observation import Observation, Rank
    from engine_hooks.recorder_writer import RecordWriter

logger = logging.getLogger("quiesce")

KEPT_PASSES = 256
KEPT_EVENTS = 128
_NAME_LENGTH = 64
_COUNTED = frozenset(("flushes_total", "updates_total"))
_SHOWN = frozenset((
    "paused", "stuck", "flush_blocked", "update_start_timestamp_seconds", "weight_epoch", "version_mismatch",
    "hook_applied",
))  # fmt: skip
"""The series whose changes are events."""
_TIMES = frozenset(("update_start_timestamp_seconds",))
"""Those that show a time, recorded as 1: the line has a time of its own."""
_CONTEXT = len(COMPARED) - len(VARIABLES)

# Of observation.COMPARED, in that order.
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Identity:
    """What a record says of the engine that it is of."""

    engine: str
    engine_version: str
    version: str
    profile: str
    spec_digest: str
    rank: Rank
    loop: str
    remedies: tuple[str, ...] = ()


@dataclass(slots=True)
class _Kept:
    """An entry of a ring; what repeats it is counted in it."""

    order: int
    at: float
    first: int
    last: int
    what: Any
    """Of a pass: its values before (or None) and after. Of an event: series, labels, value, and those of a state."""
    times: int = 1
    forwards: int = 0
    oldest: tuple[tuple[str, float], ...] = ()


class FlightRecorder:
    """A sink for events and violations; the monitor gives it the passes. Called from the scheduler's thread only.

    Nothing here waits or raises: what fails ends the recorder, is counted and logged once.
    """

    def __init__(self, identity: Identity, writer: RecordWriter, clock: Callable[[], float] = time.time) -> None:
        self._identity = identity
        self._writer = writer
        self._clock = clock
        self._passes: deque[_Kept] = deque(maxlen=KEPT_PASSES)
        self._events: deque[_Kept] = deque(maxlen=KEPT_EVENTS)
        self._made = 0
        self._number = 0
        self._storage = ""
        self._dead = False

    # What the monitor tells.

    def passed(self, seen: Observation, values: tuple[Values | None, Values], *, repeated: bool) -> None:
        """A pass was observed; `values` are those of its start (where read) and end, `repeated` where as before."""
        if self._dead:
            return
        try:
            self._number = number = seen.sequence
            last = self._passes[-1] if self._passes else None
            if last is not None and (repeated or last.what == values):
                last.last = number
                last.times += 1
                last.forwards = seen.forwards
                return
            oldest = tuple(seen.oldest.items()) if seen.oldest else ()
            self._passes.append(
                _Kept(self._made, self._clock(), number, number, values, forwards=seen.forwards, oldest=oldest)
            )
            self._made += 1
        except Exception as error:  # noqa: BLE001 - a recorder must never end the watching
            self._fail(error)

    def granted(self, gate: str, values: Values) -> None:
        """The engine found a gate open in the state with these values, which need not be that of any pass's end."""
        self._event(("gate", (gate,), None, values))

    def paused(self, storage: str) -> None:
        """A pause began or goes on, with this kind of storage tier."""
        # A name may come from the command line of the engine, so its length has a bound.
        self._storage = storage[:_NAME_LENGTH]

    def take_dropped(self) -> Mapping[str, int]:
        """Reason to the number of passes and events that were not written, since the last call; no zeros."""
        return self._writer.take_dropped()

    def settle(self, seconds: float) -> None:
        """Wait until what was reported is written or dropped; for `enforce`, which ends the process."""
        self._writer.settle(seconds)

    # As a sink.

    def count(self, series: str, labels: tuple[str, ...], by: int) -> None:
        """Keep an event where the counter is one of the protocol's."""
        if by and series in _COUNTED:
            self._event((series, labels, None, None))

    def gauge(self, series: str, labels: tuple[str, ...], value: float) -> None:
        """Keep an event where the gauge is one of the protocol's."""
        if series in _SHOWN:
            self._event((series, labels, float(value > 0) if series in _TIMES else float(value), None))

    def observe(self, series: str, value: float) -> None:
        """Histograms are not recorded."""

    def report(self, violation: Violation) -> None:
        """An episode began: hand over a copy of what is kept."""
        if self._dead:
            self._writer.drop(ERROR, 1)
            return
        try:
            kept = [*_frozen(self._passes), *_frozen(self._events)]
            header = self._header(violation, self._made - len(kept))
            self._writer.submit(Job(header, len(kept), lambda: _lines(kept)))
        except Exception as error:  # noqa: BLE001 - a recorder must never end the watching
            self._fail(error)

    def flush(self) -> None:
        """Nothing to do."""

    def _event(self, what: tuple[str, tuple[str, ...], float | None, Values | None]) -> None:
        if self._dead:
            return
        try:
            last = self._events[-1] if self._events else None
            if last is not None and last.what == what:
                last.last = self._number
                last.times += 1
                return
            self._events.append(_Kept(self._made, self._clock(), self._number, self._number, what))
            self._made += 1
        except Exception as error:  # noqa: BLE001 - a recorder must never end the watching
            self._fail(error)

    def _header(self, violation: Violation, forgotten: int) -> Header:
        own = self._identity
        return Header(
            schema=SCHEMA,
            engine=own.engine,
            engine_version=own.engine_version,
            version=own.version,
            profile=own.profile,
            spec_digest=own.spec_digest,
            rank=own.rank._asdict(),
            loop=own.loop,
            remedies=own.remedies,
            storage=self._storage,
            property=violation.property,
            pass_number=violation.pass_number,
            at=violation.at,
            message=violation.message,
            forgotten=forgotten,
        )

    def _fail(self, error: Exception) -> None:
        self._dead = True
        self._writer.drop(ERROR, 1)
        # Its type only: the text of an exception may hold anything.
        logger.warning("quiesce: the flight recorder ends: %s", type(error).__name__)


def _frozen(ring: deque[_Kept]) -> list[_Kept]:
    """The entries of a ring; only the last one of a ring ever changes, so only that one is copied."""
    entries = list(ring)
    if entries:
        entries[-1] = copy(entries[-1])
    return entries


def _lines(kept: Iterable[_Kept]) -> list[Pass | Event]:
    """The lines of a record, made on the writer's thread."""
    ordered = sorted(kept, key=attrgetter("order"))
    return [_event_line(entry) if isinstance(entry.what[0], str) else _pass_line(entry) for entry in ordered]


def _event_line(entry: _Kept) -> Event:
    series, labels, value, values = entry.what
    state = State(*values[_CONTEXT:]) if values is not None else None
    return Event(entry.first, entry.last, entry.times, entry.at, series, labels, value, state)


def _pass_line(entry: _Kept) -> Pass:
    before, after = entry.what
    mode, recorded_idle, unmodelled = after[:_CONTEXT]
    differs = before is not None and before[_CONTEXT:] != after[_CONTEXT:]
    return Pass(
        first=entry.first,
        last=entry.last,
        times=entry.times,
        at=entry.at,
        forwards=entry.forwards,
        state=State(*after[_CONTEXT:]),
        began=State(*before[_CONTEXT:]) if differs else None,
        mode=mode,
        recorded_idle=recorded_idle,
        unmodelled=unmodelled,
        oldest=dict(entry.oldest),
    )
