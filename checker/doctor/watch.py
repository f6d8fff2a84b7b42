"""A report as lines, once or again and again."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TextIO

import msgspec

from checker.doctor.results import Report
from checker.doctor.show import in_full, one_line_each

_REDRAW = "\x1b[H\x1b[2J"


@dataclass(frozen=True)
class Screen:
    """Where a live view goes."""

    stream: TextIO
    live: bool
    """A terminal: the view replaces itself. Else a view is written only where it says something new."""

    @classmethod
    def of_terminal(cls) -> Screen:
        """The process's stdout."""
        return cls(sys.stdout, sys.stdout.isatty())

    def show(self, lines: list[str]) -> None:
        """One view."""
        head = [_REDRAW + time.strftime("%H:%M:%S", time.gmtime()) + " UTC, Ctrl-C ends"] if self.live else []
        self.stream.write("\n".join([*head, *lines]) + "\n")
        self.stream.flush()


def printed(report: Report, *, as_json: bool = False) -> Iterator[str]:
    """The lines of a report."""
    if as_json:
        yield msgspec.json.encode(report).decode()
    elif len(report.engines) == 1:
        yield from in_full(report.engines[0])
    else:
        yield from one_line_each(report.engines)


@contextmanager
def stopped_by_interrupt() -> Iterator[Event]:
    """An event that Ctrl-C sets: what is being asked is finished first, so that there is always a last report."""
    stop = Event()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


def watched(ask: Callable[[], Report], screen: Screen, every: float, *, as_json: bool = False) -> Report:
    """Ask every so many seconds until Ctrl-C, and return the last report."""
    said: object = None
    with stopped_by_interrupt() as stop:
        while True:
            report = ask()
            says = [(d.url, d.state, d.violations, bool(d.flush), d.paused_since) for d in report.engines]
            if screen.live or as_json or says != said:
                screen.show(list(printed(report, as_json=as_json)))
            said = says
            if stop.wait(every):
                return report
