"""A remedy for pipelines, whose loop never looks at the pause flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from engine_hooks.sglang.repairs.base import SCHEDULER, Call, Engine, Place, Remedy

_INTAKE = f"{SCHEDULER}.process_input_requests"
_PAUSE = f"{SCHEDULER}.pause_generation"
_NEXT = f"{SCHEDULER}.get_next_batch_to_run"
_PAUSE_REQUEST = "PauseGenerationReqInput"


class PPHonoursPause(Remedy):
    """A pause stops the micro-batches of a pipeline, and a retract takes back the requests of all of them.

    The stages take one message in the same step of their loops, and hold the same micro-batches then. So each decides
    alone, and they agree: from a pause on none launches; the pause, and what came after it, is handled in the first
    step in which no micro-batch is under way any more, at most one round later. The results of what was under way are
    processed meanwhile as ever.
    """

    name = "pp-honours-pause"
    places: ClassVar[tuple[Place, ...]] = (
        Place(_INTAKE, "ingesting"),
        Place(_PAUSE, "pausing"),
        Place(_NEXT, "scheduling"),
        Place(f"{SCHEDULER}.on_idle", "idling"),
    )
    repairs: ClassVar[Mapping[str, str]] = {
        "sglang.srt.managers.scheduler_pp_mixin.SchedulerPPMixin.event_loop_pp": "907cc3cb646f",
        _INTAKE: "f02ae3a75f27",
        _PAUSE: "c6c55b22c6b4",
        _NEXT: "9c5ef6348963",
    }
    needs: ClassVar[tuple[str, ...]] = ("reap-while-paused",)

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Engine] = []

    def bind(self, scheduler: Engine) -> None:
        """Raises ValueError where the loop is another, or where the stages of a step may differ."""
        from sglang.srt.managers.schedule_batch import NextBatchPlan, ScheduleBatch  # noqa: PLC0415 - imported only where an engine runs
        from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415 - as above

        parallel = get_parallel()
        if parallel.pp_size == 1:
            raise ValueError("the engine is no pipeline")
        if scheduler.disaggregation_mode.value in ("prefill", "decode"):
            raise ValueError("the loops of pipelines that only prefill or only decode are others")
        if parallel.attn_dp_enabled or not scheduler.spec_algorithm.is_none():
            raise ValueError("not tried with DP attention, nor with speculative decoding")
        self._plan, self._batch = NextBatchPlan, ScheduleBatch

    def ingesting(self, original: Call, scheduler: Engine, requests: Sequence[Engine], *args: object) -> object:
        """Around `process_input_requests`."""
        if not self.on:
            return original(scheduler, requests, *args)
        queue = [*self._held, *requests]
        until = len(queue)
        if any(batch is not None for batch in scheduler.mbs):
            until = next((i for i, request in enumerate(queue) if type(request).__name__ == _PAUSE_REQUEST), until)
        self._held = queue[until:]
        return original(scheduler, queue[:until], *args)

    def pausing(self, original: Call, scheduler: Engine, request: Engine, *args: object) -> object:
        """Around `pause_generation`, which takes back the requests of one micro-batch: here of all, and each once."""
        if not self.on or request.mode != "retract":
            return original(scheduler, request, *args)
        of_this_step = scheduler.running_batch
        scheduler.running_batch = self._batch(reqs=_requests(scheduler), batch_is_full=False)
        scheduler.last_batch = None
        try:
            return original(scheduler, request, *args)
        finally:
            for batch in (*scheduler.running_mbs, of_this_step):
                batch.reqs, batch.batch_is_full = [], False
            scheduler.last_mbs = [None] * len(scheduler.last_mbs)
            scheduler.running_batch = of_this_step

    def scheduling(self, original: Call, scheduler: Engine, *args: object, **kwargs: Engine) -> object:
        """Around `get_next_batch_to_run`: a paused pass reaps and records, and launches nothing."""
        paused = scheduler._engine_paused  # noqa: SLF001 - the engine has no public name for it
        if not self.on or not (paused or self._held):
            return original(scheduler, *args, **kwargs)
        if paused:
            scheduler._record_scheduler_state_for_paused_engine()  # noqa: SLF001 - as above
        return self._plan(batch_to_run=None, running_batch=scheduler.running_batch)

    def idling(self, original: Call, scheduler: Engine, *args: object) -> object:
        """Around `on_idle`, which no paused loop calls: it resets and sleeps."""
        if self.on and (scheduler._engine_paused or self._held):  # noqa: SLF001 - the engine has no public name for it
            return None
        return original(scheduler, *args)


def _requests(scheduler: Engine) -> list[Engine]:
    """The unfinished requests of all micro-batches, as `pause_generation` finds those of one: each once."""
    found: dict[int, Engine] = {}
    for running, last in zip(scheduler.running_mbs, scheduler.last_mbs, strict=True):
        found |= {id(request): request for request in running.reqs}
        if last is not None and last.forward_mode.is_extend():
            found |= {id(request): request for request in last.reqs}
    waiting = {id(request) for request in scheduler.waiting_queue}
    return [request for key, request in found.items() if key not in waiting and not request.finished()]
