"""The queues of a worker that only prefills or only decodes, as the spec's ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Objects of the engine; its modules are not imported here.
Engine = Any

Queues = tuple[tuple[str, "Callable[[], int]"], ...]


def worker_queues(scheduler: Engine) -> Queues:
    """Each queue that `Scheduler.is_fully_idle` asks: the variable of the spec, and how many entries it has now.

    Raises AttributeError where the engine's attributes are not those of the profile's version.
    """
    kind = scheduler.disaggregation_mode.value
    if kind == "prefill":
        bootstrap = scheduler.disagg_prefill_bootstrap_queue
        return (
            ("pd_bootstrap_waiting", lambda: len(bootstrap.queue)),
            ("pd_inflight_sending", lambda: len(scheduler.disagg_prefill_inflight_queue)),
        )
    if kind == "decode":
        prealloc, transfer = scheduler.disagg_decode_prealloc_queue, scheduler.disagg_decode_transfer_queue
        return (
            ("pd_prealloc_waiting", lambda: len(prealloc.queue) + len(prealloc.retracted_queue)),
            ("pd_transfer_receiving", lambda: len(transfer.queue)),
            ("pd_release_held", lambda: int(transfer.has_pending_deferred_releases())),
        )
    return ()
