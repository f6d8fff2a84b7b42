"""When one scheduler's pages are counted: at idle, after a retract, around a flush, and between passes if asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from engine_hooks.census import choose
from engine_hooks.census.words import Census, Holdings, Owner
from engine_hooks.errors import LostSightError
from engine_hooks.sglang.census_pools import holdings_of, unread

# Objects of the engine; its modules are imported only where an engine runs.
Engine = Any

IDLE, RETRACT, BEFORE_FLUSH, AFTER_FLUSH, BETWEEN = (
    "at idle",
    "after a retract",
    "before a flush",
    "after a flush",
    "between two passes",
)
# Where nothing was launched since the last census of the same moment, the next waits this many times as long as the
# last one took: an idle loop spins, and a client may ask for a refused flush again and again.
_TIMES_AS_LONG = 100
# And an idle engine is counted again after this long (s).
_IDLE_SECONDS = 5.0


class CensusProbe:
    """Takes the censuses of one scheduler. Runs on its thread; whoever calls it contains what it raises."""

    def __init__(
        self,
        take: Callable[[], Census | None],
        found: Callable[[Census, str], None],
        passes: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`take` gives None where nothing can be counted now; `found` gets each census and its moment.

        `passes`: take one where so many batches were launched since the last; 0: at none.
        """
        self._take = take
        self._found = found
        self.between = passes > 0
        """Whether `passed` wants to be called."""
        self._passes = passes
        self._clock = clock
        self._counted_at = 0
        self._forwards: dict[str, int] = {}
        self._ended = self._not_before = float("-inf")

    def idle(self, forwards: int) -> None:
        """An idle pass; `forwards` is the number of batches launched so far, here and below."""
        if self._forwards.get(IDLE) != forwards or self._clock() >= self._ended + _IDLE_SECONDS:
            self._within_budget(IDLE, forwards)

    def retracted(self, forwards: int) -> None:
        """After a pause in mode retract."""
        self._after_work(RETRACT, forwards)

    def flush_begins(self, forwards: int) -> None:
        """Before a flush is decided."""
        self._after_work(BEFORE_FLUSH, forwards)

    def flush_granted(self, forwards: int) -> None:
        """After a flush was granted."""
        self._count(AFTER_FLUSH, forwards)

    def passed(self, forwards: int) -> None:
        """A running pass begins."""
        if self.between and forwards >= self._counted_at + self._passes:
            self._within_budget(BETWEEN, forwards)

    def _after_work(self, moment: str, forwards: int) -> None:
        if self._forwards.get(moment) == forwards:
            self._within_budget(moment, forwards)
        else:
            self._count(moment, forwards)

    def _within_budget(self, moment: str, forwards: int) -> None:
        if self._clock() >= self._not_before:
            self._count(moment, forwards)

    def _count(self, moment: str, forwards: int) -> None:
        self._forwards[moment] = self._counted_at = forwards
        began = self._clock()
        census = self._take()
        self._ended = self._clock()
        self._not_before = self._ended + _TIMES_AS_LONG * (self._ended - began)
        if census is not None:
            self._found(census, moment)


def _smallest(scheduler: Engine) -> Holdings:
    """Three pages, one of each class, on the engine's device: a kernel is then compiled before requests come."""
    rows, size = scheduler.req_to_token_pool.req_to_token, scheduler.token_to_kv_pool_allocator.page_size
    slots = torch.arange(4 * size, device=rows.device)
    return Holdings(
        pages=3,
        page_size=size,
        free=[slots[1:2]],
        cached=slots[2 * size : 3 * size],
        rows=slots[None, 3 * size :].to(rows.dtype),
        owners=[Owner(0, 0, size)],
    )


def bind(scheduler: Engine, pp_size: int, passes: int, found: Callable[[Census, str], None]) -> CensusProbe:
    """The probe of a scheduler.

    Raises LostSightError where its pages have owners that are not read, AttributeError where the engine's attributes
    are not those of its version.
    """
    reason = unread(scheduler, pp_size)
    if reason:
        raise LostSightError(f"{reason}; QUIESCE_CENSUS=off leaves the census out")
    implementation = choose.implementation(scheduler.req_to_token_pool.req_to_token.device.type)

    def take() -> Census | None:
        holdings: Holdings | None = holdings_of(scheduler)
        return None if holdings is None else implementation(holdings)

    take()  # what cannot be read is said now
    implementation(_smallest(scheduler))
    return CensusProbe(take, found, passes)
