"""The facts that make up a profile: what one engine version has and does, each with the function it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Loop:
    """One event loop: the primitives of a paused and of a running pass, in order.

    A loop that does not honour the pause has running passes only, paused or not.
    """

    source: str
    paused: tuple[str, ...]
    running: tuple[str, ...]
    result_queue: bool = False
    honours_pause: bool = True


@dataclass(frozen=True)
class PauseMode:
    """What the pause handler does, in order, and whether it sets the scheduler's flag."""

    source: str
    sets_flag: bool
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Move:
    """One move of a ledger's entries. `by` is a primitive (moves all) or an actor outside (moves the first)."""

    from_: str
    to: str
    by: str
    source: str
    or_to: str | None = None
    """Where the entries go that the actor does not take on, e.g. a lookup that is revoked."""
    retried: bool = False
    """Whether what went to `or_to` may be tried again later."""
    starts: str | None = None
    """The ledger in which each retired entry starts one of its own, where that ledger exists."""
    fair: str = "none"


@dataclass(frozen=True)
class LedgerFacts:
    """One kind of in-flight work: stages in order, and the moves between them."""

    source: str
    reaper: str
    stages: tuple[str, ...]
    metric: Mapping[str, str]
    moves: tuple[Move, ...]
    needs: str | None = None
    created_by: str = ""
    """What starts new entries: `arrive`, `process` or `requeue`. Empty for the ledgers that the model itself starts."""
    entry: str = ""
    """What one entry is, in the words of the engine."""


@dataclass(frozen=True)
class PrefetchFacts:
    """Lookups in the storage tier."""

    source: str
    threshold_tokens: int
    on_requeue: bool
    retry_attempts: int
    cut_at_admission: bool
    declines: str = ""
    """What a retry costs that is not sent, since too little is left to look up: `spent`, an attempt, or `free`. Empty:
    every retry is sent."""


@dataclass(frozen=True)
class Gate:
    """A predicate that a control request must pass, and what it waits for."""

    source: str
    waits_for: tuple[str, ...]
    waiting: str
    names: tuple[str, ...] = ()
    """What a refusal reports, in the words of `waits_for`, and `waiting`. Empty: this profile does not say."""


@dataclass(frozen=True)
class FlushFacts:
    """What a granted flush does."""

    source: str
    clears: tuple[str, ...]
    joins_storage_threads: bool


@dataclass(frozen=True)
class UpdateFacts:
    """What a weight update does about the caches and the forward in flight."""

    source: str
    flush: str
    waits_for_forward: bool
    stamps: str = "before-flush"
    """When the scheduler takes the new version: `before-flush`, or `on-success` together with the tokenizer."""


@dataclass(frozen=True)
class RequestFacts:
    """How a pause can turn requests away."""

    source: str = ""
    queue_limit: bool = False
    """Whether a limit on queued requests is set, which a retract applies to requests that were running."""
    clocks_count_pause: bool = False
    """Whether a time-out of waiting requests is set, which goes on while paused."""


@dataclass(frozen=True)
class StorageFacts:
    """How pages are named in the storage tier."""

    source: str
    key: str


@dataclass(frozen=True)
class WatchdogFacts:
    """Whether the watchdog can tell a pause from a hang."""

    source: str
    knows_pause: bool


@dataclass(frozen=True)
class Matrix:
    """What a verdict is checked for: each combination of the tuples."""

    loop: tuple[str, ...]
    mode: tuple[str, ...]
    storage: tuple[str, ...]
    write_policy: str
    host_mode: str
    ranks: int


@dataclass(frozen=True)
class Configuration:
    """One combination; part of every verdict."""

    loop: str
    mode: str
    storage: str
    write_policy: str = "write_through"
    host_mode: str = "cache"
    ranks: int = 1

    def as_dict(self) -> dict[str, str | int]:
        """What the JSON shows: all but the loop, which has a field of its own."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "loop"}


@dataclass(frozen=True)
class Variant:
    """A named difference between two profiles, to be verified."""

    summary: str
    set: Mapping[str, Any]


@dataclass(frozen=True)
class Remedy(Variant):
    """A variant that also exists as a runtime hook."""

    hook: str = ""
