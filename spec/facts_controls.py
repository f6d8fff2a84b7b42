"""Facts about control requests beside pause, flush and update, sessions of updates, and caches beside the tree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gated:
    """A control request that must pass a gate, and is answered where it does not."""

    source: str
    gate: str


@dataclass(frozen=True)
class Release(Gated):
    """The release of the memory of weights and KV."""

    refused: str
    """What its handler does where the gate is closed: `raises`, or `fails` and says so."""
    serves_on: bool
    """Whether the loop launches forwards while the memory is released."""


@dataclass(frozen=True)
class Resume:
    """The way back."""

    source: str
    refused: str
    """What its handler does where nothing was released: `raises`, or `fails` and says so."""


@dataclass(frozen=True)
class Clear:
    """The contents of the storage tier are thrown away. `gate` may be empty: it waits for nothing."""

    source: str
    gate: str
    reports: bool
    """Whether success means that the backend has cleared it."""


@dataclass(frozen=True)
class AbortAll:
    """An abort of every request, from a client."""

    source: str


@dataclass(frozen=True)
class Controls:
    """The control requests beside pause, continue, flush and update."""

    release: Release | None = None
    resume: Resume | None = None
    attach: Gated | None = None
    detach: Gated | None = None
    clear: Clear | None = None
    abort_all: AbortAll | None = None


@dataclass(frozen=True)
class UpdateSession:
    """Weights that come in parts, between a begin and an end, from a sender that the scheduler waits for."""

    source: str
    waits: str
    """How long its handler waits for the sender: `for-ever`, or until a `deadline`, after which it fails."""
    unfinished: str
    """What a continue does with weights that are in part new, or in a session that is open: `served`, or `refused`."""


@dataclass(frozen=True)
class Tier:
    """A cache of what weights computed, beside those of the tree."""

    source: str
    filled_by: tuple[str, ...]
    """What brings something into it: a request that is admitted (`admit`), that ends (`finish`), that is retracted
    (`retract`)."""
    flushed: bool
    """Whether a granted flush clears it."""
    keyed_by_epoch: bool = False
    """Whether the epoch of the weights is part of its keys, so that what is older is never found."""


@dataclass(frozen=True)
class Resend:
    """Retracted requests that are held, in no queue, until the engine is resumed."""

    source: str
    starts: str
    """The ledger in which each of them then starts an entry."""


@dataclass(frozen=True)
class Requeue:
    """A queue of its own in which a retracted request stays, and which raises where the request comes to it again."""

    source: str
    ledger: str
    """The ledger whose entries are the requests that stay."""
