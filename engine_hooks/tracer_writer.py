"""Writes a trace on a thread of its own: the scheduler never waits for a disk.

Parts of bounded size, the oldest of which make room for new ones. A trace has no gap: where a step cannot be written,
the trace ends there and says so. No symbolic link is followed, and only files with a trace's name are ever removed.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from engine_hooks.recorder_writer import BUSY, DISK, DROP_REASONS, ERROR, FOLDER
from engine_hooks.trace import SUFFIX, End, Step, TraceHeader, sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

logger = logging.getLogger("quiesce")

PART_BYTES = 8 << 20
"""No part is larger."""
KEPT_PARTS = 16
"""So many parts of one scheduler are kept at most."""
MAX_FILES = 128
"""So many parts are in the folder at most, of all processes that share it."""
_MAX_PENDING = 65_536
_WRITE_SECONDS = 0.2

_NAME = re.compile(r"quiesce-[0-9]{8}T[0-9]{6}Z-[a-z0-9-]+\.trace\.ndjson")
_UNSAFE = re.compile(r"[^a-z0-9]+")


class TraceWriter:
    """Writes the trace of one scheduler into a folder."""

    def __init__(self, folder: Path, process: str, header: TraceHeader, part_bytes: int = PART_BYTES) -> None:
        """`process` becomes part of the files' names. Raises RuntimeError where no thread can be started."""
        self._folder = folder.absolute()
        began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(header.at))
        self._stem = f"quiesce-{began}-{_UNSAFE.sub('-', process.lower())}-{os.getpid()}"
        self._header = header
        self._part_bytes = part_bytes
        self._pending: deque[Callable[[], Step] | End] = deque()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._dropped = dict.fromkeys(DROP_REASONS, 0)
        self._taken = dict.fromkeys(DROP_REASONS, 0)
        self._reason = DISK
        """Of what is lost after the end: that of the end."""
        self._stream: int | None = None
        self._part = self._size = self._steps = self._checksum = 0
        self._encoder = msgspec.json.Encoder()
        self._thread = threading.Thread(target=self._run, name="quiesce-tracer", daemon=True)
        self._thread.start()

    # On the scheduler's thread.

    def put(self, step: Callable[[], Step], number: int) -> bool:
        """Have a line written that stands for `number` steps. False: the trace has ended, this line is lost."""
        if self._closed.is_set():
            self.drop(self._reason, number)
            return False
        if len(self._pending) >= _MAX_PENDING:
            self._reason = BUSY
            self.drop(BUSY, number)
            self._end("dropped")
            return False
        self._pending.append(step)
        return True

    def close(self, reason: str, seconds: float = 5.0) -> None:
        """Write what is left and the end; wait for that at most so long."""
        self._end(reason)
        self._thread.join(seconds)

    def drop(self, reason: str, number: int) -> None:
        """So many steps are lost."""
        self._dropped[reason] += number

    def take_dropped(self) -> Mapping[str, int]:
        """Reason to what was dropped since the last call; no zeros."""
        found = {}
        for reason, total in self._dropped.items():
            if total > self._taken[reason]:
                found[reason] = total - self._taken[reason]
                self._taken[reason] = total
        return found

    def _end(self, reason: str) -> None:
        self._pending.append(End(0, reason))
        self._closed.set()
        self._wake.set()

    # On the thread of its own.

    def _run(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            while not self._write_pending():
                self._wake.wait(_WRITE_SECONDS)
        except OSError as error:
            self._fail(FOLDER if self._stream is None else DISK, str(error))
        except Exception as error:  # noqa: BLE001 - said, and counted as a drop
            # Its type only: the text of an exception may hold anything.
            self._fail(ERROR, type(error).__name__)
        finally:
            if self._stream is not None:
                os.close(self._stream)

    def _fail(self, reason: str, text: str) -> None:
        self._reason = reason
        self._closed.set()
        self._dropped[reason] += max(1, len(self._pending))
        logger.warning("quiesce: the trace in %s ends (%s): %s", self._folder, reason, text)

    def _write_pending(self) -> bool:
        """Write what waits, in one go; whether the trace is over."""
        lines: list[bytes] = []
        over = False
        while self._pending and not over:
            made = self._pending.popleft()
            over = isinstance(made, End)
            line = msgspec.structs.replace(made, steps=self._steps) if isinstance(made, End) else made()
            if self._stream is None or self._size > self._part_bytes:
                self._put(lines)
                self._open(self._steps + 1)
            lines.append(self._sealed(line))
            if isinstance(line, Step):
                self._steps = line.n + line.times - 1
        self._put(lines)
        return over

    def _sealed(self, line: Step | End | TraceHeader) -> bytes:
        text, self._checksum = sealed(self._encoder.encode(line), self._checksum)
        self._size += len(text)
        return text

    def _put(self, lines: list[bytes]) -> None:
        """Write whole lines and forget them."""
        text, number = memoryview(b"".join(lines)), len(lines)
        lines.clear()
        whole = 0 if self._stream is None else os.lseek(self._stream, 0, os.SEEK_CUR)
        try:
            while text and self._stream is not None:
                text = text[os.write(self._stream, text) :]
        except OSError:
            if self._stream is not None:
                os.ftruncate(self._stream, whole)  # needs no room, and leaves no line that is cut off
            self._dropped[DISK] += number
            raise

    def _open(self, first: int) -> None:
        """Begin the next part; the checksum goes on from one part to the next."""
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            self._make_room(folder)
            self._part += 1
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            name = f"{self._stem}-{self._part:06d}{SUFFIX}"
            self._stream = os.open(name, flags, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        self._size = 0
        header = msgspec.structs.replace(self._header, part=self._part, first=first, before=f"{self._checksum:08x}")
        self._put([self._sealed(header)])

    def _make_room(self, folder: int) -> None:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
        own = [name for name in names if name.startswith(f"{self._stem}-")]
        gone = own[: max(0, len(own) - KEPT_PARTS + 1)]
        others = [name for name in names if name not in gone]
        gone += others[: max(0, len(others) - MAX_FILES + 1)]
        for name in gone:
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:  # another rank was faster
                continue
