"""Counts SGLang's in-flight HiCache work by stage, as the spec's ledgers.

For each ledger the stages add up to the length of the engine's own dict, at any moment: what a background thread moves
between the reads changes the split, never the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from engine_hooks.observation import Observation

# Objects of the engine; its modules are not imported here.
Engine = Any

_ATTEMPTS = 3


class FirstSeen:
    """When each entry of one ledger was first seen. As large as the ledger, and empty when it is."""

    def __init__(self) -> None:
        self._times: dict[Hashable, float] = {}
        self._last: Hashable = None
        self._oldest = 0.0

    def oldest(self, keys: Mapping[Any, Any], now: float) -> float | None:
        """The wall-clock time (s) at which the oldest of `keys` was first seen; None where there is none.

        `keys` is in the order of insertion, so unless its length, its last or its oldest key changed, it is the same.
        """
        if not keys:
            if self._times:
                self._times = {}
            return None
        times = self._times
        last = next(reversed(keys))
        if len(times) != len(keys) or last != self._last or next(iter(times)) not in keys:
            self._times = times = {key: times.get(key, now) for key in keys}
            self._last = last
            self._oldest = min(times.values())
        return self._oldest


class FirstReady:
    """When what is at the head of a reaper's queue was first seen there. Holds that one, and nothing else."""

    def __init__(self) -> None:
        self._head: Engine = None
        self._since = 0.0

    def since(self, head: Engine, now: float) -> float | None:
        """The wall-clock time (s) since when `head` is the same; None where it is None."""
        if head is not self._head:
            self._head, self._since = head, now
        return None if head is None else self._since


def transfer_stages(
    entries: Mapping[int, Any], queue: Iterable[Engine], acks: Iterable[Engine]
) -> tuple[int, int, int]:
    """Entries (queued, submitted, ready) of a device copy ledger.

    Queued operations wait in `queue` for a submit; `acks` are in order of submission, and a reap takes the prefix whose
    device event has completed (`UnifiedRadixCache._count_ready_acks`).
    """
    total = len(entries)
    if not total:
        return 0, 0, 0
    queued = sum(node in entries for operation in queue for node in operation.node_ids)
    ready = 0
    for ack in acks:
        if not ack.finish_event.query():
            break
        ready += sum(node in entries for node in ack.node_ids)
    queued = min(queued, total)
    ready = min(ready, total - queued)
    return queued, total - queued - ready, ready


def _items(queue: Engine) -> Sequence[Engine]:
    """A copy of what is in a `queue.Queue` now, without its lock: the scheduler never waits for an I/O thread."""
    for _ in range(_ATTEMPTS):
        try:
            return list(queue.queue)
        except RuntimeError:  # an I/O thread appended while we copied
            continue
    return list(queue.queue)


def _head(queue: Engine) -> Engine:
    """The first entry of a `queue.Queue`, which only the scheduler's thread takes out; None where there is none."""
    return queue.queue[0] if queue.queue else None


def prefetch_stages(entries: Mapping[Any, Engine], hits: Engine, acks: Engine) -> tuple[int, int, int, int]:
    """Entries (query, hit, loading, done) of `ongoing_prefetch`.

    `hits` holds operations whose query was answered, `acks` progress messages of which the last of an operation has
    `completed_req`; both may hold operations that are no longer an entry's current one.
    """
    if not entries:
        return 0, 0, 0, 0
    finished = {id(ack.operation) for ack in _items(acks) if ack.completed_req}
    answered = {id(operation) for operation in _items(hits)}
    query = hit = loading = done = 0
    for entry in entries.values():
        operation = entry.operation
        if id(operation) in finished:
            done += 1
        elif entry.host_indices is not None:
            loading += 1
        elif id(operation) in answered:
            hit += 1
        else:
            query += 1
    return query, hit, loading, done


class LedgerReader:
    """Reads the ledgers of one tree cache into observations."""

    def __init__(self) -> None:
        self._empty = False
        self._ages = {name: FirstSeen() for name in ("write_through", "load_back", "backup", "prefetch")}
        self._heads = {name: FirstReady() for name in ("write_through", "load_back", "backup", "hit", "done")}

    def read(self, tree: Engine, seen: Observation, now: float) -> None:
        """Set the ledger variables and `oldest` of `seen` from a `UnifiedRadixCache`.

        The dicts are looked up anew each time, since `_reset_full` re-binds them. Raises AttributeError where the
        engine's attributes are not those of the profile's version.
        """
        if not (tree.ongoing_write_through or tree.ongoing_load_back or tree.ongoing_prefetch or tree.ongoing_backup):
            # Almost every pass. An observation without ages already says that its ledgers are empty.
            if self._empty and not seen.oldest:
                return
            self._empty = True
        else:
            self._empty = False
        controller = tree.cache_controller
        seen.write_through_queued, seen.write_through_submitted, seen.write_through_ready = transfer_stages(
            tree.ongoing_write_through, controller.write_queue, controller.ack_write_queue
        )
        seen.load_back_queued, seen.load_back_submitted, seen.load_back_ready = transfer_stages(
            tree.ongoing_load_back, controller.load_queue, controller.ack_load_queue
        )
        if tree.enable_storage:
            total = len(tree.ongoing_backup)
            seen.backup_ready = min(len(controller.ack_backup_queue.queue), total) if total else 0
            seen.backup_queued = total - seen.backup_ready
            seen.prefetch_query, seen.prefetch_hit, seen.prefetch_loading, seen.prefetch_done = prefetch_stages(
                tree.ongoing_prefetch, controller.prefetch_hit_queue, controller.ack_prefetch_queue
            )
        else:
            seen.backup_queued = seen.backup_ready = 0
            seen.prefetch_query = seen.prefetch_hit = seen.prefetch_loading = seen.prefetch_done = 0
        self._read_ages(tree, seen, now)
        self._read_ready(tree, seen, now)

    def _read_ages(self, tree: Engine, seen: Observation, now: float) -> None:
        seen.oldest.clear()
        for name, ages in self._ages.items():
            oldest = ages.oldest(getattr(tree, f"ongoing_{name}"), now)
            if oldest is not None:
                seen.oldest[name] = oldest

    def _read_ready(self, tree: Engine, seen: Observation, now: float) -> None:
        """What each reaper takes next, where it is ready: all take from the head (`_count_ready_acks`, queues)."""
        controller, storage = tree.cache_controller, tree.enable_storage
        heads = {
            "write_through": controller.ack_write_queue[0] if seen.write_through_ready else None,
            "load_back": controller.ack_load_queue[0] if seen.load_back_ready else None,
            "backup": _head(controller.ack_backup_queue) if storage else None,
            "hit": _head(controller.prefetch_hit_queue) if storage else None,
            "done": _head(controller.ack_prefetch_queue) if storage else None,
        }
        since = {name: self._heads[name].since(head, now) for name, head in heads.items()}
        lookups = [at for name in ("hit", "done") if (at := since.pop(name)) is not None]
        seen.ready_since.clear()
        seen.ready_since.update({name: at for name, at in since.items() if at is not None})
        if lookups:
            seen.ready_since["prefetch"] = min(lookups)
