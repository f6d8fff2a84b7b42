"""Remedies: the spec's named differences between two profiles, as hooks in the live scheduler.

A remedy may add a collective to each paused pass, so it must be active on all ranks or on none.
"""

from __future__ import annotations

import inspect
import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger("quiesce")

# Objects of the engine and of torch; their modules are not imported here.
Engine = Any

_AGREEMENT_TIMEOUT = timedelta(seconds=60)


class Remedy(Protocol):
    """What a remedy does at its place in the pass."""

    def before_record(self) -> None:
        """Runs once in each paused pass, before the idle/active record is taken."""


class ReapWhilePaused:
    """Each paused pass first reaps HiCache events, without starting storage lookups.

    An exception of the engine's own reap is not caught: it may come from the middle of a collective, and a rank that
    went on alone would hang the others. It ends the scheduler, as the same exception does in a running pass.
    """

    def __init__(self, scheduler: Engine) -> None:
        """Raises AttributeError or TypeError where the engine's function is not the one that the spec models."""
        reap = scheduler._process_hicache_events  # noqa: SLF001 - the engine has no public name for it
        inspect.signature(reap).bind(should_retry_storage_prefetch=False)
        self._reap = reap
        # A decode worker without decode HiCache never reaps (`process_decode_queue`), paused or not.
        self._reaps = scheduler.disaggregation_mode.value != "decode" or scheduler.enable_decode_hicache

    def before_record(self) -> None:
        """Models the spec's `reap` in the paused step (`Scheduler._process_hicache_events`)."""
        if self._reaps:
            self._reap(should_retry_storage_prefetch=False)


REMEDIES: Mapping[str, Callable[[Engine], Remedy]] = {"reap-while-paused": ReapWhilePaused}


def bind_remedies(names: Sequence[str], scheduler: Engine) -> dict[str, Remedy]:
    """The remedies of `names` that can bind, by name; the others are logged and left out."""
    bound = {}
    for name in names:
        try:
            bound[name] = REMEDIES[name](scheduler)
        except (KeyError, AttributeError, TypeError) as error:
            logger.error("quiesce: remedy %s cannot bind and stays off: %s: %s", name, type(error).__name__, error)  # noqa: TRY400 - one line says it all
    return bound


def all_ranks_agree(store: Engine, rank: int, world: int, card: Mapping[str, Any]) -> bool:
    """Whether all ranks of the world have this card (version, spec digest, remedies); decided once, for all alike.

    Uses the key-value store with which the world was formed, and no collective: a rank without Quiesce would never
    enter one, and the engine would hang at its start. The first rank that knows writes the decision, with an atomic
    compare-and-set, and every rank follows it; a rank that does not report in time makes it `off`.
    """
    text = json.dumps(card, sort_keys=True)
    store.set(f"quiesce/card/{rank}", text)
    if not card["remedies"]:
        return True
    keys = [f"quiesce/card/{other}" for other in range(world)]
    try:
        store.wait(keys, _AGREEMENT_TIMEOUT)
        proposal = "on" if all(store.get(key).decode() == text for key in keys) else "off"
    except RuntimeError as error:  # torch's DistStoreError, on time-out
        logger.warning("quiesce: not every rank reported its remedies: %s", error)
        proposal = "off"
    return bool(store.compare_set("quiesce/decision", "", proposal).decode() == "on")
