"""What every remedy is: its places in the engine's code, and whether that is the code it was written for."""

from __future__ import annotations

import hashlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

# Objects of the engine; its modules are not imported here.
Engine = Any
Call = Callable[..., Any]

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
FLUSH = "sglang.srt.managers.scheduler_components.flush_wrapper.SchedulerFlushWrapper"
WEIGHTS = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
UPDATES = tuple(f"{WEIGHTS}.update_weights_from_{kind}" for kind in ("disk", "distributed", "tensor", "ipc"))


@dataclass(frozen=True)
class Place:
    """One function of the engine that a remedy wraps."""

    path: str
    method: str
    """The method of the remedy that is called around it: with the engine's function first, then its arguments."""


class Remedy:
    """One remedy in one scheduler. Its hooks are in place from the start and pass everything on until `switch_on`.

    Ranks must agree before any of them does anything, and the engine keeps bound methods from its construction on: so
    hooks come first and the decision comes later.
    """

    name: ClassVar[str]
    places: ClassVar[tuple[Place, ...]] = ()
    repairs: ClassVar[Mapping[str, str]] = {}
    """The engine's functions that it was written against, each with the `fingerprint` of its source."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Remedies that are switched on with it."""

    def needed(self) -> tuple[str, ...]:
        """Those without which it stays off in this engine: `needs`, and what must be asked for besides."""
        return self.needs

    def __init__(self) -> None:
        self.on = False

    def bind(self, scheduler: Engine) -> None:
        """Take what it needs of the engine; changes nothing.

        Raises:
            AttributeError, TypeError, ValueError: where the engine is not one that it can repair.
        """

    def switch_on(self, scheduler: Engine) -> None:  # noqa: ARG002 - for those that put something in place
        """From now on it repairs."""
        self.on = True

    def before_record(self) -> None:
        """Runs once in each paused pass, before the idle/active record is taken."""

    def differing(self) -> list[str]:
        """The functions that are not those it was written against: repaired by the engine itself, or others."""
        return [path for path, known in self.repairs.items() if fingerprint(path) != known]


def fingerprint(path: str) -> str:
    """Twelve hex digits over the source of a function, below what hooks wrap around it; empty without source."""
    try:
        source = inspect.getsource(inspect.unwrap(pkgutil.resolve_name(path)))
    except (ImportError, AttributeError, OSError, TypeError):
        return ""
    return hashlib.sha256(textwrap.dedent(source).encode()).hexdigest()[:12]
