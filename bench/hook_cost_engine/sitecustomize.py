"""Reached only through PYTHONPATH, in the engines of `hook_cost.py` and `lineage.py`: times passes, hooks on and off.

The model's forward pass is the same call in both variants and takes most of a decode pass, with a spread far above what
hooks cost; so it is timed too and taken out, and what remains of a pass is compared.

Blocks of passes alternate: with Quiesce's hooks, and with SGLang's own functions in their place, as they are under
QUIESCE=off. With QUIESCE_BENCH_TARGETS=lineage: with all hooks, and without those of the lineage. Both are timed by the
scheduler thread's CPU clock, from outside, at the ends of a block only.
"""

from __future__ import annotations

import json
import os
import pkgutil
import statistics
import time
from pathlib import Path
from typing import Any

# Passes timed in a block; the first of each is not timed, since changing the variant makes it slow in both.
_DECODING_BLOCK = 2
# In as many decode steps each request begins one page of the testbed: that is when the lineage has most to do.
_PAGE = 16
_SPINNING_BLOCK = 200
# Blocks of each variant in a round. Of these the fastest counts: what else runs on the machine only ever adds.
_BLOCKS = 40
_BLOCKS_OF_PAGES = 12

Function = tuple[type, str, Any]

_INGEST = "sglang.srt.managers.scheduler.Scheduler.ingest_requests"
_LINEAGE = os.environ.get("QUIESCE_BENCH_TARGETS") == "lineage"


class Meter:
    """Times blocks of passes, and changes the variant between them."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._rounds: list[dict[str, Any]] = []
        self._times: dict[str, dict[bool, list[float]]] = {}
        self._models: dict[str, list[float]] = {}
        self._in_model = 0.0
        self._hooked = True
        self._state = ""
        self._passes = 0
        self._forwards = 0
        self._cpu = 0.0
        self._functions = [_resolve(path) for path in _paths()]
        self._by_batch = _LINEAGE
        self._ingest: Any = None

    def install(self, scheduler: Any) -> None:  # noqa: ANN401 - the engine's own
        """Put the meter around each pass, outside the hooks, alike for both variants."""
        meter = self
        self._scheduler = scheduler
        owner, name, self._hooked_ingest = _resolve(_INGEST)
        # The lineage does not hook it.
        self._bare_ingest = self._hooked_ingest if _LINEAGE else self._hooked_ingest.__wrapped__

        def ingest_requests(scheduler: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the engine's own
            meter.tick(scheduler)
            return meter._ingest(scheduler, *args, **kwargs)

        self._functions = [f for f in self._functions if f[1] != name]
        self._apply()
        setattr(owner, name, ingest_requests)
        self._time_model(scheduler)

    def _time_model(self, scheduler: Any) -> None:  # noqa: ANN401 - the engine's own
        meter, worker = self, type(scheduler.model_worker)
        forward = worker.forward_batch_generation

        def forward_batch_generation(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the engine's own
            started = time.thread_time()
            result = forward(*args, **kwargs)
            meter._in_model += time.thread_time() - started
            return result

        worker.forward_batch_generation = forward_batch_generation

    def tick(self, scheduler: Any) -> None:  # noqa: ANN401 - the engine's own
        """One pass begins."""
        paused = scheduler._engine_paused  # noqa: SLF001 - no public name
        state = "running" if not paused else "stuck" if scheduler.tree_cache.ongoing_write_through else "paused"
        if state != self._state:
            self._state = state
            self._passes = 0
            return
        self._passes += 1
        if self._passes == 1:
            self._forwards = scheduler.forward_ct
            self._in_model = 0.0
            self._cpu = time.thread_time()
            return
        forwards = scheduler.forward_ct - self._forwards
        decoding = _PAGE if _LINEAGE else _DECODING_BLOCK
        if self._passes > (decoding if forwards else _SPINNING_BLOCK):
            self._end(time.thread_time() - self._cpu, forwards)

    def _end(self, cpu: float, forwards: int) -> None:
        timed = self._passes - 1
        state = self._state
        if state == "running":
            # A block in which only some passes launched a batch is neither.
            state = {0: "idle", timed: "decoding"}.get(forwards, "")
            if state == "decoding" and self._by_batch:
                state = f"decoding {len(self._scheduler.running_batch.reqs)}"
        times = self._times.setdefault(state, {False: [], True: []})
        times[self._hooked].append((cpu - self._in_model) / timed)
        self._models.setdefault(state, []).append(self._in_model / timed)
        if state and min(map(len, times.values())) >= (_BLOCKS_OF_PAGES if _LINEAGE else _BLOCKS):
            model = statistics.median(self._models.pop(state))
            self._rounds.append({"state": state, "model": model, "bare": min(times[False]), "hooked": min(times[True])})
            del self._times[state]
            temporary = self._results.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._rounds))
            temporary.replace(self._results)
        self._hooked = not self._hooked
        self._apply()
        self._passes = 0

    def _apply(self) -> None:
        for owner, name, hooked in self._functions:
            setattr(owner, name, hooked if self._hooked else hooked.__wrapped__)
        self._ingest = self._hooked_ingest if self._hooked else self._bare_ingest


def _paths() -> list[str]:
    """The functions whose hooks are compared, each of them wrapped last by these."""
    if _LINEAGE:
        from engine_hooks.sglang.lineage_probe import LINEAGE_TARGETS as TARGETS  # noqa: PLC0415 - only where it is asked for
    else:
        from engine_hooks.sglang.probes_targets import TARGETS  # noqa: PLC0415 - only where it is asked for
    return [target.path for target in TARGETS]


def _resolve(path: str) -> Function:
    owner, _, name = path.rpartition(".")
    resolved = pkgutil.resolve_name(owner)
    return resolved, name, resolved.__dict__[name]


def install(results: Path) -> None:
    """Install the meter once the scheduler has its hooks."""
    from engine_hooks.sglang.probes_session import Session  # noqa: PLC0415 - only where it is asked for

    original = Session.__init__

    def with_meter(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        Meter(results).install(self.scheduler)

    Session.__init__ = with_meter  # type: ignore[method-assign]


if "QUIESCE_BENCH_RESULTS" in os.environ:
    install(Path(os.environ["QUIESCE_BENCH_RESULTS"]))
