"""Reached only through PYTHONPATH, in the engine of `test_census`: spoils the live pools when the test asks for it.

The test writes the name of a plant into `plant` below the folder QUIESCE_TEST_PLANT; the scheduler's thread carries it
out between two passes, when the probes next read its state, and answers in `planted`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Planter:
    """Keeps what it takes away, so that it can be put back."""

    def __init__(self, folder: Path) -> None:
        self._asked, self._done = folder / "plant", folder / "planted"
        self._undo: Callable[[], None] = lambda: None

    def look(self, scheduler: Any) -> None:
        if not self._asked.exists():
            return
        name = self._asked.read_text()
        self._asked.unlink()
        answer = getattr(self, name)(scheduler)
        temporary = self._done.with_suffix(".tmp")
        temporary.write_text(json.dumps(answer))
        temporary.replace(self._done)

    def leak(self, scheduler: Any) -> list[int]:
        """A free page leaves the free list for nowhere."""
        free = self._set_free(scheduler, lambda pages: pages[1:])
        return [int(free[0])]

    def free_twice(self, scheduler: Any) -> list[int]:
        """A free page is freed again."""
        import torch  # noqa: PLC0415 - not before SGLang has set its environment

        free = self._set_free(scheduler, lambda pages: torch.cat((pages, pages[2:3])))
        return [int(free[2])]

    def own_twice(self, scheduler: Any) -> list[int]:
        """The last page of one running request is also in the row of another, in the place of its own."""
        pool, size = scheduler.req_to_token_pool.req_to_token, scheduler.page_size
        one, other = (request.kv for request in scheduler.running_batch.reqs[:2])
        last, place = (size * ((kv.kv_allocated_len - 1) // size) for kv in (one, other))
        assert place >= other.cache_protected_len
        assert last >= one.cache_protected_len
        kept = pool[other.req_pool_idx, place : place + size].clone()
        pool[other.req_pool_idx, place : place + size] = pool[one.req_pool_idx, last : last + size]
        self._undo = lambda: pool[other.req_pool_idx, place : place + size].copy_(kept)
        return [int(pool[one.req_pool_idx, last]) // size, int(kept[0]) // size]

    def undo(self, _scheduler: Any) -> list[int]:
        self._undo()
        return []

    def _set_free(self, scheduler: Any, spoil: Callable[[Any], Any]) -> Any:
        allocator = scheduler.token_to_kv_pool_allocator
        kept = allocator.free_pages
        allocator.free_pages = spoil(kept)
        self._undo = lambda: setattr(allocator, "free_pages", kept)
        return kept


def install(folder: Path) -> None:
    from engine_hooks.sglang.probes_state import StateReader  # noqa: PLC0415 - only where planting is asked for

    original = StateReader.read
    planter = Planter(folder)

    def read(self: Any, seen: Any, sequence: int) -> Any:
        planter.look(self._scheduler)
        return original(self, seen, sequence)

    StateReader.read = read  # type: ignore[method-assign]


if "QUIESCE_TEST_PLANT" in os.environ:
    install(Path(os.environ["QUIESCE_TEST_PLANT"]))
