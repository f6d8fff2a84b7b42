"""Reads the lines of a trace, which may come from anywhere: in constant memory, and checked line by line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from gzip import GzipFile
from io import BufferedReader
from itertools import pairwise
from pathlib import Path

import msgspec

from engine_hooks.trace import MAX_LINE, SCHEMA, SUFFIX, End, Step, TraceHeader, TraceLine, unsealed
from spec.errors import QuiesceError

SUFFIXES = (SUFFIX, SUFFIX + ".gz")
_STEP = b'{"kind":"step",'
_CHANGED = "not the line that was written here: changed, or others are missing or moved"


class TraceError(QuiesceError):
    """A file that is no trace, or is not as it was written. The message names the line. Remedy: take the original."""


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def error(self, problem: str) -> TraceError:
        """What is wrong there."""
        return TraceError(f"{self.file}, line {self.line}: {problem}")


@dataclass(frozen=True)
class Part:
    """One file of a trace."""

    path: Path
    header: TraceHeader


@dataclass(frozen=True)
class Trace:
    """The files of one trace, in order."""

    parts: Sequence[Part]

    @property
    def header(self) -> TraceHeader:
        """The first header: what the trace is of."""
        return self.parts[0].header

    @property
    def name(self) -> str:
        """What to call it."""
        first = str(self.parts[0].path)
        return first if len(self.parts) == 1 else f"{first} (and {len(self.parts) - 1} more)"


def traces(paths: Sequence[Path]) -> list[Trace]:
    """The traces in files and folders, the parts of one trace put together. Raises TraceError."""
    files = [file for path in paths for file in _files(path)]
    groups: dict[bytes, list[Part]] = {}
    for file in dict.fromkeys(files):
        part = Part(file, _header(file))
        groups.setdefault(_identity(part.header), []).append(part)
    found = [Trace(_in_order(parts)) for parts in groups.values()]
    return sorted(found, key=lambda t: (t.header.at, sorted(t.header.rank.items()), t.name))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
    if not found:
        raise TraceError(f"{path}: no trace in this folder; a trace is a file {' or '.join('*' + s for s in SUFFIXES)}")
    return found


def _identity(header: TraceHeader) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(header, part=0, first=0, before=""), order="sorted")


def _in_order(parts: list[Part]) -> list[Part]:
    found = sorted(parts, key=lambda part: part.header.part)
    for one, other in pairwise(found):
        if other.header.part == one.header.part:
            raise TraceError(f"{one.path} and {other.path} are both part {one.header.part} of one trace; take one")
        if other.header.part != one.header.part + 1:
            raise TraceError(f"{other.path} is part {other.header.part}, but part {one.header.part + 1} is not there")
    return found


@contextmanager
def _opened(path: Path) -> Iterator[GzipFile | BufferedReader]:
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot read trace {str(path)!r}: {_said(error)}") from error


def _said(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _header(path: Path) -> TraceHeader:
    with _opened(path) as stream:
        line = stream.readline(MAX_LINE + 1)
    return _Lines(str(path)).header(line)


class _Lines:
    """The state of reading one trace."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.number = 0
        self.checksum = 0
        self._step = msgspec.json.Decoder(Step)
        self._any = msgspec.json.Decoder(TraceLine)

    @property
    def place(self) -> Place:
        """The line at hand."""
        return Place(self.file, self.number)

    def header(self, line: bytes) -> TraceHeader:
        """The header of a file. Its checksum goes on from that of the part before, which it names itself."""
        self.number = 1
        try:
            found = self._any.decode(line[:MAX_LINE])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            found = None
        if isinstance(found, TraceHeader) and found.schema != SCHEMA:
            raise self.place.error(f"schema {found.schema} is not known; this version reads {SCHEMA}")
        stripped = line[:8] == b'{"crc":"' and line[16:18] == b'",'
        if not stripped:
            raise self.place.error("no trace of this version: the first line is no header with a checksum")
        try:
            found = self._any.decode(b"{" + line[18:])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.place.error(f"no header of a trace: {error}") from error
        if not isinstance(found, TraceHeader):
            raise self.place.error("no header of a trace")
        if found.schema != SCHEMA:
            raise self.place.error(f"schema {found.schema} is not known; this version reads {SCHEMA}")
        # Before anything is looked up by what it says: a name that was changed is no name of a profile.
        if unsealed(line.removesuffix(b"\n"), _checksum(found.before, self.place)) is None:
            raise self.place.error(_CHANGED)
        return found

    def next(self, line: Step, expected: int) -> int:
        """The number of the step after this one, which must be the expected one. Raises TraceError."""
        if line.n != expected:
            raise self.place.error(f"step {line.n}, where {expected} was to come")
        if line.times != 1 and (line.times < 1 or line.do != "pass"):
            raise self.place.error(f"a {line.do} cannot be there {line.times} times")
        return expected + line.times

    def line(self, line: bytes) -> Step | End | TraceHeader:
        """One line, whole and unchanged. Raises TraceError."""
        if line[-1:] != b"\n":
            whole = "longer than a line of a trace may be" if len(line) > MAX_LINE else "cut off: it does not end"
            raise self.place.error(whole)
        found = unsealed(line[:-1], self.checksum)
        if found is None:
            raise self.place.error(_CHANGED)
        body, self.checksum = found
        try:
            if body.startswith(_STEP):
                return self._step.decode(body)
            made: Step | End | TraceHeader = self._any.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self.place.error(str(error)) from error
        return made


class Reading:
    """The steps of a trace in order, and its end where it has one; once. Raises TraceError at the first bad line."""

    def __init__(self, trace: Trace, *, open_: bool = False) -> None:
        """`open_`: a last line that is cut off is left out, since its writer was killed, or still writes."""
        self._trace = trace
        self._open = open_
        self._lines = _Lines(str(trace.parts[0].path))
        self._before = 0
        """Lines of the parts before this one."""

    @property
    def place(self) -> Place:
        """The line at hand."""
        return self._lines.place

    @property
    def number(self) -> int:
        """Of the line at hand, all parts counted."""
        return self._before + self._lines.number

    def __iter__(self) -> Iterator[Step | End]:
        lines, header = self._lines, self._trace.header
        lines.checksum = _checksum(header.before, Place(lines.file, 1))
        expected, ended = header.first, False
        for part in self._trace.parts:
            self._before += lines.number
            lines.file, lines.number = str(part.path), 0
            with _opened(part.path) as stream:
                readline = stream.readline
                while text := readline(MAX_LINE + 1):
                    if self._open and text[-1:] != b"\n" and part is self._trace.parts[-1] and not stream.peek(1):
                        return
                    lines.number += 1
                    before = lines.checksum
                    line = lines.line(text)
                    if ended:
                        raise lines.place.error("a line after the end of the trace")
                    if line.__class__ is Step:
                        expected = lines.next(line, expected)
                        yield line
                    elif isinstance(line, TraceHeader):
                        _continues(lines.place, line, header, expected, before)
                    elif isinstance(line, End):
                        if line.steps != expected - 1:
                            raise lines.place.error(f"the end of {line.steps} steps, after {expected - 1}")
                        ended = True
                        yield line


def _continues(place: Place, line: TraceHeader, first: TraceHeader, expected: int, checksum: int) -> None:
    if line.first != expected or _checksum(line.before, place) != checksum or _identity(line) != _identity(first):
        raise place.error("the header of another trace, or of another part")


def _checksum(text: str, place: Place) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise place.error(f"no checksum: {text[:20]!r}") from None
