"""Remedies for requests that a pause must not cost: none refused, none timed out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from engine_hooks.sglang.repairs.base import SCHEDULER, Call, Engine, Place, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT = f"{SCHEDULER}._abort_on_queued_limit"
_TIMEOUTS = f"{SCHEDULER}._poll_timeout_aborts"
_SESSION = "sglang.srt.session.session_controller.Session.is_timed_out"
_WATCHDOG = "sglang.srt.managers.scheduler_components.invariant_checker.create_scheduler_watchdog"
_PAUSES = 4096
"""So many pauses are remembered: a time-out that spans more of them counts the oldest."""


class RetractKeepsAdmitted(Remedy):
    """`max_queued_requests` does not count what a retract has put back into the queue: it was admitted once."""

    name = "retract-keeps-admitted"
    places: ClassVar[tuple[Place, ...]] = (
        Place(f"{SCHEDULER}.pause_generation", "pausing"),
        Place(_LIMIT, "limiting"),
    )
    repairs: ClassVar[Mapping[str, str]] = {_LIMIT: "572122ccfd51"}

    def __init__(self) -> None:
        super().__init__()
        self._retracting = False
        self._kept: list[Engine] = []

    def pausing(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around `pause_generation`."""
        self._kept = [request for request in self._kept if request in scheduler.waiting_queue]
        self._retracting = self.on
        try:
            return original(scheduler, *args, **kwargs)
        finally:
            self._retracting = False

    def limiting(self, original: Call, scheduler: Engine, request: Engine, *args: object) -> object:
        """Around `_abort_on_queued_limit`, which says whether this request is turned away."""
        if not self.on:
            return original(scheduler, request, *args)
        if self._retracting:
            self._kept.append(request)
            return False
        limit, waiting = scheduler.max_queued_requests, scheduler.waiting_queue
        if limit is None or len(waiting) < limit:
            return False
        kept = {id(one) for one in self._kept}
        counted = sum(id(one) not in kept for one in waiting)
        return False if counted < limit else original(scheduler, request, *args)


class PauseStopsClocks(Remedy):
    """The time-outs of requests and of sessions, and the watchdog, count no second of a pause."""

    name = "pause-stops-clocks"
    places: ClassVar[tuple[Place, ...]] = (
        Place(f"{SCHEDULER}.pause_generation", "pausing"),
        Place(f"{SCHEDULER}.continue_generation", "continuing"),
        Place(_TIMEOUTS, "timing_out"),
        Place(_SESSION, "session_timing_out"),
    )
    repairs: ClassVar[Mapping[str, str]] = {
        _TIMEOUTS: "88b8ba8d2520",
        _SESSION: "2dcf6f889a92",
        _WATCHDOG: "d6709437e59b",
    }

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # The engine stamps requests with perf_counter and sessions with monotonic, which on Linux are one clock.
        self._ahead = time.perf_counter() - time.monotonic()
        self._pauses: deque[tuple[float, float]] = deque(maxlen=_PAUSES)
        self._began: float | None = None
        self._resumed = 0

    def bind(self, scheduler: Engine) -> None:
        """Raises AttributeError where a watchdog is not the one that was read."""
        self._dogs = [scheduler.watchdog, *filter(None, [getattr(scheduler, "soft_watchdog", None)])]
        for dog in self._dogs:
            _ = dog.is_active, dog.get_counter

    def switch_on(self, scheduler: Engine) -> None:
        """A watchdog has its questions since its construction: so they are replaced there."""
        super().switch_on(scheduler)
        for dog in self._dogs:
            active, counter = dog.is_active, dog.get_counter
            dog.is_active = lambda active=active: self._began is None and active()
            # What it saw last before the pause is old by the pause: a resumption counts as progress.
            dog.get_counter = lambda counter=counter: counter() + self._resumed

    def pausing(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around `pause_generation`."""
        if self._began is None:
            self._began = self._clock()
        return original(scheduler, *args, **kwargs)

    def continuing(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around `continue_generation`."""
        result = original(scheduler, *args, **kwargs)
        if self._began is not None:
            self._pauses.append((self._began, self._clock()))
            self._resumed += 1  # before the watchdog looks again
            self._began = None
        return result

    def timing_out(self, original: Call, scheduler: Engine, *args: object) -> object:
        """Around `_poll_timeout_aborts`: without the requests that are in time when the pauses are left out."""
        aborts: list[Engine] = original(scheduler, *args)
        if not self.on or not aborts:
            return aborts
        from sglang.srt.environ import envs  # noqa: PLC0415 - imported only where an engine runs

        late = {
            r.rid for r in scheduler.waiting_queue if self._late(r, envs.SGLANG_REQ_WAITING_TIMEOUT.get(), "wait_queue")
        }
        running = scheduler.collect_inflight_reqs()
        late |= {r.rid for r in running if self._late(r, envs.SGLANG_REQ_RUNNING_TIMEOUT.get(), "forward")}
        return [abort for abort in aborts if abort.rid in late]

    def session_timing_out(self, original: Call, session: Engine, *args: object) -> object:
        """Around `Session.is_timed_out`."""
        if not self.on or not original(session, *args):
            return False if self.on else original(session, *args)
        since: float = session.last_active_time
        return bool(self._clock() - since - self.paused_since(since) > session.timeout)

    def paused_since(self, then: float) -> float:
        """How long (s) of the time since `then` the engine was paused."""
        now = self._clock()
        current = [(self._began, now)] if self._began is not None else []
        return sum(max(0.0, end - max(begin, then)) for begin, end in [*self._pauses, *current])

    def _late(self, request: Engine, seconds: float, entered: str) -> bool:
        since: float = getattr(request.time_stats, f"{entered}_entry_time") - self._ahead
        return 0 < seconds < self._clock() - since - self.paused_since(since)
