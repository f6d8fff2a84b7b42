"""What a replay says, as data: the JSON of `checker replay --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

SCHEMA = 1
ACCEPTED, DIVERGES, UNKNOWN = "accepted", "diverges", "unknown"


class Wrong(msgspec.Struct, frozen=True):
    """A variable whose value the spec does not allow; `low` and `high` are what it allows, where all others stay.

    Flags count as 0 and 1. No `high`: any number from `low` on.
    """

    variable: str
    seen: int
    low: int | None = None
    high: int | None = None


class Way(msgspec.Struct, frozen=True):
    """An action that such a line can be, and why it was not: what it needs, or what would have to be otherwise."""

    action: str
    engine: str
    """The engine's own function that it models."""
    needs: Sequence[str] = ()
    wrong: Sequence[Wrong] = ()


class Divergence(msgspec.Struct, frozen=True):
    """The first line that the spec does not allow after the line before it."""

    file: str
    line: int
    step: int
    at: float
    """Unix seconds."""
    did: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    ways: Sequence[Way]


class Coverage(msgspec.Struct, frozen=True):
    """Which actions of the spec the trace showed, each with the line of the first that needed it."""

    actions: Mapping[str, str]
    missing: Sequence[str]
    states: int
    """Different states that lines show; counters that only grow are left out."""
    states_whole: bool
    """Whether all were counted; there is a limit."""
    unreachable: int | None
    """States that the spec does not reach: 0 where the trace was followed from the engine's start, else not known."""


class Replayed(msgspec.Struct, frozen=True):
    """One trace."""

    trace: str
    verdict: str
    reason: str
    engine: str
    profile: str
    spec_digest: str
    loop: str
    storage: str
    remedies: Sequence[str]
    rank: Mapping[str, int]
    steps: int
    """Accepted, repetitions counted."""
    lines: int
    from_start: bool
    """Whether the trace begins with the start of the engine; else its first state is taken as it is."""
    ended: bool
    seconds: float
    questions: int
    """What the solver was asked."""
    recorded_digest: str = ""
    """Of the spec that the engine's hooks had, remedies left out."""
    differences: Mapping[str, int] = {}
    """Known difference from the spec, allowed, to the lines that need it."""
    divergence: Divergence | None = None
    coverage: Coverage | None = None


class Alignment(msgspec.Struct, frozen=True):
    """Whether the ranks of one engine were told the same in the same order."""

    verdict: str
    ranks: Sequence[str]
    reason: str = ""
    controls: int = 0
    """Control requests that all of them have in common."""


class Report(msgspec.Struct, frozen=True):
    """The whole answer."""

    schema: int
    verdict: str
    traces: Sequence[Replayed]
    alignment: Sequence[Alignment] = ()
