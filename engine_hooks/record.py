"""The form of a flight record: newline-delimited JSON, a header first, then passes and events in their order.

What is left out of a line has its default: a state names only what is not 0 or false.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine_hooks.origin import Origin

SCHEMA = 1
SUFFIX = ".ndjson"
MAX_BYTES = 1 << 20
"""No file is larger."""


class State(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The spec's state variables: those of observation.VARIABLES, in that order."""

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
    pd_bootstrap_waiting: int = 0
    pd_bootstrap_ready: int = 0
    pd_inflight_sending: int = 0
    pd_inflight_ready: int = 0
    pd_prealloc_waiting: int = 0
    pd_prealloc_ready: int = 0
    pd_transfer_receiving: int = 0
    pd_transfer_ready: int = 0
    pd_release_held: int = 0
    pd_release_ready: int = 0


class Header(Origin, frozen=True, forbid_unknown_fields=True, tag="header", tag_field="kind"):
    """Which violation on which engine. Times are Unix seconds."""

    storage: str
    """Kind of the storage tier when the last pause began; empty before the first one."""
    property: str
    pass_number: int
    at: float
    message: str
    forgotten: int
    """How many earlier passes and events the record no longer holds; the repeated ones count once."""


class Pass(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="pass", tag_field="kind"
):  # fmt: skip
    """One observed pass, or several one after another that were alike."""

    first: int
    """Number of the first pass."""
    last: int
    times: int
    """How many were observed; of running passes not each one is."""
    at: float
    forwards: int
    """Batches launched on this rank by the end of the last pass."""
    state: State
    """At the end of the pass."""
    began: State | None = None
    """At its start, where one was read that differs."""
    mode: str | None = None
    recorded_idle: bool | None = None
    unmodelled: tuple[str, ...] = ()
    oldest: Mapping[str, float] = {}
    """Ledger to when its oldest entry was first seen."""


class Event(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="event", tag_field="kind"
):  # fmt: skip
    """A series that changed, or several changes one after another that were alike."""

    first: int
    """Number of the last pass observed before it."""
    last: int
    times: int
    at: float
    series: str
    """Name of the series, without its prefix."""
    labels: tuple[str, ...] = ()
    value: float | None = None
    """What a gauge shows now; none for a counter."""
    state: State | None = None
    """Of `gate` (not a series: a flush was granted there): the state in which this was decided."""


Line = Header | Pass | Event
