"""Which remedies a scheduler runs with: those asked for that find their place, and that all ranks have alike.

A remedy is the spec's named difference between two profiles, as a hook in the live scheduler (`repairs/`). It may add a
collective to a pass, so it must be active on all ranks or on none.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engine_hooks.sglang.repairs.base import Remedy
from engine_hooks.sglang.repairs.disaggregation import PDDrainsWhilePaused
from engine_hooks.sglang.repairs.flushes import DeferredFlushIgnoresWaiting, FlushWaits
from engine_hooks.sglang.repairs.passes import GrammarWhilePaused, ReapWhilePaused
from engine_hooks.sglang.repairs.pipelines import PPHonoursPause
from engine_hooks.sglang.repairs.requests import PauseStopsClocks, RetractKeepsAdmitted
from engine_hooks.sglang.repairs.updates import EpochInStorageKey, StampVersionOnSuccess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger("quiesce")

# Objects of the engine and of torch; their modules are not imported here.
Engine = Any

FLUSH_WAIT_SECONDS = 15.0
"""How long an update waits for its flush at most: below the 20 s after which SGLang's health check gives up."""
_AGREEMENT_TIMEOUT = timedelta(seconds=60)

REMEDIES: Mapping[str, Callable[[], Remedy]] = {
    "reap-while-paused": ReapWhilePaused,
    "deferred-flush-ignores-waiting": DeferredFlushIgnoresWaiting,
    "flush-waits": lambda: FlushWaits(FLUSH_WAIT_SECONDS),
    "epoch-in-storage-key": EpochInStorageKey,
    "stamp-version-on-success": StampVersionOnSuccess,
    "pause-stops-clocks": PauseStopsClocks,
    "grammar-while-paused": GrammarWhilePaused,
    "retract-keeps-admitted": RetractKeepsAdmitted,
    "pp-honours-pause": PPHonoursPause,
    "pd-drains-while-paused": PDDrainsWhilePaused,
}
"""In the order of a paused pass: what reaps comes first."""


def make_remedies(names: Sequence[str]) -> dict[str, Remedy]:
    """Those of `names` and what they need, in the order of REMEDIES. One without a hook is logged and left out."""
    for name in names:
        if name not in REMEDIES:
            logger.error("quiesce: remedy %s stays off: it has no hook", name)
    asked = {name: REMEDIES[name]() for name in REMEDIES if name in names}
    needed = {need for remedy in asked.values() for need in remedy.needs}
    return {name: asked.get(name) or REMEDIES[name]() for name in REMEDIES if name in asked or name in needed}


def register_remedies(remedies: Mapping[str, Remedy]) -> None:
    """Have SGLang wrap the places of these. Before the probes, which then see what a remedy made of the call."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - imported only where an engine runs

    for remedy in remedies.values():
        for place in remedy.places:
            HookRegistry.register(place.path, getattr(remedy, place.method), HookType.AROUND)


def unhooked(remedies: Mapping[str, Remedy]) -> dict[str, str]:
    """Remedy to reason, for each that SGLang has not put in all its places."""
    from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: PLC0415 - imported only where an engine runs

    applied = HookRegistry._patched  # noqa: SLF001 - the engine has no public name for it
    lost = {
        name: [place.path for place in remedy.places if place.path not in applied]
        for name, remedy in remedies.items()
    }  # fmt: skip
    return {name: f"no hook on {', '.join(paths)}" for name, paths in lost.items() if paths}


def bind_remedies(remedies: Mapping[str, Remedy], scheduler: Engine, lost: Mapping[str, str]) -> dict[str, Remedy]:
    """Those that are in place and can bind; each other one is logged with its reason, and left out.

    A remedy stays out of the way of an engine whose functions are not those that it repairs. `lost` has those that are
    not in place, with the reason.
    """
    bound: dict[str, Remedy] = {}
    for name, remedy in remedies.items():
        problem = lost.get(name) or _problem(remedy, scheduler, bound)
        if problem:
            logger.error("quiesce: remedy %s cannot bind and stays off: %s", name, problem)
        else:
            bound[name] = remedy
    return bound


def _problem(remedy: Remedy, scheduler: Engine, bound: Mapping[str, Remedy]) -> str:
    missing = [need for need in remedy.needed() if need not in bound]
    if missing:
        return f"it needs {', '.join(missing)}"
    other = remedy.differing()
    if other:
        return f"not the function that it repairs, so either repaired already or another: {', '.join(other)}"
    try:
        remedy.bind(scheduler)
    except Exception as error:  # noqa: BLE001 - whatever it is, the engine must start
        return f"{type(error).__name__}: {error}"
    return ""


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
