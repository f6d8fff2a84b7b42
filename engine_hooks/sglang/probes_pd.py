"""Counts what a prefill or a decode worker has under way with its peer, by stage, as the spec's ledgers.

Nothing is polled: a poll of the engine's own counts time-outs and concludes requests. What is ready is what the next
poll would find at its end, so that a failure is ready too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Objects of the engine; its modules are not imported here.
Engine = Any

# `KVPoll` of srt/disaggregation/base/conn.py.
_FAILED, _BOOTSTRAPPING, _SUCCESS = 0, 1, 4

LEDGERS = {
    "prefill": ("pd_bootstrap", "pd_inflight"),
    "decode": ("pd_prealloc", "pd_transfer", "pd_release", "pd_held"),
}
"""What a worker of this mode has."""


class PeerReader:
    """Reads one worker. Construction checks that every attribute is there."""

    def __init__(self, scheduler: Engine) -> None:
        """Raises AttributeError where the engine's attributes are not those of the profile's version."""
        mode = scheduler.disaggregation_mode.value
        readers: Mapping[str, Callable[[], dict[str, int]]] = {"prefill": self._prefill, "decode": self._decode}
        self._scheduler = scheduler
        self._read = readers.get(mode)
        self.ledgers = LEDGERS.get(mode, ())
        """The ledgers that are counted; none where the engine does both."""
        self.read()

    def read(self) -> dict[str, int]:
        """The counters of the ledgers, and `waiting`: who waits in the queues that come before the scheduler's own."""
        return {} if self._read is None else self._read()

    def _prefill(self) -> dict[str, int]:
        scheduler = self._scheduler
        bootstrap = [request.disagg_kv_sender for request in scheduler.disagg_prefill_bootstrap_queue.queue]
        inflight = [request.disagg_kv_sender for request in scheduler.disagg_prefill_inflight_queue]
        met = sum(_status(sender) != _BOOTSTRAPPING for sender in bootstrap)
        sent = sum(_sent(sender) for sender in inflight)
        return {
            "pd_bootstrap_waiting": len(bootstrap) - met,
            "pd_bootstrap_ready": met,
            "pd_inflight_sending": len(inflight) - sent,
            "pd_inflight_ready": sent,
            "waiting": len(bootstrap),
        }

    def _decode(self) -> dict[str, int]:
        prealloc = self._scheduler.disagg_decode_prealloc_queue
        transfer = self._scheduler.disagg_decode_transfer_queue
        receivers = [request.kv_receiver for request in prealloc.queue]
        met = sum(_status(receiver) != _BOOTSTRAPPING for receiver in receivers)
        arrived = sum(_arrived(request) for request in transfer.queue)
        resumed, held = len(prealloc.retracted_queue), len(prealloc.held_rebootstrap_reqs)
        return {
            "pd_prealloc_waiting": len(receivers) - met,
            "pd_prealloc_ready": met,
            "pd_transfer_receiving": len(transfer.queue) - arrived,
            "pd_transfer_ready": arrived,
            # When a release is drained is known to its receivers and by the clock; until then it is held.
            "pd_release_held": transfer.num_pending_deferred_releases(),
            "pd_held": held,
            "waiting": len(receivers) + len(transfer.queue) + resumed + held,
        }


def _status(end: Engine) -> int:
    """What `CommonKVSender.poll` and `CommonKVReceiver.poll` find, without what they do besides."""
    if end.conclude_state is not None:
        return int(end.conclude_state)
    return int(end.kv_mgr.request_status.get(end.bootstrap_room, _FAILED))


def _sent(sender: Engine) -> bool:
    """A success counts once the worker threads have let go of it (`CommonKVSender._poll_with_status`)."""
    status = _status(sender)
    if status != _SUCCESS or sender.conclude_state is not None:
        return status in {_FAILED, _SUCCESS}
    manager = sender.kv_mgr
    outstanding = manager._staging_outstanding.get(sender.bootstrap_room)  # noqa: SLF001 - the engine has no public name for it
    return not outstanding and (outstanding is None or not manager.defer_decode_allocation)


def _arrived(request: Engine) -> bool:
    """`HiCacheRestoreGatedKVReceiver.poll`: KV that has arrived waits for the part that the host tier gives back."""
    status = _status(request.kv_receiver)
    if status == _SUCCESS:
        return getattr(request.hicache_restore_status, "name", "") != "PENDING"
    return status == _FAILED


def unfinished(requests: Iterable[Engine], sent: Iterable[Engine]) -> int:
    """Different requests that have not ended; a prefill has ended for its worker when its KV is `sent`."""
    left = {id(request) for request in requests if not request.finished()}
    return len(left.difference(id(request) for request in sent))
