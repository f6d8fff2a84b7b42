"""Where output goes: results to stdout, prose and progress to stderr, progress only on a terminal. Injected."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from checker.streams import visible

if TYPE_CHECKING:
    from checker.results import Result


class Reporter(Protocol):
    """What a command may say."""

    def result(self, text: str) -> None:
        """A line of the result, for people."""

    def data(self, text: str) -> None:
        """The result, for machines."""

    def note(self, text: str) -> None:
        """A line of prose for the person at the terminal."""

    def progress(self, done: int, configurations: int, result: Result) -> None:
        """One more result is known."""


class TerminalReporter:
    """Writes to the process's streams; colours verdicts on a terminal unless NO_COLOR is set."""

    def __init__(self) -> None:
        """Look at the streams once."""
        self._live = sys.stderr.isatty()
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def result(self, text: str) -> None:
        """One line to stdout. Names in it may come from a profile's file."""
        sys.stdout.write(self._paint(visible(text)) + "\n")

    def data(self, text: str) -> None:
        """To stdout as it is."""
        sys.stdout.write(text + "\n")

    def note(self, text: str) -> None:
        """One line to stderr."""
        self._clear()
        sys.stderr.write(text + "\n")

    def working(self, text: str) -> None:
        """What takes a while, until there is something to say of it."""
        if self._live:
            self._steer(f"\r\x1b[K{visible(text)[:100]}")

    def next(self, steps: Iterable[str]) -> None:
        """What to do next, for the person at the terminal; a script is told nothing."""
        if self._live:
            for step in steps:
                self.note(f"next: {visible(step)}")

    def progress(self, done: int, configurations: int, result: Result) -> None:
        """A status line that overwrites itself."""
        if self._live:
            text = f"{done} results of {configurations} configurations; {result.property}: {result.verdict}"
            self._steer(f"\r\x1b[K{text[:100]}")

    def finish(self) -> None:
        """Remove the status line."""
        self._clear()

    def _clear(self) -> None:
        if self._live:
            self._steer("\r\x1b[K")

    @staticmethod
    def _steer(text: str) -> None:
        """Past the text layer of stderr, which shows control characters escaped (checker.streams)."""
        sys.stderr.flush()
        sys.stderr.buffer.write(text.encode())
        sys.stderr.buffer.flush()

    def _paint(self, text: str) -> str:
        if not self._colour:
            return text
        for word, code in (("REFUTED", 31), ("proved", 32), ("unknown", 33), ("bounded", 33)):
            text = text.replace(word, f"\x1b[{code}m{word}\x1b[0m")
        return text
