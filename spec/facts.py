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
    chains: bool = False
    """Whether a decode is launched on top of one whose result is not read yet, while nobody waits and nobody ends: such
    a pass runs none of the steps below."""
    skips_finishing: bool = False
    """Whether no batch is launched where every request that runs ends, by its length, with the result that waits."""
    micro_batches: bool = False
    """Whether several take turns, each with requests and a result of its own: the pause handler sees the one whose turn
    it is, which has no result in flight, and neither processes nor takes back what is of the others."""
    pause_waits: bool = False
    """Of a loop with micro-batches: whether none is launched from the moment a pause has come, and the pause is handled
    once none is under way any more, and takes back the requests of all."""


@dataclass(frozen=True)
class PauseMode:
    """What the pause handler does, in order, and whether it sets the scheduler's flag."""

    source: str
    sets_flag: bool
    steps: tuple[str, ...]


LOOKUP_ENDS = "lookup_ends"
ACTORS = {"device": "DeviceDone", "storage": "StorageDone", "peer": "PeerDone", "compiler": "CompilerDone"}
"""Who moves entries outside the loop, each with the name of its actions."""


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
    fragments: bool = False
    """Whether it starts one for each fragment, of which a node that was split meanwhile has several."""
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
    """What starts new entries: `arrive`, `process`, `requeue`, `queue` (an arrival or a requeue), `lookup_ends` (a
    lookup in storage is retired, revoked, aborted or cut off), or the ledger with a move that says so. Empty for the
    ledgers that the model itself starts."""
    each: bool = False
    """Whether each request that arrives or queues again starts one, and not only some."""
    entry: str = ""
    """What one entry is, in the words of the engine."""
    touches: tuple[str, ...] = ()
    """Whose pages an entry reads or writes until it ends: `device` and `host`, what the tree holds there; `request`,
    what a running request owns."""
    locks: tuple[str, ...] = ()
    """Which of them it keeps from being freed."""
    holds_back: tuple[str, ...] = ()
    """The stages in which an entry keeps its request from being admitted."""
    ends_with: tuple[str, ...] = ()
    """What ends all its entries besides its moves: `abort`, of all that wait; `retract`, of all that run."""
    own_pages: bool = False
    """Its entries read and write pages of a pool of their own, which no flush resets."""


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
    again_on_loss: bool = False
    """Whether an admission looks up again what a waiting request had in the tree when it was queued, and lost."""


@dataclass(frozen=True)
class Gate:
    """A predicate that a control request must pass, and what it waits for."""

    source: str
    waits_for: tuple[str, ...]
    """Ledgers, one stage of a ledger as `LEDGER.STAGE`, `running`, `last_batch`, `result_pending`, `held_HOLDING`."""
    waiting: str
    names: tuple[str, ...] = ()
    """What a refusal reports, in the words of `waits_for`, and `waiting`. Empty: this profile does not say."""


@dataclass(frozen=True)
class FlushFacts:
    """What a granted flush does."""

    source: str
    clears: tuple[str, ...]
    joins_storage_threads: bool
    outwaits_threads: bool = False
    """Whether its gate waits for storage threads whose entry is gone."""
    drops: tuple[str, ...] = ()
    """The ledgers whose entries it ends: they read and write nothing."""


@dataclass(frozen=True)
class UpdateFacts:
    """What a weight update does about the caches and the forward in flight."""

    source: str
    flush: str
    waits_for_forward: bool
    stamps: str = "before-flush"
    """When the scheduler takes the new version: `before-flush`, or `on-success` together with the tokenizer."""
    refused: str = "fails"
    """What its handler does where its flush is refused: `fails` and says so, `asserts` the opposite and raises, or
    `succeeds` all the same."""
    lock: str = ""
    """What an update waits for in the tokenizer. Empty: the flag, or where there is none that no request is left, as a
    guard. `abort`: that the abort before it is handled. Else it is asked first, then waits:
    `pause`, for the closed gate; `requests`, for the
    lock that each request holds; `one-shot`, for that lock if it read the flag before the pause reached it."""
    may_skip_flush: bool = False
    """Whether callers ask for an update without a flush."""
    tags_tree: bool = False
    """Whether a node of the tree holds the epoch of its weights, so that an older one is never matched."""


@dataclass(frozen=True)
class RequestFacts:
    """How a pause can turn requests away."""

    source: str = ""
    queue_limit: bool = False
    """Whether a limit on queued requests is set, which a retract applies to requests that were running."""
    clocks_count_pause: bool = False
    """Whether a time-out of waiting requests is set, which goes on while paused."""
    aborts_parked: bool = False
    """Whether an abort ends a request that is parked at the tokenizer's gate."""
    aborts_paused: bool = False
    """Whether an abort ends a request of a paused engine's batch at once, and not with its next result."""
    retract_keeps_kv: bool = False
    """Whether a retracted request waits with its KV and goes on from it."""
    rejected_after_lookup: bool = False
    """Whether some requests are turned away after their lookup was sent."""


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
class Accounts:
    """What a retract takes back, of the pages that requests own."""

    source: str
    frees: tuple[str, ...]
    """Of one request: `committed`, its tokens; `ahead`, the slot that an overlap loop allocated for the next one."""
    covers: tuple[str, ...]
    """Of which requests: `running`, and `fresh`, those of the last prefill, not yet merged."""
    skips_finished: bool
    """Whether requests that have ended, and are not yet filtered from the batch, are left out."""


@dataclass(frozen=True)
class Holding:
    """What each lookup holds from when it is sent until it ends: pages of the host, quota, a lock."""

    source: str
    of: tuple[str, ...]
    """The ledgers whose entries hold one each; `threads`: also a thread of a lookup that was cut off."""
    released_by: tuple[str, ...]
    """The ways to end that give it back: `retire`, `revoke`, `abort`, `reject`, `detach`."""
    until_io_ends: bool = False
    """Whether a lookup that is cut off keeps it until its thread has left the storage call."""


@dataclass(frozen=True)
class Eviction:
    """Where pages are freed that nothing locks, for want of room."""

    source: str
    tiers: tuple[str, ...]


@dataclass(frozen=True)
class Detach:
    """What the detachment of a storage backend leaves of the lookups in flight."""

    source: str
    waits_for: tuple[str, ...]
    clears: tuple[str, ...]


@dataclass(frozen=True)
class LookupWait:
    """When a request may be admitted whose lookup is in flight."""

    source: str
    deadline: str
    """What its time-out ends: `nothing` (it waits until all is read), `main`, the read of its KV, or `all`."""
    side_pool: bool
    """Whether a second read fills another pool, at a speed of its own."""
    revoke_ends: bool
    """Whether a lookup that found too little counts as ended."""


@dataclass(frozen=True)
class Threads:
    """Storage threads that share the interpreter lock with the scheduler's loop."""

    source: str


@dataclass(frozen=True)
class Merge:
    """A pause handler that merges the last batch into the running one."""

    source: str
    needs_running: bool
    """Whether it raises where no batch runs."""
    keeps_last: bool
    """Whether the last batch stays, to be merged again."""


@dataclass(frozen=True)
class Peers:
    """What a second rank does by itself, and what the two agree on."""

    source: str
    ledger: str
    """The ledger that each rank has of its own: `write_through`, whose entries passes alone make."""
    copies: str
    """Which of its entries are made: `agreed`, on both ranks or none; `per-rank`, where a rank has room."""
    acks: str
    """How many entries a reap ends: `agreed`, the least of both; `per-rank`, what is ready there."""
    enters: str
    """When a reap enters its collective: `always`, or `in-flight`, where the rank's own ledger has entries."""
    clocks: str
    """Who ends requests that waited too long: `one` rank, for both; `per-rank`, each by its own clock."""
    update_barrier: bool
    """Whether an update begins only when no rank has a forward on its device."""


@dataclass(frozen=True)
class Waves:
    """Replicas that step together: who still has work wakes the others."""

    source: str
    pause: str
    """When a pause is acknowledged: `alone`, at once; `agreed`, when no wake is under way and none can follow."""


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

    @property
    def place(self) -> str:
        """Loop, pause mode and storage: what tells the configurations of one profile apart."""
        return f"{self.loop} {self.mode} {self.storage}"

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
