"""Where output goes: results to stdout, prose and progress to stderr, progress only on a terminal. Injected."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from checker.results import Result


class Reporter(Protocol):
    """What a command may say."""

    def result(self, text: str) -> None:
        """A line of the result."""

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
        """One line to stdout."""
        sys.stdout.write(self._paint(text) + "\n")

    def note(self, text: str) -> None:
        """One line to stderr."""
        self._clear()
        sys.stderr.write(text + "\n")

    def progress(self, done: int, configurations: int, result: Result) -> None:
        """A status line that overwrites itself."""
        if self._live:
            text = f"{done} results of {configurations} configurations; {result.property}: {result.verdict}"
            sys.stderr.write(f"\r\x1b[K{text[:100]}")
            sys.stderr.flush()

    def finish(self) -> None:
        """Remove the status line."""
        self._clear()

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")

    def _paint(self, text: str) -> str:
        if not self._colour:
            return text
        for word, code in (("REFUTED", 31), ("proved", 32), ("unknown", 33), ("bounded", 33)):
            text = text.replace(word, f"\x1b[{code}m{word}\x1b[0m")
        return text
