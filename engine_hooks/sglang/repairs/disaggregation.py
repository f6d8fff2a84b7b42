"""A remedy for workers that only prefill or only decode, whose paused loops leave their transfer queues alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from engine_hooks.sglang.repairs.base import SCHEDULER, Call, Engine, Place, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSED_PASS = f"{SCHEDULER}._record_scheduler_state_for_paused_engine"
_PAUSE = f"{SCHEDULER}.pause_generation"


class PDDrainsWhilePaused(Remedy):
    """Each paused pass works off the queues of a prefill or a decode worker.

    A decode worker takes in the KV that has arrived. In a retract it then gives that up at once, as the pause did with
    what had arrived before it: the request is sent again by the prefill worker after the pause, by the weights of then.
    A prefill worker takes up requests whose decode worker has answered, and lets go of those whose KV was sent.
    """

    name = "pd-drains-while-paused"
    places: ClassVar[tuple[Place, ...]] = (Place(_PAUSE, "pausing"),)
    repairs: ClassVar[Mapping[str, str]] = {
        _PAUSED_PASS: "a84579a1f5b1",
        _PAUSE: "c6c55b22c6b4",
        f"{SCHEDULER}.process_decode_queue": "f07b4a12e99a",
        f"{SCHEDULER}.process_disagg_prefill_inflight_queue": "6514359943ea",
    }
    needs: ClassVar[tuple[str, ...]] = ("reap-while-paused",)

    def __init__(self) -> None:
        super().__init__()
        self._retract: Callable[[], object] | None = None

    def bind(self, scheduler: Engine) -> None:
        """Raises ValueError where the engine is no worker of one kind."""
        kind = scheduler.disaggregation_mode.value
        if kind not in ("prefill", "decode"):
            raise ValueError("the engine does both prefill and decode")
        self._scheduler = scheduler
        drains = {"decode": (self._drain_decode, self._give_up), "prefill": (self._drain_prefill, _nothing)}
        self._drain = drains[kind][_in_pipeline()]

    def needed(self) -> tuple[str, ...]:
        """In a pipeline the loop works off its queues itself, but honours no pause."""
        return (*self.needs, "pp-honours-pause") if _in_pipeline() else self.needs

    def before_record(self) -> None:
        """As the running pass does it, but for the requests that a retract takes back."""
        self._drain()

    def pausing(self, original: Call, scheduler: Engine, request: Engine, *args: object) -> object:
        """Around `pause_generation`."""
        retracts = request.mode == "retract"
        self._retract = (lambda: original(scheduler, request, *args)) if retracts else None
        return original(scheduler, request, *args)

    def _drain_decode(self) -> None:
        """As `process_decode_queue`."""
        self._scheduler.process_decode_queue()
        self._give_up()

    def _give_up(self) -> None:
        """As `pause_generation` treats what waits with its KV."""
        if self._retract is not None and any(request.kv.holds_kv for request in self._scheduler.waiting_queue):
            self._retract()

    def _drain_prefill(self) -> None:
        """As `event_loop_normal_disagg_prefill` does around its batch."""
        scheduler = self._scheduler
        scheduler.waiting_queue.extend(scheduler.disagg_prefill_bootstrap_queue.pop_bootstrapped())
        scheduler.process_disagg_prefill_inflight_queue()


def _in_pipeline() -> bool:
    from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415 - imported only where an engine runs

    return bool(get_parallel().pp_size > 1)


def _nothing() -> None:
    """The loop does it."""
