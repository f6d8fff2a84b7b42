"""Remedies for flushes that are refused although nothing but time is missing."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from engine_hooks.sglang.repairs.base import FLUSH, SCHEDULER, WEIGHTS, Call, Engine, Place, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("quiesce")

_INTAKE = f"{SCHEDULER}.process_input_requests"
_UPDATES = frozenset(
    (
        "UpdateWeightFromDiskReqInput",
        "UpdateWeightsFromDistributedReqInput",
        "UpdateWeightsFromTensorReqInput",
        "UpdateWeightsFromIPCReqInput",
    )
)


class DeferredFlushIgnoresWaiting(Remedy):
    """A deferred flush asks the gate of an immediate one: while paused, requests that wait do not hold it back."""

    name = "deferred-flush-ignores-waiting"
    repairs: ClassVar[Mapping[str, str]] = {f"{FLUSH}.handle": "e9713d5f34c9", f"{FLUSH}.check_pending": "d261620e3f74"}

    def bind(self, scheduler: Engine) -> None:
        """Raises TypeError where the wrapper asks another gate than the plain one: it is repaired, or another."""
        asked = scheduler.flush_wrapper._is_fully_idle  # noqa: SLF001 - the engine has no public name for it
        if asked != scheduler.is_fully_idle:
            raise TypeError("the flush wrapper does not ask Scheduler.is_fully_idle")

    def switch_on(self, scheduler: Engine) -> None:
        """The wrapper has the gate since its construction: so it is replaced there."""
        super().switch_on(scheduler)
        scheduler.flush_wrapper._is_fully_idle = lambda: scheduler.is_fully_idle(  # noqa: SLF001 - as above
            ignore_waiting=scheduler._engine_paused  # noqa: SLF001 - as above
        )


class FlushWaits(Remedy):
    """An update that must flush is handled once its gate is open, or after a time, or where waiting is vain.

    Until then it stays at the head of the scheduler's input, and what came after it behind it, so that their order is
    the client's. The passes go round meanwhile, which is what drains HiCache (while paused only with
    `reap-while-paused`). Running work ends no pause: then the update is handled at once, and refused as without this.
    All ranks that get one message in one pass decide alike, by one reduction a pass, and only while an update waits.
    """

    name = "flush-waits"
    places: ClassVar[tuple[Place, ...]] = (Place(_INTAKE, "ingesting"),)
    repairs: ClassVar[Mapping[str, str]] = {
        _INTAKE: "f02ae3a75f27",
        f"{WEIGHTS}.flush_cache_after_weight_update": "7c23e3ef657a",
    }

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._held: list[Engine] = []
        self._until: float | None = None

    def bind(self, scheduler: Engine) -> None:
        """Raises ValueError in a pipeline: its stages take a message in different passes."""
        from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415 - imported only where an engine runs

        if get_parallel().pp_size > 1:
            raise ValueError("the stages of a pipeline take one message in different passes")
        self._agree = _agreement(scheduler, get_parallel().tp_size)

    def ingesting(self, original: Call, scheduler: Engine, requests: Sequence[Engine], *args: object) -> object:
        """Around `process_input_requests`."""
        if not self.on or not (self._held or any(map(_flushes, requests))):
            return original(scheduler, requests, *args)
        queue, self._held = [*self._held, *requests], []
        now: list[Engine] = []
        result: object = None
        for place, request in enumerate(queue):
            if _flushes(request):
                if now:  # what came before it may change what it has to wait for
                    result, now = original(scheduler, now, *args), []
                if not self._may_go(scheduler):
                    self._held = queue[place:]
                    break
            now.append(request)
        # What else a pass does there, it does once at least: a deferred flush, the sessions' time-outs.
        return original(scheduler, now, *args) if now or not queue[: len(queue) - len(self._held)] else result

    def _may_go(self, scheduler: Engine) -> bool:
        now = self._clock()
        if self._until is None:
            self._until = now + self._seconds
        paused = scheduler._engine_paused  # noqa: SLF001 - the engine has no public name for it
        open_ = scheduler.is_fully_idle(ignore_waiting=paused)
        vain = now >= self._until or (paused and _runs(scheduler))
        all_open, none_vain = self._agree(open_, not vain)
        if not all_open and none_vain:
            return False
        if not all_open and now < self._until:
            logger.warning("quiesce: an update does not wait for its flush: what runs keeps its KV in this pause")
        elif not all_open:
            logger.warning("quiesce: an update waited for its flush in vain (%g s)", self._seconds)
        self._until = None
        return True


def _flushes(request: Engine) -> bool:
    return type(request).__name__ in _UPDATES and bool(request.flush_cache)


def _runs(scheduler: Engine) -> bool:
    """Whether work runs that no paused pass ends (`Scheduler.is_fully_idle`, its first terms)."""
    last = scheduler.last_batch
    return bool(
        not scheduler.running_batch.is_empty()
        or scheduler.chunked_req is not None
        or (last is not None and not last.is_empty())
        or (scheduler.enable_overlap and len(scheduler.result_queue) > 0)
    )


def _agreement(scheduler: Engine, ranks: int) -> Callable[[bool, bool], tuple[bool, bool]]:
    """A function that turns this rank's two answers into those of all: true where they are true on each."""
    if ranks == 1:
        return lambda first, second: (first, second)
    import torch  # noqa: PLC0415 - imported only where an engine runs

    group = scheduler.tp_cpu_group

    def agree(first: bool, second: bool) -> tuple[bool, bool]:  # noqa: FBT001 - two answers, in this order
        both = torch.tensor([int(first), int(second)], dtype=torch.int64)
        torch.distributed.all_reduce(both, op=torch.distributed.ReduceOp.MIN, group=group)
        return bool(both[0]), bool(both[1])

    return agree
