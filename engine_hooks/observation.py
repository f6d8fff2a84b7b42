"""One observation: the state of one scheduler rank at the end of one pass, in the words of the spec."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple


class Rank(NamedTuple):
    """Where a scheduler stands; its label values in every series."""

    tp: int = 0
    pp: int = 0
    dp: int = 0

    def __str__(self) -> str:
        return f"tp{self.tp} pp{self.pp} dp{self.dp}"


NOWHERE = Rank()


@dataclass(slots=True)
class Observation:
    """What the compiled predicates read.

    Mutable, and re-used pass after pass by the probe that owns it: keep a copy (`dataclasses.replace`), never the
    object. Counts are entries in flight, not tokens.
    """

    rank: Rank = NOWHERE
    sequence: int = 0
    """Number of this pass on this rank, from 1."""
    loop: str = ""
    mode: str | None = None
    """Mode of the current pause (`retract`, `in_place`); None while running."""
    step: str = "running"
    """`paused` or `running`: which list of primitives the pass went through."""
    forwards: int = 0
    """Batches launched on this rank so far."""
    recorded_idle: bool | None = None
    """What the paused pass recorded (True idle, False active); None where it recorded nothing."""
    unmodelled: tuple[str, ...] = ()
    """Terms of the engine's own gate that are closed now and that the profile does not model."""
    oldest: dict[str, float] = field(default_factory=dict)
    """Ledger to the wall-clock time (s) at which its oldest entry was first seen; absent where it is empty."""

    ready_since: dict[str, float] = field(default_factory=dict)
    """Ledger to the wall-clock time (s) at which what its reaper takes next was first seen ready; absent where nothing
    is."""
    deferred_until: float | None = None
    """When a deferred flush that waits must be answered (monotonic s); None where none waits."""

    # The spec's state variables, by their names there.
    paused: bool = False
    flush_wanted: bool = False
    deferred_pending: bool = False
    last_batch: bool = False
    result_pending: bool = False
    running: int = 0
    waiting: int = 0
    write_through_queued: int = 0
    write_through_submitted: int = 0
    write_through_ready: int = 0
    load_back_queued: int = 0
    load_back_submitted: int = 0
    load_back_ready: int = 0
    backup_queued: int = 0
    backup_ready: int = 0
    prefetch_query: int = 0
    prefetch_hit: int = 0
    prefetch_loading: int = 0
    prefetch_done: int = 0
    lookups: int = 0
    """Storage lookups started so far on this rank; never decreases."""
    pd_bootstrap_waiting: int = 0
    """Of a prefill or decode worker's queues all entries are in the first stage: what is ready only a poll tells, which
    is one for all ranks."""
    pd_bootstrap_ready: int = 0
    pd_inflight_sending: int = 0
    pd_inflight_ready: int = 0
    pd_prealloc_waiting: int = 0
    pd_prealloc_ready: int = 0
    pd_transfer_receiving: int = 0
    pd_transfer_ready: int = 0
    pd_release_held: int = 0
    pd_release_ready: int = 0


_CONTEXT = frozenset((
    "rank", "sequence", "loop", "mode", "step", "forwards", "recorded_idle", "unmodelled", "oldest", "ready_since",
    "deferred_until",
))  # fmt: skip
VARIABLES = tuple(f.name for f in fields(Observation) if f.name not in _CONTEXT)
"""The spec's state variables that an observation has."""
COMPARED = ("mode", "recorded_idle", "unmodelled", *VARIABLES)
"""What a pass is compared by: two passes alike in these say the same to every predicate."""
