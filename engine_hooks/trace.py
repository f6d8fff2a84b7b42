"""The form of a trace: everything that one scheduler rank did, one line for each step that the spec has a name for.

Newline-delimited JSON: a header, then steps, then an end. A trace is a chain of files (parts), each with a header; only
the last one has an end. Each line begins with a checksum over itself and all lines before it, so that no line can be
changed, dropped, repeated or moved without being noticed. What is left out of a state is 0 or false.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from engine_hooks.origin import Origin

SCHEMA = 1
SUFFIX = ".trace.ndjson"
MAX_LINE = 4096
"""No line is longer (bytes)."""

Do = Literal[
    "start",
    "pass",
    "arrive",
    "abort",
    "pause",
    "continue",
    "flush",
    "defer",
    "deferred",
    "update",
]
"""What a line says was done: see the table in docs/guide/replay.md."""


Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class TraceState(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The spec's state variables, as far as an engine has them, after a step. Counts are entries, not tokens."""

    paused: bool = False
    flush_wanted: bool = False
    deferred_pending: bool = False
    last_batch: bool = False
    result_pending: bool = False
    recorded_idle: bool = False
    """What the last paused pass recorded."""
    running: Count = 0
    """Requests that were admitted and have not finished. (An observation counts what the engine's gate looks at.)"""
    waiting: Count = 0
    """Requests that were queued and not admitted; of a PD worker also those that wait for its peer."""
    write_through_queued: Count = 0
    write_through_submitted: Count = 0
    write_through_ready: Count = 0
    load_back_queued: Count = 0
    load_back_submitted: Count = 0
    load_back_ready: Count = 0
    backup_queued: Count = 0
    backup_ready: Count = 0
    prefetch_query: Count = 0
    prefetch_hit: Count = 0
    prefetch_loading: Count = 0
    prefetch_done: Count = 0
    prefetch_retry: Count = 0
    lookups: Count = 0
    """Storage lookups started so far; never decreases."""
    forwards: Count = 0
    """Batches launched so far; never decreases."""
    pd_bootstrap_waiting: Count = 0
    pd_bootstrap_ready: Count = 0
    pd_inflight_sending: Count = 0
    pd_inflight_ready: Count = 0
    pd_prealloc_waiting: Count = 0
    pd_prealloc_ready: Count = 0
    pd_transfer_receiving: Count = 0
    pd_transfer_ready: Count = 0
    pd_release_held: Count = 0
    pd_release_ready: Count = 0
    pd_held: Count = 0
    """Retracted requests that a decode worker sends again once it is resumed."""


PEER = "pd_"
"""Fields of a state that only workers of a disaggregated deployment have begin so."""
STATE_FIELDS = TraceState.__struct_fields__


class TraceHeader(Origin, frozen=True, forbid_unknown_fields=True, tag="trace", tag_field="kind"):
    """Which engine a trace is of. Times are Unix seconds."""

    storage: str
    """Kind of the storage tier when the trace began: `none`, or the name of the backend."""
    at: float
    part: int
    """Number of this file in the chain, from 1."""
    first: int
    """Number of the first step in this file."""
    before: str = "00000000"
    """Checksum at the end of the part before."""
    unobserved: tuple[str, ...] = ()
    """State variables that this engine could not be asked for; they are 0 in every line."""
    counted: tuple[str, ...] = ()
    """Ledgers that lines count besides those that every engine with HiCache has: those of a PD worker."""
    sizes: Mapping[str, int] = {}
    """`attention`: ranks that count together what has landed; `stages` and `micro_batches` of the pipeline. Empty in
    traces that are older."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="step", tag_field="kind"):
    """One step, or several passes one after another that ended in the same state."""

    n: int
    """Number of the first of them, from 1."""
    do: Do
    state: TraceState
    how: str = ""
    """Of a pause its mode; of what was asked its answer."""
    times: int = 1
    at: float = 0.0
    """When the first of them was done."""
    note: str = ""
    """Terms of the engine's own gate that the profile does not model and that are closed now."""


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="end", tag_field="kind"):
    """The trace ends here, as the engine wanted it to."""

    steps: int
    """How many steps were recorded, repetitions counted."""
    reason: str
    """`closed`: the engine ended. `lost`: a hook no longer works. `dropped`: steps were lost, and none is written any
    more, since what follows a gap proves nothing."""


TraceLine = TraceHeader | Step | End

_SEAL = b'{"crc":"'
_SEALED = len(_SEAL) + 8 + 2


def sealed(body: bytes, before: int) -> tuple[bytes, int]:
    """A line of JSON, an object, with its checksum in front, and that checksum; `before` is that of the last line."""
    rest = body[1:]
    checksum = zlib.crc32(rest, before)
    return b'%s%08x",%s\n' % (_SEAL, checksum, rest), checksum


def unsealed(line: bytes, before: int) -> tuple[bytes, int] | None:
    """The JSON of a line without its checksum, and that checksum; None where the line is not the one that was written.

    `line` has no line feed.
    """
    if line[:8] != _SEAL or line[16:18] != b'",':
        return None
    rest = line[_SEALED:]
    checksum = zlib.crc32(rest, before)
    if line[8:16] != b"%08x" % checksum:
        return None
    return b"{" + rest, checksum
