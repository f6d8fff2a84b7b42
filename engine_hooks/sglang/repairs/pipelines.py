"""A remedy for pipelines, whose loops never look at the pause flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from engine_hooks.sglang.repairs.base import SCHEDULER, Call, Engine, Place, Remedy

_INTAKE = f"{SCHEDULER}.process_input_requests"
_PAUSE = f"{SCHEDULER}.pause_generation"
_LOOPS = "sglang.srt.managers.scheduler_pp_mixin.SchedulerPPMixin.event_loop_pp"
_NEXT = f"{SCHEDULER}.get_next_batch_to_run"
_NEXT_PREFILL = f"{SCHEDULER}.get_new_batch_prefill"
_NEXT_DECODE = f"{SCHEDULER}.get_next_disagg_decode_batch_to_run"
_CHUNK = f"{SCHEDULER}.process_prefill_chunk"
_REAP = f"{SCHEDULER}._process_hicache_events"
_PAUSE_REQUEST = "PauseGenerationReqInput"


class PPHonoursPause(Remedy):
    """A pause stops the micro-batches of a pipeline, and a retract takes back the requests of all of them.

    The stages take one message in the same step of their loops, and hold the same micro-batches then. So each decides
    alone, and they agree: from a pause on none launches; the pause, and what came after it, is handled in the first
    step in which no micro-batch is under way any more, at most one round later. The results of what was under way are
    processed meanwhile as ever. What a prefill or a decode worker has under way with its peer, its loop works off in
    each step, paused or not: the stages agree on each queue in turn, and have the same queues in the same step.
    """

    name = "pp-honours-pause"
    places: ClassVar[tuple[Place, ...]] = (
        Place(_INTAKE, "ingesting"),
        Place(_PAUSE, "pausing"),
        *(Place(path, "scheduling") for path in (_NEXT, _NEXT_PREFILL, _NEXT_DECODE)),
        Place(_CHUNK, "chunking"),
        Place(_REAP, "reaping"),
        Place(f"{SCHEDULER}.on_idle", "idling"),
    )
    repairs: ClassVar[Mapping[str, str]] = {
        _LOOPS: "907cc3cb646f",
        f"{_LOOPS}_disagg_prefill": "647020c679ec",
        f"{_LOOPS}_disagg_decode": "aaa9935d47e3",
        _INTAKE: "f02ae3a75f27",
        _PAUSE: "c6c55b22c6b4",
        _NEXT: "9c5ef6348963",
        _NEXT_DECODE: "62e6a3add8f9",
        _CHUNK: "a2e38cf8e708",
        _REAP: "3bbf8a50919e",
    }
    needs: ClassVar[tuple[str, ...]] = ("reap-while-paused",)

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Engine] = []

    def bind(self, scheduler: Engine) -> None:
        """Raises ValueError where the loop is another, or where the stages may differ in a step."""
        from sglang.srt.managers.schedule_batch import NextBatchPlan, ScheduleBatch  # noqa: PLC0415 - imported only where an engine runs
        from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415 - as above

        parallel = get_parallel()
        if parallel.pp_size == 1:
            raise ValueError("the engine is no pipeline")
        if parallel.attn_dp_enabled or not scheduler.spec_algorithm.is_none():
            raise ValueError("not tried with DP attention, nor with speculative decoding")
        self._plan, self._batch = NextBatchPlan, ScheduleBatch
        mode = scheduler.disaggregation_mode.value
        # What a prefill worker has computed waits for its KV to be sent, and is no running work.
        self._prefills = mode == "prefill"
        # The running loop of a pipeline that decodes has no call of the reap.
        self._reap = (
            scheduler.tree_cache.check_hicache_events if mode == "decode" and scheduler.enable_decode_hicache else None
        )

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
        scheduler.running_batch = self._batch(reqs=self._running(scheduler), batch_is_full=False)
        scheduler.last_batch = None
        try:
            return original(scheduler, request, *args)
        finally:
            for batch in (*scheduler.running_mbs, of_this_step):
                batch.reqs, batch.batch_is_full = [], False
            scheduler.last_mbs = [None] * len(scheduler.last_mbs)
            scheduler.running_batch = of_this_step

    def scheduling(self, original: Call, scheduler: Engine, *args: object, **kwargs: Engine) -> object:
        """Around what gives the next batch: a paused pass reaps and records, and launches nothing."""
        if not self._stands(scheduler):
            if self.on and self._reap is not None:
                self._reap()
            return original(scheduler, *args, **kwargs)
        if scheduler._engine_paused:  # noqa: SLF001 - the engine has no public name for it
            scheduler._record_scheduler_state_for_paused_engine()  # noqa: SLF001 - as above
        return self._plan(batch_to_run=None, running_batch=scheduler.running_batch)

    def chunking(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around `process_prefill_chunk`, a part of the scheduling: it sends what a chunk has computed."""
        return None if self._stands(scheduler) else original(scheduler, *args, **kwargs)

    def reaping(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around the reap: the loop of a prefill worker calls it with lookups, a paused pass has that of the record."""
        paused = self.on and scheduler._engine_paused  # noqa: SLF001 - the engine has no public name for it
        return None if paused and not kwargs else original(scheduler, *args, **kwargs)

    def idling(self, original: Call, scheduler: Engine, *args: object) -> object:
        """Around `on_idle`, which no paused loop calls: it resets and sleeps."""
        return None if self._stands(scheduler) else original(scheduler, *args)

    def _stands(self, scheduler: Engine) -> bool:
        """Whether no batch may be launched: paused, or about to be."""
        return self.on and bool(scheduler._engine_paused or self._held)  # noqa: SLF001 - the engine has no public name for it

    def _running(self, scheduler: Engine) -> list[Engine]:
        last = [None] * len(scheduler.last_mbs) if self._prefills else scheduler.last_mbs
        return _requests(scheduler.running_mbs, last, scheduler.waiting_queue)


def _requests(
    running_batches: Sequence[Engine], last_batches: Sequence[Engine], queue: Sequence[Engine]
) -> list[Engine]:
    """The unfinished requests of all micro-batches, as `pause_generation` finds those of one: each once."""
    found: dict[int, Engine] = {}
    for running, last in zip(running_batches, last_batches, strict=True):
        found |= {id(request): request for request in running.reqs}
        if last is not None and last.forward_mode.is_extend():
            found |= {id(request): request for request in last.reqs}
    waiting = {id(request) for request in queue}
    return [request for key, request in found.items() if key not in waiting and not request.finished()]
