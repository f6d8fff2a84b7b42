"""Reads a flight record, which may come from anywhere: bounded, and checked line by line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine_hooks.record import MAX_BYTES, SCHEMA, Event, Header, Line, Pass
from spec.errors import QuiesceError


class RecordError(QuiesceError):
    """A file that is no flight record, or not one of this version. The message names the line."""


@dataclass(frozen=True)
class Record:
    """One flight record."""

    header: Header
    lines: tuple[Pass | Event, ...]

    @property
    def passes(self) -> tuple[Pass, ...]:
        """Its passes, without the events."""
        return tuple(line for line in self.lines if isinstance(line, Pass))

    @property
    def events(self) -> tuple[Event, ...]:
        """Its events, without the passes."""
        return tuple(line for line in self.lines if isinstance(line, Event))


def read_record(path: Path) -> Record:
    """The record in a file. Raises RecordError."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise RecordError(f"cannot read flight record {str(path)!r}: {error.strerror}") from error
    return parsed_record(path, text)


def parsed_record(path: Path, text: bytes) -> Record:
    """The record that was read from a file. Raises RecordError."""
    if len(text) > MAX_BYTES:
        raise RecordError(f"{path}: larger than a flight record may be ({MAX_BYTES} bytes)")
    if not text.endswith(b"\n"):
        raise RecordError(f"{path}: no flight record, or cut off: its last line does not end")
    header, *lines = (_line(path, number, line) for number, line in enumerate(text.splitlines(), 1))
    if not isinstance(header, Header):
        raise RecordError(f"{path}, line 1: no header")
    if header.schema != SCHEMA:
        raise RecordError(f"{path}: schema {header.schema} is not known; this version reads {SCHEMA}")
    rest = tuple(line for line in lines if not isinstance(line, Header))
    if len(rest) < len(lines):
        raise RecordError(f"{path}: more than one header")
    return Record(header, rest)


def _line(path: Path, number: int, text: bytes) -> Line:
    try:
        line: Line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}, line {number}: {error}") from error
    return line
