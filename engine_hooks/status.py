"""A small JSON status file per process, for engines without `/metrics`. It holds no prompts and no tokens."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_hooks.monitor_board import Violation

SCHEMA = 1
_KEPT_VIOLATIONS = 16
_SECONDS_BETWEEN_FILES = 0.05

logger = logging.getLogger("quiesce")


class StatusFile:
    """A sink that keeps the latest values and has a thread of its own write them: the scheduler never waits for a disk.

    The file is replaced atomically and only its owner may read it (mode 0600).
    """

    def __init__(self, directory: Path, name: str, identity: Mapping[str, Any]) -> None:
        """Raises OSError where the directory cannot be made."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / f"{name}.json"
        self._identity = {"schema": SCHEMA, "pid": os.getpid(), **identity}
        self._series: dict[str, dict[str, float]] = {}
        self._violations: deque[Violation] = deque(maxlen=_KEPT_VIOLATIONS)
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write_changes, name="quiesce-status", daemon=True)
        self._thread.start()

    def count(self, series: str, labels: tuple[str, ...], by: int) -> None:
        """Add `by` to a counter."""
        with self._lock:
            values = self._series.setdefault(series, {})
            key = ",".join(labels)
            values[key] = values.get(key, 0) + by

    def gauge(self, series: str, labels: tuple[str, ...], value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._series.setdefault(series, {})[",".join(labels)] = value

    def observe(self, series: str, value: float) -> None:
        """Histograms are not in the file."""

    def report(self, violation: Violation) -> None:
        """Keep the text of the last violations."""
        with self._lock:
            self._violations.append(violation)

    def flush(self) -> None:
        """Have the file written soon."""
        self._changed.set()

    def close(self, timeout: float = 5.0) -> None:
        """Write once more and end the thread, waiting at most `timeout` seconds."""
        self._closing.set()
        self._changed.set()
        self._thread.join(timeout)

    def snapshot(self) -> dict[str, Any]:
        """What the file holds: identity, `series` (name to comma-joined labels to value), the last violations."""
        with self._lock:
            series = {name: dict(values) for name, values in self._series.items()}
            violations = [asdict(violation) for violation in self._violations]
        return {**self._identity, "updated": time.time(), "series": series, "violations": violations}

    def _write_changes(self) -> None:
        failed = False
        while True:
            self._changed.wait()
            self._changed.clear()
            try:
                self._write()
            except OSError as error:
                if not failed:
                    logger.warning("quiesce: status file %s is out of date: %s", self.path, error)
                failed = True
            else:
                failed = False
            if self._closing.is_set() and not self._changed.is_set():
                return
            self._closing.wait(_SECONDS_BETWEEN_FILES)

    def _write(self) -> None:
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(self.snapshot(), stream, indent=1, sort_keys=True)
            temporary.replace(self.path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
