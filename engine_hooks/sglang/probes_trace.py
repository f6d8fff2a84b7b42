"""What a trace needs besides the hooks that watch: the end of each pass, arrivals, aborts, and the state after each."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any

import msgspec

from engine_hooks.observation import Observation
from engine_hooks.sglang.probes_pd import PeerReader, unfinished
from engine_hooks.sglang.probes_targets import Target
from engine_hooks.trace import PEER, SCHEMA, STATE_FIELDS, TraceHeader
from engine_hooks.tracer import Tracer
from engine_hooks.tracer_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from engine_hooks.monitor import Monitor
    from engine_hooks.recorder import Identity
    from engine_hooks.sglang.probes_state import StateReader

logger = logging.getLogger("quiesce")

_NAME_LENGTH = 64

# Objects of the engine; its modules are not imported here.
Engine = Any

_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"

TRACE_TARGETS = (
    Target("trace", f"{_SCHEDULER}.ingest_requests", "BEFORE", "ingesting"),
    Target("trace", f"{_SCHEDULER}._add_request_to_queue", "AFTER", "queued"),
    Target("trace", f"{_SCHEDULER}.abort_request", "AFTER", "aborted"),
    Target("trace", f"{_SCHEDULER}.pause_generation", "BEFORE", "pausing"),
)
"""Hooked only where a trace is asked for."""


class TraceReader:
    """Reads the state of a trace's line from a scheduler."""

    def __init__(
        self, scheduler: Engine, reader: StateReader, lookups: Callable[[], int], flush_wanted: Callable[[], bool]
    ) -> None:
        """Raises AttributeError where the engine's attributes are not those of the profile's version."""
        self._scheduler = scheduler
        self._reader = reader
        self._lookups = lookups
        self._flush_wanted = flush_wanted
        self._seen = Observation()
        self._peer = PeerReader(scheduler)
        self._forwards, self._launched = scheduler.forward_ct, False
        self.recorded_idle = False
        self.read()

    def passed(self) -> None:
        """A pass has ended: of a pipeline the turn of one micro-batch, whose result the next turn processes."""
        forwards = self._scheduler.forward_ct
        self._launched, self._forwards = forwards != self._forwards, forwards

    @property
    def counted(self) -> tuple[str, ...]:
        """See TraceHeader."""
        return self._peer.ledgers

    def read(self) -> tuple[Any, ...]:
        """The values of trace.STATE_FIELDS now."""
        seen, scheduler = self._seen, self._scheduler
        self._reader.read(seen, 0)
        values = dict.fromkeys(STATE_FIELDS, 0) | {name: getattr(seen, name) for name in _READ}
        values["flush_wanted"] = self._flush_wanted()
        values["recorded_idle"] = self.recorded_idle
        values["running"] = unfinished(_admitted(scheduler), _sent(scheduler))
        values["prefetch_retry"] = _retries(scheduler)
        values["lookups"] = self._lookups()
        turns = getattr(scheduler, "mbs", None)  # a pipeline makes them as its loop begins
        if turns is not None:
            values["last_batch"] = any(batch is not None and not batch.is_empty() for batch in turns)
            values["result_pending"] = self._launched
        with_peer = self._peer.read()
        values |= with_peer | {"waiting": seen.waiting + with_peer.get("waiting", 0)}
        return tuple(values[name] for name in STATE_FIELDS)

    @property
    def unmodelled(self) -> str:
        """Terms of the engine's gate that were closed at the last reading and that the profile does not model."""
        return ", ".join(self._seen.unmodelled)


_OWN = frozenset(("flush_wanted", "recorded_idle", "running", "prefetch_retry", "lookups"))
_READ = tuple(name for name in STATE_FIELDS if name not in _OWN and not name.startswith(PEER))


def _admitted(scheduler: Engine) -> Iterator[Engine]:
    """The requests of every batch that the scheduler holds; one may be in several, and may have finished."""
    yield from scheduler.running_batch.reqs
    if scheduler.last_batch is not None:
        yield from scheduler.last_batch.reqs
    for batch, _ in getattr(scheduler, "result_queue", ()):
        yield from batch.reqs
    if scheduler.chunked_req is not None:
        yield scheduler.chunked_req
    for name in ("running_mbs", "mbs", "last_mbs"):
        for batch in getattr(scheduler, name, ()):
            yield from () if batch is None else batch.reqs


def _sent(scheduler: Engine) -> Iterable[Engine]:
    """Requests whose KV is sent: for a prefill worker these have run."""
    return getattr(scheduler, "disagg_prefill_inflight_queue", None) or ()


def _retries(scheduler: Engine) -> int:
    """Lookups that may be tried again (`StoragePrefetchRetries`)."""
    retries = getattr(scheduler.tree_cache, "storage_prefetch_retries", None)
    return 0 if retries is None else len(retries._pending)  # noqa: SLF001 - the engine has no public name for it


class Tracing:
    """The hooks of a trace, on one scheduler's session."""

    def __init__(self, tracer: Tracer, reader: TraceReader) -> None:
        self.tracer = tracer
        self.reader = reader
        self._started = False
        self._ingesting = False

    def ingesting(self) -> None:
        """Before `Scheduler.ingest_requests`: what the pass before it did is done."""
        self.reader.passed()
        self.tracer.did("pass" if self._started else "start")
        self._started = self._ingesting = True

    def ingested(self) -> None:
        """After it: the requests that came with it are queued, its control requests answered."""
        self._ingesting = False

    def pausing(self) -> None:
        """Before `Scheduler.pause_generation`, which queues requests again: these are a part of it."""
        self._ingesting = False

    def paused(self, mode: str) -> None:
        """After it; more may come with the same ingest."""
        self._ingesting = True
        self.tracer.did("pause", mode)

    def queued(self) -> None:
        """After `Scheduler._add_request_to_queue`; in a pass or a pause it is a part of that."""
        if self._ingesting:
            self.tracer.did("arrive")

    def flushed(self, kind: str, *, granted: bool) -> None:
        """After `Scheduler.flush_cache`; inside an update or a deferred flush it is a part of that."""
        if kind in ("immediate", "release"):
            self.tracer.did("flush", "granted" if granted else "refused")

    def deferred(self, before: bool, after: bool, *, flushed: bool) -> None:  # noqa: FBT001 - two of one kind
        """After `SchedulerFlushWrapper.handle` or `check_pending`: whether a flush was, and is, deferred."""
        if after and not before:
            self.tracer.did("defer")
        elif before and not after:
            self.tracer.did("deferred", "granted" if flushed else "timed_out")
        elif flushed:
            self.tracer.did("flush", "granted")


@dataclass(frozen=True)
class Traced:
    """What a trace is of."""

    scheduler: Engine
    identity: Identity
    storage: str
    """Kind of the storage tier."""
    lookups: Callable[[], int]
    """Storage lookups issued so far."""
    parallel: Engine
    """The engine's `get_parallel()`."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """See TraceHeader."""
        parallel, stages = self.parallel, int(self.parallel.pp_size)
        turns = stages + int(parallel.pp_async_batch_depth) if stages > 1 else 1  # `init_pp_loop_state`
        attention = int(parallel.attn_tp_size * parallel.attn_cp_size)
        return {"attention": attention, "stages": stages, "micro_batches": turns}


def traced(folder: Path, of: Traced, reader: StateReader | None, monitor: Monitor) -> Tracing | None:
    """Begin a trace in a folder; None, with a line in the log, where that cannot be done."""
    missing = [target.path for target in TRACE_TARGETS if not _applied(target.path)]
    if reader is None or missing:
        logger.warning("quiesce: no trace: %s", f"not hooked: {missing}" if missing else "the state cannot be read")
        return None
    own = of.identity
    header = TraceHeader(
        schema=SCHEMA, engine=own.engine, engine_version=own.engine_version, version=own.version, profile=own.profile,
        spec_digest=own.spec_digest, rank=own.rank._asdict(), loop=own.loop, remedies=own.remedies,
        storage=of.storage[:_NAME_LENGTH], at=time.time(), part=1, first=1, unobserved=_unobserved(of.scheduler),
    )  # fmt: skip
    try:
        state = TraceReader(of.scheduler, reader, of.lookups, lambda: monitor.flush_wanted)
        header = msgspec.structs.replace(header, counted=state.counted, sizes=of.sizes)
        tracer = Tracer(state.read, TraceWriter(folder, str(own.rank), header), note=lambda: state.unmodelled)
    except (AttributeError, RuntimeError) as error:
        logger.warning("quiesce: no trace: %s: %s", type(error).__name__, error)
        return None
    monitor.trace_with(tracer)
    # A scheduler is a child of multiprocessing, which runs no `atexit`.
    Finalize(None, tracer.close, exitpriority=10)
    return Tracing(tracer, state)


def _unobserved(scheduler: Engine) -> tuple[str, ...]:
    return () if hasattr(scheduler.tree_cache, "storage_prefetch_retries") else ("prefetch_retry",)


def _applied(path: str) -> bool:
    from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - imported only where an engine runs

    return path in HookRegistry._patched  # noqa: SLF001 - the engine has no public name for it
