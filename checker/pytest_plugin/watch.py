"""Reads what the monitors of running engines report, and says what was violated meanwhile.

The channel is the status file that each scheduler writes (QUIESCE_STATUS_DIR): it needs no port and no metrics,
outlives its process, and is inherited by whatever starts the engine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil
import pytest

from checker.pytest_plugin.tell import explained
from engine_hooks.monitor_text import NEEDS
from engine_hooks.status import SCHEMA
from spec.errors import UnknownNameError

SETTLE_SECONDS = 10.0
"""A scheduler writes once a second while it makes passes, so one that is silent for longer has stopped making them."""
_POLL_SECONDS = 0.02
_REGION = "paused-flush-succeeds"


class Seen(msgspec.Struct, frozen=True):
    """One episode, as the monitor reported it."""

    property: str
    rank: str
    pass_number: int
    at: float
    message: str


class Status(msgspec.Struct, frozen=True):
    """One status file. Files of another schema are not read."""

    schema: int
    pid: int
    updated: float
    engine: str
    engine_version: str
    series: Mapping[str, Mapping[str, float]]
    violations: tuple[Seen, ...]

    @property
    def name(self) -> str:
        """Which engine, for people."""
        return f"{self.engine} {self.engine_version} (process {self.pid})"

    @property
    def counted(self) -> Mapping[str, float]:
        """Property to its episodes so far; the file tells only the last ones."""
        return self.series.get("violations_total", {})

    @property
    def lives(self) -> bool:
        """Whether its process runs."""
        try:
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@dataclass(frozen=True)
class Wanted:
    """What a block or a test enforces."""

    properties: tuple[str, ...] = ()
    """Only these; empty means all that are watched."""
    allow: tuple[str, ...] = ()
    required: bool = True
    """Whether it fails where no monitor reports, or one cannot see."""

    def __post_init__(self) -> None:
        """Raises UnknownNameError for a property that no monitor watches."""
        for name in (*self.properties, *self.allow):
            if name not in NEEDS:
                raise UnknownNameError("watched property", name, NEEDS)

    def covers(self, property_id: str) -> bool:
        """Whether a violation of it counts."""
        return property_id not in self.allow and (not self.properties or property_id in self.properties)


@dataclass
class Watch:
    """What the engines that report into `folder` (or below it) violate from now on."""

    folder: Path
    begun: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        """Remember what is known already."""
        before = self.read()
        self._known = {(path, seen) for path, status in before.items() for seen in status.violations}
        self._counted = {path: dict(status.counted) for path, status in before.items()}

    def read(self) -> Mapping[Path, Status]:
        """Every status file now."""
        found = {}
        for path in sorted(self.folder.rglob("*.json")):
            try:
                status = msgspec.json.decode(path.read_bytes(), type=Status)
            except (OSError, msgspec.MsgspecError):
                continue
            if status.schema == SCHEMA:
                found[path] = status
        return found

    def settled(self, seconds: float = SETTLE_SECONDS) -> list[Status]:
        """Wait until each running engine has told all that it saw up to now; returns those that did not in time."""
        asked, deadline = time.time(), time.monotonic() + seconds
        while silent := [s for s in self.read().values() if s.updated <= asked and s.lives]:
            if time.monotonic() > deadline:
                return silent
            time.sleep(_POLL_SECONDS)
        return []

    def violations(self, wanted: Wanted) -> list[str]:
        """An explanation for each episode that began meanwhile, the earliest first."""
        told: list[tuple[float, str]] = []
        for path, status in self.read().items():
            new = [s for s in status.violations if (path, s) not in self._known and wanted.covers(s.property)]
            told += [(seen.at, explained(seen, status)) for seen in new]
            told += [(status.updated, text) for text in self._untold(path, status, new, wanted)]
        return [text for _at, text in sorted(told)]

    def _untold(self, path: Path, status: Status, new: list[Seen], wanted: Wanted) -> Iterator[str]:
        """The file tells the last episodes only; those that were counted and are not told any more count too."""
        before = self._counted.get(path, {})
        for name, count in status.counted.items():
            missing = int(count - before.get(name, 0)) - sum(seen.property == name for seen in new)
            if missing > 0 and wanted.covers(name):
                yield f"{name} was violated {missing} more times on {status.name}; the status file tells the last only"

    def blind(self, wanted: Wanted, silent: Iterable[Status] = ()) -> list[str]:
        """Why it is not known whether the protocol was kept; empty where it is known."""
        statuses = [status for status in self.read().values() if status.updated >= self.begun]
        if not statuses:
            where = f"no monitor reported into {self.folder}"
            return [f"{where}; is quiesce installed beside an SGLang that ran meanwhile, and QUIESCE not off?"]
        said = [f"{s.name} has written no status for {SETTLE_SECONDS:g} s: it makes no passes" for s in silent]
        for status in statuses:
            lost = {hook for hook, works in status.series.get("hook_applied", {}).items() if not works}
            for name, needs in NEEDS.items():
                gone = sorted(lost & (needs | ({"stuck_region"} if name == _REGION else set())))
                if gone and wanted.covers(name):
                    said.append(f"{name} is not checked on {status.name}: lost {', '.join(gone)}")
        return said

    def verdict(self, wanted: Wanted, silent: Iterable[Status] = ()) -> str:
        """What to fail with; empty where the protocol was kept, as far as `wanted` asks."""
        problems = self.violations(wanted)
        if not problems and wanted.required:
            problems = [f"quiesce: cannot tell: {text}" for text in self.blind(wanted, silent)]
        return "\n\n".join(problems)


def folder_of(engine: object) -> Path:
    """Where an engine reports. Raises pytest.UsageError for what names no such place."""
    __tracebackhide__ = True
    if engine is None:
        if folder := os.environ.get("QUIESCE_STATUS_DIR"):
            return Path(folder)
        raise pytest.UsageError(
            "assert_protocol() without an engine watches the engines of this session, and the session is not watched: "
            "mark a test with @pytest.mark.quiesce, run pytest with --quiesce, or set QUIESCE_STATUS_DIR"
        )
    found: Any = getattr(engine, "status_dir", engine)
    if isinstance(found, str | os.PathLike):
        return Path(found)
    raise pytest.UsageError(
        f"assert_protocol({engine!r}): give a quiesce_engine, an object with `status_dir`, or the folder that the "
        "engine has as QUIESCE_STATUS_DIR"
    )


@dataclass
class _Block:
    wanted: Wanted
    watch: Watch

    def __enter__(self) -> None:
        """The watch has begun."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        __tracebackhide__ = True
        if error is None:
            if said := self.watch.verdict(self.wanted, self.watch.settled()):
                pytest.fail(said)
        elif isinstance(error, (Exception, pytest.fail.Exception)):
            self.watch.settled()
            for text in self.watch.violations(self.wanted):
                error.add_note(text)


def assert_protocol(
    engine: object = None, *, properties: tuple[str, ...] = (), allow: tuple[str, ...] = ()
) -> AbstractContextManager[None]:
    """Fail the test where the monitor of a running engine saw a violation inside the `with` block.

    It also fails where it cannot tell: no monitor reports, one is silent, or one has lost a hook that a property needs.
    An exception of the block itself stays what it is, with the explanation as a note.

    Args:
        engine: an object with `status_dir`, or a folder of status files; None: the engines of a watched session.
        properties: only these; all that are watched by default.
        allow: not these.

    Raises:
        UnknownNameError: a property that no monitor watches.
        pytest.UsageError: `engine` names no place where one reports.
    """
    __tracebackhide__ = True
    return _Block(Wanted(tuple(properties), tuple(allow)), Watch(folder_of(engine)))
