"""Ctrl-C: one line and the exit code of what is not known, at any time, the imports included."""

from __future__ import annotations

import atexit
import os
import signal
from contextlib import suppress
from types import FrameType

from checker.verdict import EXIT_UNKNOWN

_owner = 0
"""The process that answers. A worker that was just forked has the same handler, and ends with its parent."""


def answer_interrupts() -> None:
    """From here on Ctrl-C ends this process at once, unless whoever started it had interrupts ignored."""
    global _owner  # noqa: PLW0603 - handlers are of the process, and so is this
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _owner = os.getpid()
        signal.signal(signal.SIGINT, _end)
        # Python gives a signal its default back while it ends: what was told would end with another exit code.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def raise_interrupts() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt: there are results to keep, or another process to end."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _raise)


def end_at_interrupts() -> None:
    """As before `raise_interrupts`."""
    if signal.getsignal(signal.SIGINT) is _raise:
        signal.signal(signal.SIGINT, _end)


def _end(_number: int, _frame: FrameType | None) -> None:
    if os.getpid() == _owner:
        # Not through an exception: wherever it was raised, something could catch it, or print where it came from.
        with suppress(OSError):
            os.write(2, b"checker: interrupted\n")
        os._exit(EXIT_UNKNOWN)


def _raise(_number: int, _frame: FrameType | None) -> None:
    if os.getpid() == _owner:
        raise KeyboardInterrupt
