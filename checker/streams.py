"""The process's streams: a write that fails ends the command in one place, whoever wrote.

Results go to stdout: a reader that has gone (`| head -1`) ends the command quietly, a full disk or a closed stdout is
one line and exit code 2. Prose goes to stderr, with control characters escaped: they may come from a file or a command
line, and must not steer a terminal. Where stderr is closed or full, the command goes on without it.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TextIO

from checker.verdict import EXIT_UNKNOWN, EXIT_USAGE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def guard_streams() -> None:
    """Put streams in the place of Python's that behave as said above. Python has None for one that is closed."""
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        # Another process that is started from here must not find it closed either.
        os.set_inheritable(2, True)  # noqa: FBT003 - takes no keyword
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        _refuse("it is closed")
    sys.stdout = _like(sys.stdout, io.TextIOWrapper, _Results(1, "w", closefd=False))
    sys.stderr = _like(sys.stderr, _Visible, _Prose(2, "w", closefd=False))


def visible(text: str) -> str:
    """The text with its control characters escaped, but for the ends of lines."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _like(stream: TextIO, kind: type[io.TextIOWrapper], raw: io.FileIO) -> io.TextIOWrapper:
    lines, through = stream.line_buffering, bool(getattr(stream, "write_through", False))
    buffer = io.BufferedWriter(raw)
    return kind(buffer, stream.encoding, stream.errors, line_buffering=bool(lines), write_through=through)


class _Results(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os._exit(EXIT_UNKNOWN)
        except OSError as error:
            _refuse(error.strerror or str(error))


class _Prose(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            # It is lost, and is not tried again.
            return len(memoryview(data))


class _Visible(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        # click tells a text stream from a binary one by whether it refuses bytes.
        return super().write(visible(text) if isinstance(text, str) else text)


def _refuse(problem: str) -> NoReturn:
    """End here and now: what is in a buffer cannot be written either."""
    with suppress(OSError):
        os.write(2, f"checker: stdout cannot be written: {problem}\n".encode())
    os._exit(EXIT_USAGE)
