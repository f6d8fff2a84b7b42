"""The tracer: tells a writer each step that a scheduler takes, with the state after it, and counts what repeats.

Called from the scheduler's thread only. Nothing here waits or raises: what fails ends the trace, is counted and logged
once. A paused loop spins; its passes all end in the same state, and cost one tuple comparison each.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from engine_hooks.recorder_writer import ERROR
from engine_hooks.trace import Do, Step, TraceState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_hooks.tracer_writer import TraceWriter

logger = logging.getLogger("quiesce")

_WRITE_SECONDS = 0.5
"""A repeated pass is told at the latest so long after it began."""

Values = tuple[Any, ...]
"""Of trace.STATE_FIELDS, in that order."""


class Tracer:
    """The trace of one scheduler."""

    def __init__(
        self,
        read: Callable[[], Values],
        writer: TraceWriter,
        clock: Callable[[], float] = time.time,
        note: Callable[[], str] = str,
    ) -> None:
        """`read` gives the state now, `note` what else is to be said of it; empty by default."""
        self._read = read
        self._note = note
        self._writer = writer
        self._clock = clock
        self._number = 0
        self._last: tuple[Do, str, Values, str] | None = None
        self._first = 0
        self._times = 0
        self._at = 0.0
        self._dead = False

    def did(self, do: Do, how: str = "") -> None:
        """A step has just been taken."""
        if self._dead:
            return
        try:
            values = self._read()
            self._take(do, how, self._note(), values)
        except Exception as error:  # noqa: BLE001 - a tracer must never end the watching
            self._fail(error)

    def take_dropped(self) -> Mapping[str, int]:
        """Reason to the number of steps that were not written, since the last call; no zeros."""
        return self._writer.take_dropped()

    def close(self, reason: str = "closed") -> None:
        """Write what is left, and the end."""
        if self._dead:
            return
        self._dead = True
        self._tell()
        self._writer.close(reason)

    def _take(self, do: Do, how: str, note: str, values: Values) -> None:
        self._number += 1
        now = self._clock()
        what = (do, how, values, note)
        if do == "pass" and what == self._last and now - self._at < _WRITE_SECONDS:
            self._times += 1
            return
        self._tell()
        self._last, self._first, self._times, self._at = what, self._number, 1, now

    def _tell(self) -> None:
        if self._last is None:
            return
        do, how, values, note = self._last
        self._last = None
        first, times, at = self._first, self._times, self._at
        if not self._writer.put(lambda: Step(first, do, TraceState(*values), how, times, round(at, 6), note), times):
            self._dead = True

    def _fail(self, error: Exception) -> None:
        self._writer.drop(ERROR, 1)
        # Its type only: the text of an exception may hold anything.
        logger.warning("quiesce: the trace ends: %s", type(error).__name__)
        self.close("lost")
