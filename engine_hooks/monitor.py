"""The engine-neutral monitor: runs the compiled predicates over observations and keeps the episodes.

It is called from the scheduler's thread only, does no I/O of its own and allocates nothing that grows with the run.
"""

from __future__ import annotations

import logging
import time
from operator import attrgetter
from typing import TYPE_CHECKING

from engine_hooks.compiled import CompiledProfile, Predicate, StuckKey
from engine_hooks.errors import LostSightError, ProtocolViolationError
from engine_hooks.monitor_board import Board, Violation
from engine_hooks.monitor_options import MonitorOptions
from engine_hooks.monitor_overdue import Overdue
from engine_hooks.monitor_passes import Passes
from engine_hooks.monitor_show import show_blockers, show_ledgers
from engine_hooks.monitor_text import HOOKS, NEEDS, Finding, blocker_names, describe
from engine_hooks.observation import COMPARED, VARIABLES, Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_hooks.census.words import Census
    from engine_hooks.recorder import FlightRecorder
    from engine_hooks.tracer import Tracer

logger = logging.getLogger("quiesce")

_TIMED_ONE_IN = 64
_SETTLE_SECONDS = 5.0
_CHECKED_AT_FORWARDS = frozenset(("no-forward-while-paused", "no-stale-kv", "update-tells-truth"))
_UNFLUSHED = "a batch is launched after an update whose flush was refused, and none was granted since"


class Monitor:
    """Watches one scheduler rank."""

    def __init__(
        self,
        profile: CompiledProfile,
        board: Board,
        options: MonitorOptions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.profile = profile.under(options.remedies)
        self.board = board
        self.options = options
        self._clock = clock
        self.mode: str | None = None
        self.flush_wanted = False
        self.epoch = 0
        self._since: float | None = None
        self._stale = False
        self._checks = 0
        self._episodes: set[str] = set()
        self._lost = set(options.unasked)
        self._stuck: Mapping[str, Predicate] = {}
        self._without_region: set[StuckKey] = set()
        self._left_alone: tuple[str, ...] = ()
        self._variables = attrgetter(*COMPARED)
        self._passes = Passes(board)
        self._forwards = 0
        self.minds_forwards = False
        """Whether a batch that is launched now may be a violation; else `forward` need not be called."""
        self._seen: Observation | None = None
        self._recorder: FlightRecorder | None = None
        self._dropping: list[FlightRecorder | Tracer] = []
        self.watched = frozenset(p for p, needs in NEEDS.items() if not needs & options.unasked)
        self._blockers = blocker_names(profile)
        self._overdue = Overdue(profile, options.patience)
        for hook in (name for name in HOOKS if name not in options.unasked):
            board.show("hook_applied", hook, value=1)
        missing = set(profile.variables) - set(VARIABLES)
        if missing:
            self.lost("state", f"the profile reads {', '.join(sorted(missing))}, which no probe provides")

    def record_with(self, recorder: FlightRecorder) -> None:
        """Give each pass, event and violation to a flight recorder too."""
        self._recorder = recorder
        self._dropping.append(recorder)
        self.board.attach(recorder)

    def trace_with(self, tracer: Tracer) -> None:
        """Export what a trace loses."""
        self._dropping.append(tracer)

    # What the monitor can see.

    def lost(self, hook: str, reason: str) -> None:
        """A hook no longer works: say so once, and check no property that depends on it."""
        if hook in self._lost:
            return
        self._lost.add(hook)
        self._forget_last()
        gone = sorted(p for p in self.watched if hook in NEEDS[p])
        self.watched = self.watched.difference(gone)
        self.board.show("hook_applied", hook, value=0, urgent=True)
        for property_id in gone:
            self._end(property_id)
        if "paused-flush-succeeds" in gone:
            self._show_stuck(())
            self._show_blockers(None)
        message = f"hook {hook} is lost ({reason}); no longer checked: {', '.join(gone) or 'nothing'}"
        logger.warning("quiesce: %s", message)
        if self.options.enforce:
            raise LostSightError(message)

    def sees(self, hook: str) -> bool:
        """Whether this hook works, as far as is known."""
        return hook not in self._lost

    # Protocol events.

    def paused(self, mode: str, storage: str) -> None:
        """The scheduler's pause flag is set; `storage` is the kind of its storage tier, `none` without one."""
        if self._since is None:
            self._since = self._clock()
            self.flush_wanted = False
        self.minds_forwards = True
        # A retract empties the running work: a later in_place finds nothing to keep.
        if self.mode != "retract":
            self.mode = mode
        self._forget_last()
        if self._recorder is not None:
            self._recorder.paused(storage)
        key = StuckKey(self.options.loop, self.mode, storage, self.options.remedies)
        self._choose_region(self.profile.region_key(key))
        self.board.show("paused", "scheduler", value=1, urgent=True)
        self.board.show("pause_start_timestamp_seconds", "scheduler", value=self._since, urgent=True)

    def retracted(self, refused: int) -> None:
        """A retract has put requests back into the queue; so many of them it turned away."""
        what = f"a retract turned away {refused} requests that had been admitted"
        self._event("requests-conserved", what, holds=not refused)

    def continued(self) -> None:
        """The engine resumes: every episode ends, nothing is wanted any more."""
        self._forget_last()
        self._overdue.forget()
        self.mode = None
        self._since = None
        self._left_alone = ()
        self.minds_forwards = self._stale
        self.flush_wanted = False
        for property_id in tuple(self._episodes):
            self._end(property_id)
        self._show_stuck(())
        self._show_blockers(None)
        self.board.show("paused", "scheduler", value=0, urgent=True)
        self.board.show("pause_start_timestamp_seconds", "scheduler", value=0, urgent=True)

    def flush_decided(self, kind: str, result: str) -> None:
        """A flush was granted, refused or timed out; kind: immediate, deferred, update, release."""
        self._forget_last()
        self.board.count("flushes_total", kind, result)
        if result == "granted":
            self.flush_wanted = False
            self._stale = False
            self.minds_forwards = self._since is not None
            for property_id in ("paused-flush-succeeds", "update-flushes", "no-stale-kv", "update-tells-truth"):
                self._end(property_id)
            self._show_stuck(())
            self._show_blockers(None)
        elif self._since is not None:
            self.flush_wanted = True

    def gate_answered(self, gate: str, seen: Observation, *, open_: bool) -> None:
        """The engine decided a gate (`flush`, `deferred_flush`) in the state `seen`, read just before."""
        if "flush-only-when-quiescent" not in self.watched:
            return
        self._stamp(seen)
        self._seen = seen
        if open_ and self._recorder is not None:
            self._recorder.granted(gate, self._variables(seen))
        expected = self.profile.gates[gate](seen) and not seen.unmodelled
        if gate == "flush":
            self.board.checked("flush-only-when-quiescent")
            if open_ and not expected:
                self._violated("flush-only-when-quiescent", "a flush was granted with its gate closed", seen)
                return
        if open_ != expected:
            says = "open" if open_ else "closed"
            self.lost("gate", f"the engine says gate {gate} is {says}, profile {self.profile.profile} says otherwise")

    def weights_loaded(self) -> None:
        """Weights were written, wholly or in part: a new epoch."""
        self.epoch += 1
        self.board.show("weight_epoch", value=self.epoch, urgent=True)

    def update_begun(self) -> None:
        """The engine handles a weight update; its thread does nothing else until it has."""
        self.board.show("update_start_timestamp_seconds", value=self._clock(), urgent=True)

    def update_ended(self) -> None:
        """The update was answered, or its handler raised."""
        self.board.show("update_start_timestamp_seconds", value=0, urgent=True)

    def version_answered(self, *, agree: bool) -> None:
        """A request that carries a weight version was answered: whether scheduler and tokenizer now have the same."""
        self.board.show("version_mismatch", value=int(not agree), urgent=True)
        self._event("versions-agree", "scheduler and tokenizer have different weight versions", holds=agree)

    def update_answered(self, kind: str, result: str) -> None:
        """A weight update was answered: ok, failed, or unflushed (loaded, but its flush was refused)."""
        if result == "failed" and "flush" in self._lost:
            return  # it may have been unflushed
        self.board.count("updates_total", kind, result)
        if result == "unflushed":
            self._stale = self.minds_forwards = True
        if self.mode != "retract" or "update-flushes" not in self.watched:
            return
        self.board.checked("update-flushes")
        if result == "unflushed":
            self._violated("update-flushes", f"an update ({kind}) with flush_cache was answered unflushed", self._seen)

    def pages_counted(self, census: Census, moment: str) -> None:
        """A census of the KV pages was taken."""
        for state, number in census.counts.items():
            self.board.show("kv_pages", state, value=number, urgent=True)
        self._event("pages-conserved", f"a census {moment} found {census}", holds=census.conserved)

    def forward(self) -> None:
        """A batch is about to be launched.

        Without the lineage of pages `no-stale-kv` is watched as far as a pass shows it: an update whose flush was
        refused, and no flush granted since. That covers the device and host tiers; what a storage tier holds of old
        weights no flush drops.
        """
        if self._since is not None and "no-forward-while-paused" in self.watched:
            self._violated("no-forward-while-paused", "a batch is launched", self._seen)
        if self._stale and "no-stale-kv" in self.watched and not self.sees("lineage"):
            self._violated("no-stale-kv", _UNFLUSHED, self._seen)
        if self._stale and "update-tells-truth" in self.watched:
            self._violated("update-tells-truth", _UNFLUSHED, self._seen)

    def stale_read(self, told: str) -> None:
        """Requests of a batch read KV of older weights, says its lineage; `told`: how much, and from where."""
        if "no-stale-kv" in self.watched:
            self._violated("no-stale-kv", f"a batch read KV of older weights: {told}", self._seen)

    # Passes.

    def observe(self, seen: Observation, before: Observation | None = None) -> None:
        """The end of a pass. `before` is the state in which a paused pass began, where one was read."""
        self._stamp(seen)
        began = None
        if before is not None:
            began = self._passes.ended if before is self._seen else None
            if began is None:
                self._stamp(before)
                began = self._variables(before)
        self._seen = seen
        said = (began, self._variables(seen))
        repeated = self._passes.repeats(said)
        if self._recorder is not None:
            self._recorder.passed(seen, said, repeated=repeated)
        if not repeated:
            self._check(before, seen)
        if self.board.due():
            show_ledgers(self.board, self.profile, seen)
            self._check_overdue(seen)
            self._passes.settle()
            self._count_forwards(seen.forwards)
            self._count_dropped()
            self.board.tick()

    def _check(self, before: Observation | None, seen: Observation) -> None:
        self._checks += 1
        started = time.perf_counter() if self._checks % _TIMED_ONE_IN == 0 else None
        if "state" not in self._lost:
            self._check_invariants(seen)
            if before is not None:
                self._check_steps(before, seen)
            if seen.paused:
                self._check_paused(seen)
        if started is not None:
            self.board.observe("check_duration_seconds", time.perf_counter() - started)

    def _check_overdue(self, seen: Observation) -> None:
        """What lasts: no function of the state, so that it is judged of repeated passes too."""
        if "state" in self._lost:
            return
        for property_id, wrong in self._overdue.judge(seen, self.board.now()):
            self._event(property_id, wrong, holds=not wrong)

    def _forget_last(self) -> None:
        self._passes.settle()
        self._passes.forget()

    def _count_forwards(self, launched: int) -> None:
        """Each batch launched so far was judged, or there was nothing to be judged of it."""
        more, self._forwards = launched - self._forwards, launched
        if more > 0:
            for property_id in _CHECKED_AT_FORWARDS & self.watched:
                self.board.checked(property_id, more)

    def _count_dropped(self) -> None:
        for source in self._dropping:
            for reason, number in source.take_dropped().items():
                self.board.count("trace_events_dropped_total", reason, by=number)

    def _stamp(self, seen: Observation) -> None:
        seen.mode = self.mode
        seen.flush_wanted = self.flush_wanted

    def _check_invariants(self, seen: Observation) -> None:
        for property_id, predicate in self.profile.always.items():
            if property_id in self.watched:
                self._judge(property_id, "the state is one that the protocol excludes", seen, holds=predicate(seen))

    def _check_steps(self, before: Observation, seen: Observation) -> None:
        for property_id, predicate in self.profile.steps.items():
            if property_id in self.watched:
                holds = predicate(before, seen)
                self._judge(property_id, "the paused pass did what it must not", seen, holds=holds)

    def _check_paused(self, seen: Observation) -> None:
        gate = "deferred_flush" if seen.deferred_pending and not seen.flush_wanted else "flush"
        if "idle-is-true" in self.watched and seen.recorded_idle is not None:
            # The record asks the engine's plain gate, which waits for queued requests too.
            idle = self.profile.recorded_gate(seen) and not seen.unmodelled
            what = f"the pass recorded {'idle' if seen.recorded_idle else 'active'}, the ledgers say otherwise"
            self._judge("idle-is-true", what, seen, holds=seen.recorded_idle == idle)
        if "paused-flush-succeeds" not in self.watched:
            return
        self._show_blockers(seen if seen.flush_wanted or seen.deferred_pending else None, gate)
        if not self.sees("stuck_region"):
            return
        self._passes.checked("paused-flush-succeeds")
        stuck = tuple(p for p, region in self._stuck.items() if p in self.watched and region(seen))
        self._show_stuck(stuck)
        for property_id in stuck:
            self._violated(property_id, "the flush that is wanted can never be granted in this pause", seen)
        if not stuck and self.profile.gates["flush"](seen) and not seen.unmodelled:
            self._end("paused-flush-succeeds")

    # Episodes and what is shown.

    def _event(self, property_id: str, what: str, *, holds: bool) -> None:
        """Judge what is no function of a pass's state."""
        if property_id not in self.watched:
            return
        self.board.checked(property_id)
        if holds:
            self._end(property_id)
        else:
            self._violated(property_id, what, self._seen)

    def _judge(self, property_id: str, what: str, seen: Observation, *, holds: bool) -> None:
        self._passes.checked(property_id)
        if holds:
            self._end(property_id)
        else:
            self._violated(property_id, what, seen)

    def _choose_region(self, key: StuckKey) -> None:
        """The stuck region of this pause.

        Only a retract needs one: in_place keeps its running work, so no flush can be granted by design.
        """
        self._stuck = self.profile.stuck.get(key, {})
        self._left_alone = self.profile.left_alone(key)
        known = key.mode != "retract" or key in self.profile.stuck
        if known:
            self._lost.discard("stuck_region")
        else:
            self._lost.add("stuck_region")
        self.board.show("hook_applied", "stuck_region", value=int(known), urgent=True)
        if not known and key not in self._without_region:
            self._without_region.add(key)
            logger.warning("quiesce: no stuck region is compiled for %s; paused-flush-succeeds is not checked", key)

    def _violated(self, property_id: str, what: str, seen: Observation | None) -> None:
        if property_id in self._episodes:
            return
        self._episodes.add(property_id)
        now = self._clock()
        message = describe(self.profile, Finding(property_id, what, seen, now, self._since, self._left_alone))
        number = seen.sequence if seen is not None else 0
        self.board.report(Violation(property_id, str(self.options.rank), number, now, message))
        logger.error("quiesce: %s", message)
        if self.options.enforce:
            if self._recorder is not None:
                self._recorder.settle(_SETTLE_SECONDS)
            raise ProtocolViolationError(message)

    def _end(self, property_id: str) -> None:
        self._episodes.discard(property_id)

    def _show_stuck(self, stuck: tuple[str, ...]) -> None:
        for property_id in self._stuck:
            self.board.show("stuck", property_id, value=int(property_id in stuck), urgent=True)

    def _show_blockers(self, seen: Observation | None, gate: str = "flush") -> None:
        show_blockers(self.board, self.profile, self._blockers, seen, gate)
