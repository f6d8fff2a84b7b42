"""What the doctor found, as data: the JSON of `checker doctor --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

SCHEMA = 1


class State(Enum):
    """What is known of one engine."""

    HEALTHY = "healthy"
    CANNOT_TELL = "cannot tell"
    """It runs, and not everything is watched, or not by us."""
    VIOLATED = "violated"
    """A property was violated since the engine started."""
    STUCK = "stuck"
    """Now: a flush that is wanted cannot succeed before the engine resumes."""
    UNREACHABLE = "unreachable"
    """No answer in time, or none of an engine."""

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 violated or stuck, 2 unreachable, 3 cannot tell."""
        return {State.HEALTHY: 0, State.CANNOT_TELL: 3, State.UNREACHABLE: 2}.get(self, 1)


_WORST_FIRST = (State.UNREACHABLE, State.STUCK, State.VIOLATED, State.CANNOT_TELL)


def worst(states: Iterable[State]) -> State:
    """The state of many engines: that of the one whose exit code counts most, in the order 2, 1, 3, 0."""
    found = set(states)
    return next((state for state in _WORST_FIRST if state in found), State.HEALTHY)


class Blocker(msgspec.Struct, frozen=True):
    """What holds a wanted flush back."""

    name: str
    """A ledger, or `running` or `waiting` requests."""
    entries: int
    """In flight, all ranks together; 0 for what is not a ledger."""
    seconds: float | None
    """Age of the oldest entry; None where the engine does not say."""


class Flush(msgspec.Struct, frozen=True):
    """A flush that was refused in this pause and is still wanted, or a deferred one that waits."""

    blockers: Sequence[Blocker]
    can_succeed: str
    """`yes`, `no` or `unknown`."""
    because: str


class Diagnosis(msgspec.Struct, frozen=True):
    """One engine. Times are Unix seconds, ages seconds."""

    url: str
    state: str
    summary: str
    """One line."""
    engine: str = ""
    """Name and version."""
    ranks: int = 0
    monitor: str = ""
    """Version of Quiesce and digest of its spec; of all kinds where the ranks differ."""
    watched: Sequence[str] = ()
    lost_hooks: Sequence[str] = ()
    remedies: Sequence[str] = ()
    """Active on all ranks."""
    paused: bool = False
    paused_since: float | None = None
    """None while running, and where the engine does not say since when."""
    paused_seconds: float | None = None
    updating_seconds: float | None = None
    """Age of the weight update that is being handled; None where none is."""
    flush: Flush | None = None
    """None where no flush is wanted."""
    weight_loads: Sequence[int] = ()
    """On each rank; more than one number only where they differ."""
    versions: Mapping[str, Sequence[str]] = {}
    """`scheduler` and `tokenizer` to the weight versions that they report."""
    violations: Mapping[str, int] = {}
    """Property to episodes since the engine started; those with none are left out."""
    notes: Sequence[str] = ()
    """What could not be asked, and why."""
    runbooks: Sequence[str] = ()
    """The runbooks that apply, the most urgent first."""


class Report(msgspec.Struct, frozen=True):
    """The whole answer."""

    schema: int
    state: str
    engines: Sequence[Diagnosis]
