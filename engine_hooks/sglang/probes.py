"""The functions that SGLang's HookRegistry calls: thin, and each gives the engine's own call back unchanged.

What the engine's function raises passes through untouched; what a probe raises does not reach the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_hooks.errors import QuiesceError
from engine_hooks.sglang.probes_on_demand import OnDemand, around_ingest
from engine_hooks.sglang.probes_session import LOOK_NOW

if TYPE_CHECKING:
    from engine_hooks.sglang.probes_session import Session

logger = logging.getLogger("quiesce")

# Objects of the engine; its modules are not imported here.
Engine = Any
Call = Callable[..., Any]


@dataclass(frozen=True)
class _Load:
    """One update of weights."""

    kind: str
    could_load: bool
    """Weights may be written even where the update is answered with a failure."""


class Probes:
    """The hooks of one process. They do nothing until its scheduler has been built and `start` gave a session."""

    def __init__(self, start: Callable[[Engine], Session | None]) -> None:
        self._start = start
        self._session: Session | None = None

    def started(self, _result: None, scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """AFTER `Scheduler.__init__`."""
        try:
            session = self._session = self._start(scheduler)
            if session is not None:
                session.guarded("pass", self._look_at_passes, session)
        except QuiesceError:  # raised on purpose, in `enforce` only
            raise
        except Exception:
            logger.exception("quiesce: cannot start; nothing is watched and no remedy is active")

    def ingesting(self, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """BEFORE `Scheduler.ingest_requests`; hooked only for a trace, as are the next three."""
        session = self._session
        if session is not None and session.trace is not None:
            session.trace.ingesting()

    def queued(self, _result: object, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """AFTER `Scheduler._add_request_to_queue`."""
        session = self._session
        if session is not None and session.trace is not None:
            session.trace.queued()

    def aborted(self, _result: object, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """AFTER `Scheduler.abort_request`."""
        session = self._session
        if session is not None and session.trace is not None:
            session.trace.tracer.did("abort")

    def pausing(self, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """BEFORE `Scheduler.pause_generation`."""
        session = self._session
        if session is not None and session.trace is not None:
            session.trace.pausing()

    @staticmethod
    def _look_at_passes(session: Session) -> None:
        """AROUND `Scheduler.ingest_requests`, without a layer in between."""
        scheduler = session.scheduler
        scheduler.ingest_requests = around_ingest(session, scheduler.ingest_requests)

    def paused_pass(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `Scheduler._record_scheduler_state_for_paused_engine`; the place of `reap-while-paused`."""
        session = self._session
        if session is None:
            return original(scheduler, *args, **kwargs)
        for remedy in session.remedies:
            remedy.before_record()
        session.idle = None
        result = original(scheduler, *args, **kwargs)
        session.guarded("paused_pass", session.paused_pass_ended)
        return result

    def idling(self, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """BEFORE `Scheduler.on_idle`, whose own check of the pools ends the scheduler where it fails."""
        session = self._session
        if session is not None and session.census is not None:
            session.guarded("census", session.idling)

    def paused(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `Scheduler.pause_generation`."""
        session = self._session
        if session is None:
            return original(scheduler, *args, **kwargs)
        session.guarded("pause", lambda: session.retracting(_request(args, kwargs).mode))
        result = original(scheduler, *args, **kwargs)
        session.guarded("pause", lambda: session.paused(_request(args, kwargs).mode))
        return result

    def continued(self, _result: object, _scheduler: Engine, *_args: object, **_kwargs: object) -> None:
        """AFTER `Scheduler.continue_generation`."""
        session = self._session
        if session is not None:
            session.guarded("resume", session.continued)

    def idle_answered(self, result: object, _scheduler: Engine, *args: object, **kwargs: object) -> None:
        """AFTER `Scheduler.is_fully_idle`; keeps the first answer of the plain gate, which has no option set."""
        session = self._session
        if session is not None and session.idle is None and not any(args) and not any(kwargs.values()):
            session.idle = bool(result)

    def flush(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `Scheduler.flush_cache`."""
        session = self._session
        if session is None:
            return original(scheduler, *args, **kwargs)
        session.guarded("flush", session.flush_begins)
        granted = original(scheduler, *args, **kwargs)
        session.guarded("flush", session.flush_answered, granted)
        return granted

    def release(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `SchedulerWeightUpdaterManager.release_memory_occupation`."""
        return self._flushing_as("release", original, manager, *args, **kwargs)

    def flush_requested(self, original: Call, wrapper: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `SchedulerFlushWrapper.handle`."""
        session = self._session
        if session is None or not getattr(_request(args, kwargs), "timeout_s", None):
            return original(wrapper, *args, **kwargs)
        result = self._deferred(session, original, wrapper, *args, **kwargs)
        session.guarded("deferred_flush", self._look_at_pending, session, wrapper)
        return result

    def _look_at_pending(self, session: Session, wrapper: Engine) -> None:
        """Hook `SchedulerFlushWrapper.check_pending`, which runs in each pass, for as long as a flush waits."""
        if wrapper._pending is None:  # noqa: SLF001 - the engine has no public name for it
            return
        session.next_look = LOOK_NOW

        def checked(original: Call, *args: object, **kwargs: object) -> object:
            result = self._deferred(session, original, *args, **kwargs)
            if wrapper._pending is None:  # noqa: SLF001 - as above
                hook.off()
            return result

        hook = OnDemand(wrapper, "check_pending", checked)
        hook.on()

    def update_from_disk(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `SchedulerWeightUpdaterManager.update_weights_from_disk`."""
        # A failure alone says nothing: most are found before a weight is written.
        return self._update(_Load("disk", could_load=False), original, manager, *args, **kwargs)

    def update_from_distributed(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `SchedulerWeightUpdaterManager.update_weights_from_distributed`."""
        return self._update(_Load("distributed", could_load=_session_open(manager)), original, manager, *args, **kwargs)

    def update_from_tensor(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `SchedulerWeightUpdaterManager.update_weights_from_tensor`."""
        return self._update(_Load("tensor", could_load=_session_open(manager)), original, manager, *args, **kwargs)

    def update_from_ipc(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """AROUND `SchedulerWeightUpdaterManager.update_weights_from_ipc`."""
        return self._update(_Load("ipc", could_load=True), original, manager, *args, **kwargs)

    def version_set(self, _result: object, _scheduler: Engine, *args: object, **kwargs: object) -> None:
        """AFTER `Scheduler.handle_update_weight_version`, which the tokenizer's own change follows always."""
        session = self._session
        if session is not None:
            session.guarded("version", lambda: session.version_answered(_request(args, kwargs).new_version, True))  # noqa: FBT003 - as the engine answers

    def _update(self, load: _Load, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        session = self._session
        if session is None:
            return original(manager, *args, **kwargs)
        session.update_begins()
        try:
            reply: Any = self._flushing_as("update", original, manager, *args, **kwargs)
        finally:
            session.guarded("update", session.monitor.update_ended)
        session.guarded("update", lambda: session.update_answered(load.kind, reply, load.could_load))
        asked = getattr(_request(args, kwargs), "weight_version", None)
        session.guarded("version", lambda: session.version_answered(asked, reply.success))
        return reply

    def _deferred(self, session: Session, original: Call, *args: object, **kwargs: object) -> object:
        begun: list[int] = []
        session.guarded("deferred_flush", lambda: begun.append(session.deferred_begins()))
        result = self._flushing_as("deferred", original, *args, **kwargs)
        if begun:
            session.guarded("deferred_flush", session.deferred_ended, begun[0])
        return result

    def _flushing_as(self, kind: str, original: Call, *args: object, **kwargs: object) -> object:
        """Call the engine with the kind that a flush inside this call is counted as."""
        session = self._session
        if session is None:
            return original(*args, **kwargs)
        outer = session.flush_kind
        session.flush_kind = kind
        try:
            return original(*args, **kwargs)
        finally:
            session.flush_kind = outer


def _request(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Engine:
    """The one request that a handler of the engine is called with."""
    return args[0] if args else next(iter(kwargs.values()), None)


def _session_open(manager: Engine) -> bool:
    """Whether a weight-update session is open, without which the engine refuses before it loads anything."""
    return getattr(manager, "_session", None) is not None
