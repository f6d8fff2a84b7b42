"""Writes flight records on a thread of its own: the scheduler never waits for a disk.

One new file for each record, whole or not there at all, readable by its owner only, in the one folder that was
configured. No symbolic link is followed there, and only files with a record's name are ever removed.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from engine_hooks.record import MAX_BYTES, SUFFIX, Event, Header, Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

logger = logging.getLogger("quiesce")

MAX_FILES = 64
"""So many records are in the folder at most, of all processes that share it; the oldest makes room."""
_MAX_PENDING = 4
_SETTLE_POLL_SECONDS = 0.01

FOLDER, DISK, FILES, SIZE, BUSY, ERROR = "folder", "disk", "files", "size", "busy", "error"
DROP_REASONS = (FOLDER, DISK, FILES, SIZE, BUSY, ERROR)
"""`folder`: it is missing, no folder, a symbolic link, or not writable. `disk`: it is full or fails. `files`: there are
too many, and none can be removed. `size`: the oldest lines of a record were cut off. `busy`: the disk is too slow.
`error`: a fault of ours."""

# Begins with its time, so that the order of names is that of age.
_NAME = re.compile(r"quiesce-[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[a-z0-9-]+\.ndjson(\.tmp)?")
_UNSAFE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Job:
    """One record to write."""

    header: Header
    size: int
    """Number of its passes and events."""
    lines: Callable[[], Sequence[Pass | Event]]


class _DroppedError(Exception):
    """A record that is not written."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class RecordWriter:
    """Writes the records of one process."""

    def __init__(self, folder: Path, process: str) -> None:
        """`process` becomes part of the files' names."""
        self._folder = folder.absolute()
        self._process = _UNSAFE.sub("-", process.lower())
        self._pending: deque[Job] = deque()
        self._wake = threading.Event()
        self._submitted = self._finished = self._written = 0
        # Counted by one thread each, so that neither has to wait for a lock.
        self._dropped_here = dict.fromkeys(DROP_REASONS, 0)
        self._dropped_there = dict.fromkeys(DROP_REASONS, 0)
        self._taken = dict.fromkeys(DROP_REASONS, 0)
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="quiesce-recorder", daemon=True)
        self._thread.start()

    # On the scheduler's thread.

    def submit(self, job: Job) -> None:
        """Have a record written soon; dropped where several wait already."""
        if len(self._pending) >= _MAX_PENDING:
            self.drop(BUSY, job.size)
            return
        self._submitted += 1
        self._pending.append(job)
        self._wake.set()

    def drop(self, reason: str, number: int) -> None:
        """So many passes and events are lost."""
        self._dropped_here[reason] += number

    def take_dropped(self) -> Mapping[str, int]:
        """Reason to what was dropped since the last call; no zeros."""
        found = {}
        for reason in DROP_REASONS:
            total = self._dropped_here[reason] + self._dropped_there[reason]
            if total > self._taken[reason]:
                found[reason] = total - self._taken[reason]
                self._taken[reason] = total
        return found

    def settle(self, seconds: float) -> None:
        """Wait until nothing is left to write, at most so long."""
        deadline = time.monotonic() + seconds
        while self._finished < self._submitted and time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_SECONDS)

    # On the thread of its own.

    def _run(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self._say(FOLDER, str(error))
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._pending:
                self._try(self._pending.popleft())
                self._finished += 1

    def _try(self, job: Job) -> None:
        try:
            self._write(job)
        except _DroppedError as dropped:
            self._lose(dropped.reason, job.size, str(dropped))
        except OSError as error:
            self._lose(DISK, job.size, str(error))
        except Exception as error:  # noqa: BLE001 - the thread must outlive one bad record
            # Its type only: the text of an exception may hold anything.
            self._lose(ERROR, job.size, type(error).__name__)

    def _lose(self, reason: str, number: int, text: str) -> None:
        self._dropped_there[reason] += max(number, 1)
        self._say(reason, text)

    def _say(self, reason: str, text: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            logger.warning("quiesce: flight records in %s are dropped (%s): %s", self._folder, reason, text)

    def _write(self, job: Job) -> None:
        text, cut = encoded(job)
        folder = self._open()
        try:
            _make_room(folder)
            name = self._name(job.header)
            self._put(folder, name, text)
        finally:
            os.close(folder)
        if cut:
            self._lose(SIZE, cut, f"a record holds {MAX_BYTES} bytes")
        logger.info("quiesce: flight record %s", self._folder / name)

    def _open(self) -> int:
        """The folder itself, so that nothing put in its place meanwhile is taken for it."""
        try:
            return os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise _DroppedError(FOLDER, str(error)) from error

    def _name(self, header: Header) -> str:
        self._written += 1
        whole, fraction = divmod(int(header.at * 1_000_000), 1_000_000)
        at = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(whole))}.{fraction:06d}Z"
        return f"quiesce-{at}-{self._process}-{os.getpid()}-{self._written}-{_UNSAFE.sub('-', header.property)}{SUFFIX}"

    @staticmethod
    def _put(folder: int, name: str, text: bytes) -> None:
        """Write the file under another name, then rename it. Raises OSError, _DroppedError."""
        temporary = f"{name}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
        except (PermissionError, FileNotFoundError, FileExistsError) as error:
            raise _DroppedError(FOLDER, str(error)) from error
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(text)
                stream.flush()
                # A full disk may show only here.
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def encoded(job: Job) -> tuple[bytes, int]:
    """The text of a record, and how many of its oldest lines were cut off for its size."""
    encoder = msgspec.json.Encoder()
    lines = [encoder.encode(line) for line in job.lines()]
    # The number of forgotten lines may become longer.
    left = MAX_BYTES - len(encoder.encode(job.header)) - len(str(len(lines))) - 1
    first = len(lines)
    while first and left > len(lines[first - 1]):
        first -= 1
        left -= len(lines[first]) + 1
    header = msgspec.structs.replace(job.header, forgotten=job.header.forgotten + first)
    return b"\n".join([encoder.encode(header), *lines[first:], b""]), first


def _make_room(folder: int) -> None:
    """Remove the oldest records until one more may be there. Raises _DroppedError where it cannot."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
    for name in names[: max(0, len(names) - MAX_FILES + 1)]:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:  # another rank was faster
            continue
        except OSError as error:
            raise _DroppedError(FILES, str(error)) from error
