"""One scheduler under watch: its monitor, and the state that the probes keep between hooks."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_hooks.alignment import Alignment
from engine_hooks.errors import LostSightError, QuiesceError
from engine_hooks.observation import Observation
from engine_hooks.sglang.probes_on_demand import OnDemand
from engine_hooks.sglang.probes_requests import KEEPING_LOOPS, admitted, turned_away

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_hooks.monitor import Monitor
    from engine_hooks.sglang.census_probe import CensusProbe
    from engine_hooks.sglang.probes_state import StateReader
    from engine_hooks.sglang.probes_trace import Tracing
    from engine_hooks.sglang.repairs.base import Remedy
    from engine_hooks.trace import Do

logger = logging.getLogger("quiesce")

# Objects of the engine; its modules are not imported here.
Engine = Any

# A running pass is read in full this often (s), and whenever something of the protocol is under way; what no check
# needs on each running pass costs nothing on the others. Gauges are shown once a second.
_RUNNING_READ_SECONDS = 0.5
LOOK_NOW = 0.0
# A probe takes microseconds. One that holds the scheduler for so long, so often, is worse than not watching.
_SLOW_SECONDS = 1.0
_SLOW_TIMES = 3
# What `WeightUpdater.update_weights_from_disk` answers when loading raised. It then says that it rolls back, but reads
# the weights from the new path again, which its configuration already names.
_FAILED_WHILE_LOADING = "Failed to update weights"


@dataclass(frozen=True)
class Sources:
    """What a session reads and does."""

    reader: StateReader | None
    """None where the engine's state cannot be read."""
    lookups: Callable[[], int]
    """Storage lookups issued so far."""
    storage: Callable[[], str]
    """The kind of storage tier now; it can be attached and detached."""
    remedies: tuple[Remedy, ...]
    version: Callable[[], str] | None = None
    """The weight version that this rank has now; None where it cannot be read."""
    census: CensusProbe | None = None
    """None where pages are not counted."""


class Session:
    """Turns hooks into observations and events. Every method that reads the engine goes through `guarded`."""

    def __init__(
        self,
        scheduler: Engine,
        monitor: Monitor,
        sources: Sources,
    ) -> None:
        self.scheduler = scheduler
        self.monitor = monitor
        self.remedies = sources.remedies
        self.flush_kind = "immediate"
        self.idle: bool | None = None
        """The first answer of the engine's plain gate since it was last set to None."""
        self.update_refused = False
        self.census = sources.census
        self._counts_between = sources.census is not None and bool(sources.census.between)
        self.timed_out: Callable[[], None] | None = None
        """Told of a flush with a time-out that was not granted in time."""
        self.trace: Tracing | None = None
        """Where a trace is asked for."""
        self._reader = sources.reader
        self._lookups = sources.lookups
        self._storage = sources.storage
        self.sequence = 0
        """Number of this pass, counted by the hook that each runs."""
        self.next_look = LOOK_NOW
        """When (monotonic s) a pass is looked at again."""
        self._forward = OnDemand(scheduler, "run_batch", self._launched)
        self._flushes = 0
        self._update_flushes = 0
        self._next_read = LOOK_NOW
        self._flush_wrapper: Engine = getattr(scheduler, "flush_wrapper", None)
        self._seen = Observation()
        self._began = Observation()
        self._has_began = False
        self._undisturbed = False
        self._decision = Observation()
        self._deferred = Observation()
        self._version = sources.version
        self._tokenizer_version = sources.version() if sources.version is not None else ""
        self._alignment = Alignment(monitor.board)
        self._admitted: list[Engine] | None = None
        self._slow: Counter[str] = Counter()
        self._dead: set[str] = set() if sources.reader is not None else {"state"}

    def guarded(self, hook: str, function: Callable[..., Any], *args: object) -> None:
        """Call a probe; what it raises ends the probe, not the engine (in `enforce` it is raised).

        So does what it takes: `_SLOW_SECONDS` or more, `_SLOW_TIMES` times.
        """
        if hook in self._dead:
            return
        began = time.monotonic()
        try:
            function(*args)
            if time.monotonic() - began >= _SLOW_SECONDS:
                self._was_slow(hook, time.monotonic() - began)
        except QuiesceError:  # raised on purpose, in `enforce` only
            raise
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self._lose(hook, error)

    def _was_slow(self, hook: str, seconds: float) -> None:
        self._slow[hook] += 1
        if self._slow[hook] == _SLOW_TIMES:
            self._lose(hook, LostSightError(f"a call took {seconds:.1f} s, number {_SLOW_TIMES} of a second or more"))

    def _lose(self, hook: str, error: Exception) -> None:
        self._dead.add(hook)
        try:
            self.monitor.lost(hook, f"{type(error).__name__}: {error}")
        except QuiesceError:  # raised on purpose, in `enforce` only
            raise
        except Exception:
            # A sink is what failed, so the metric cannot say it.
            logger.exception("quiesce: hook %s is lost (%s), and that cannot be shown", hook, error)

    # Passes.

    def ingested(self, received: object) -> None:
        """After `Scheduler.ingest_requests`: a pass begins that is looked at; a paused one is observed at its end too.

        `received` are the requests of this pass. A paused pass without any begins where the last one ended. Each pass
        is looked at from a pause on until the engine has resumed, while a flush waits, and where all are asked for.
        """
        self.next_look = LOOK_NOW
        if self.trace is not None:
            self.trace.ingested()
        if self.scheduler._engine_paused:  # noqa: SLF001 - the engine has no public name for it
            if self._undisturbed and not received and self._flush_wrapper._pending is None:  # noqa: SLF001 - as below
                self._began, self._seen = self._seen, self._began
                self._has_began = True
            else:
                self._has_began = self._read(self._began)
            self._undisturbed = False
            return
        self._undisturbed = False
        if self.census is not None and self.census.between:
            self.guarded("census", self.census.passed, self.scheduler.forward_ct)
        now = time.monotonic()
        pending = self._flush_wrapper._pending is not None  # noqa: SLF001 - the engine has no public name for it
        if now >= self._next_read or pending:
            self._next_read = now + _RUNNING_READ_SECONDS
            if self._read(self._seen):
                self.monitor.observe(self._seen)
        if not (pending or self.trace is not None or self._counts_between):
            self.next_look = self._next_read

    def paused_pass_ended(self) -> None:
        """After `Scheduler._record_scheduler_state_for_paused_engine`: the end of a paused pass."""
        if self.trace is not None and self.idle is not None:
            self.trace.reader.recorded_idle = self.idle
        if self._read(self._seen):
            self._seen.recorded_idle = self.idle
            before = self._began if self._has_began else None
            self._has_began = False
            self._undisturbed = True
            self.monitor.observe(self._seen, before)

    # Events.

    def retracting(self, mode: str) -> None:
        """Before `Scheduler.pause_generation`: whose requests a retract must keep."""
        keeps = mode == "retract" and self.monitor.options.loop in KEEPING_LOOPS
        self._admitted = admitted(self.scheduler) if keeps else None

    def paused(self, mode: str) -> None:
        """After `Scheduler.pause_generation`."""
        self.next_look = LOOK_NOW
        self.monitor.paused(mode, self._storage())
        self._mind_forwards()
        self._alignment.did(f"pause {mode}", self.sequence)
        before, self._admitted = self._admitted, None
        if before is not None:
            self.monitor.retracted(turned_away(self.scheduler, before))
        if self.trace is not None:
            self.trace.paused(mode)
        if self.census is not None and mode == "retract":
            self.guarded("census", self.census.retracted, self.scheduler.forward_ct)

    def continued(self) -> None:
        """After `Scheduler.continue_generation`."""
        self.next_look = self._next_read = LOOK_NOW
        self.monitor.continued()
        self._mind_forwards()
        self._alignment.did("continue", self.sequence)
        self._did("continue")

    def _mind_forwards(self) -> None:
        """`Scheduler.run_batch` is hooked only while a batch that is launched may be a violation."""
        self.guarded("forward", self._forward.on if self.monitor.minds_forwards else self._forward.off)

    def _launched(self, original: Callable[..., object], *args: object, **kwargs: object) -> object:
        """AROUND `Scheduler.run_batch`."""
        self.guarded("forward", self.monitor.forward)
        return original(*args, **kwargs)

    def flush_begins(self) -> None:
        """Before `Scheduler.flush_cache`: the state in which its gate is decided."""
        self._undisturbed = False
        if self.census is not None:
            self.guarded("census", self.census.flush_begins, self.scheduler.forward_ct)
        self._read(self._decision, decision=True)

    def flush_answered(self, granted: bool) -> None:  # noqa: FBT001 - the engine's own signature
        """After `Scheduler.flush_cache`."""
        self._flushes += 1
        if self.flush_kind == "update" and not granted:
            self.update_refused = True
        if "state" not in self._dead:
            self.monitor.gate_answered("flush", self._decision, open_=granted)
        result = "granted" if granted else "refused"
        self.monitor.flush_decided(self.flush_kind, result)
        self._mind_forwards()
        self._alignment.did(f"flush {result}", self.sequence)
        if self.trace is not None:
            self.trace.flushed(self.flush_kind, granted=granted)
        if self.census is not None and granted:
            self.guarded("census", self.census.flush_granted, self.scheduler.forward_ct)

    def idling(self) -> None:
        """Before `Scheduler.on_idle`: a running pass found nothing to launch."""
        if self.census is not None:
            self.census.idle(self.scheduler.forward_ct)

    def deferred_begins(self) -> int:
        """Before the deferred flush is decided; gives `deferred_ended` the number of flushes so far."""
        self.idle = None
        self._read(self._deferred, decision=True)
        return self._flushes

    def deferred_ended(self, flushes: int) -> None:
        """After `SchedulerFlushWrapper.handle` or `check_pending` with a time-out."""
        if self.idle is not None and "state" not in self._dead:
            self.monitor.gate_answered("deferred_flush", self._deferred, open_=self.idle)
        if self._deferred.deferred_pending and self._flush_wrapper._pending is None and self._flushes == flushes:  # noqa: SLF001 - the engine has no public name for it
            self.monitor.flush_decided("deferred", "timed_out")
            self._alignment.did("flush timed_out", None)
            if self.timed_out is not None:
                self.guarded("lineage", self.timed_out)
        if self.trace is not None:
            pending = self._flush_wrapper._pending is not None  # noqa: SLF001 - the engine has no public name for it
            self.trace.deferred(self._deferred.deferred_pending, pending, flushed=self._flushes > flushes)

    def update_begins(self) -> None:
        """Before one of the `SchedulerWeightUpdaterManager.update_weights_from_*`."""
        self.update_refused = False
        self._update_flushes = self._flushes
        self.guarded("update", self.monitor.update_begun)

    def version_answered(self, asked: str | None, success: bool) -> None:  # noqa: FBT001 - the engine's own signature
        """After a request that may carry a weight version.

        The tokenizer takes the version of an update only where it was answered with success
        (`TokenizerControlMixin._update_weight_version_if_provided`); a scheduler stamps it before the flush is tried.
        """
        if self._version is None:
            return
        if success and asked is not None:
            self._tokenizer_version = asked
        self.monitor.version_answered(agree=self._version() == self._tokenizer_version)

    def update_answered(self, kind: str, reply: Engine, could_load: bool) -> None:  # noqa: FBT001 - the engine's own signature
        """After one of the `SchedulerWeightUpdaterManager.update_weights_from_*`.

        `could_load`: weights may have been written even where the answer is a failure.
        """
        # The engine flushes only after weights were loaded, if perhaps not those of every runner.
        flushed = self._flushes > self._update_flushes
        if reply.success or flushed or could_load or _FAILED_WHILE_LOADING in str(getattr(reply, "message", "")):
            self.monitor.weights_loaded()
        result = "unflushed" if self.update_refused else "ok" if reply.success else "failed"
        self.monitor.update_answered(kind, result)
        self._mind_forwards()
        self._alignment.did(f"update {result}", self.sequence)
        self._did("update", "kept" if result == "ok" and not flushed else result)

    def _did(self, do: Do, how: str = "") -> None:
        if self.trace is not None:
            self.trace.tracer.did(do, how)

    def _read(self, seen: Observation, *, decision: bool = False) -> bool:
        """Fill `seen`; False where the state can no longer be read."""
        reader = self._reader
        if reader is None or "state" in self._dead:
            return False
        try:
            read = reader.read_decision if decision else reader.read
            read(seen, self.sequence)
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self._lose("state", error)
            return False
        seen.lookups = self._count_lookups()
        return True

    def _count_lookups(self) -> int:
        if "lookups" in self._dead:
            return 0
        try:
            return self._lookups()
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self._lose("lookups", error)
            return 0
