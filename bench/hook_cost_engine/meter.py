"""Times passes of the real loop in variants that take turns: SGLang's own functions, hooks around them, its own check.

The model's forward pass is the same call in all variants and takes most of a decode pass, with a spread far above what
hooks cost; so it is timed too and taken out, and what remains of a pass is compared.

A block of passes is one variant. Two blocks that follow each other are a pair: one bare, one not, each first as often
as the other, so that a drift falls out. Of a pair only the difference counts, of a round the median of its differences.
Blocks are timed by the scheduler thread's CPU clock, from outside, at their ends only.
"""

from __future__ import annotations

import json
import os
import pkgutil
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BARE, HOOKED, CHECKED, TIMED = "bare", "hooked", "checked", "timed"
_CHECK = "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY"
# Passes before a block that are not timed, since changing the variant makes the first ones slow, in all of them.
_SETTLING = 2
_SPINNING_BLOCK = 200


@dataclass(frozen=True)
class Plan:
    """What is compared, and in blocks of how many passes."""

    targets: str
    """Where the hooked functions are named: module and name."""
    decoding_block: int
    pairs: int
    """Pairs of blocks in a round."""
    rounds: int
    """Rounds of each variant while decoding, before its passes are timed in the probes."""
    decoding: tuple[tuple[str, str], ...]
    """The pairs of variants that take turns while decoding."""
    by_batch: bool = False
    """Whether a state says how many requests decode."""


_TURNS = ((BARE, HOOKED), (HOOKED, BARE))
# Eight decode passes take longer than the time in which a running pass is read in full, so each block has such a read.
PROBES = Plan(
    "engine_hooks.sglang.probes_targets:TARGETS",
    8,
    16,
    9,
    (*_TURNS, (BARE, CHECKED), (CHECKED, BARE)),
)
# In as many decode steps each request begins one page of the testbed: that is when the lineage has most to do.
LINEAGE = Plan("engine_hooks.sglang.lineage_probe:LINEAGE_TARGETS", 16, 16, 9, _TURNS, by_batch=True)


class Meter:
    """Times blocks of passes, and changes the variant between them."""

    def __init__(self, results: Path, plan: Plan) -> None:
        self._results = results
        self._plan = plan
        self._rounds: list[dict[str, Any]] = []
        self._pairs: dict[tuple[str, str], list[dict[str, float]]] = {}
        self._half: dict[str, tuple[float, float]] = {}
        self._turn = 0
        self._in_model = 0.0
        self._state = ""
        self._passes = 0
        self._forwards = 0
        self._cpu = 0.0
        self._switches: list[_Switch] = []
        self._probes = _InProbes()
        self._ingest: Callable[..., Any] = len

    def install(self, session: Any) -> None:  # noqa: ANN401 - a session of the hooks
        """Put the meter around each pass, outside the hooks, alike for all variants."""
        meter = self
        scheduler = self._scheduler = session.scheduler
        self._switches = [_Switch(target.path) for target in pkgutil.resolve_name(self._plan.targets)]
        hooked = scheduler.ingest_requests
        self._ingests = dict.fromkeys((BARE, HOOKED, CHECKED), hooked)
        if self._plan is PROBES:
            self._ingests |= dict.fromkeys((BARE, CHECKED), hooked.__wrapped__)
            self._ingests[TIMED] = self._probes.timed(session, hooked.__wrapped__)
        self._apply(BARE)

        def ingest_requests(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the engine's own
            meter.tick(scheduler)
            return meter._ingest(*args, **kwargs)

        scheduler.ingest_requests = ingest_requests
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
            self._begin()
            return
        self._passes += 1
        if self._passes <= _SETTLING:
            self._forwards = scheduler.forward_ct
            self._in_model = 0.0
            self._probes.reset()
            self._cpu = time.thread_time()
            return
        self._probes.passed()
        forwards = scheduler.forward_ct - self._forwards
        block = self._plan.decoding_block if forwards else _SPINNING_BLOCK
        if self._passes >= block + _SETTLING:
            self._end(time.thread_time() - self._cpu, forwards, block)

    def _begin(self) -> None:
        """A pair begins anew: the other half, if any, belongs to another state."""
        self._half.clear()
        self._passes = 0
        self._apply(self._variants()[0])

    def _variants(self) -> tuple[str, str]:
        turns = _TURNS
        if self._state == "running":
            done = Counter(r["variant"] for r in self._rounds if r["state"].startswith("decoding"))
            compared = done.total() - done[TIMED] >= self._plan.rounds * len(self._plan.decoding) // len(_TURNS)
            timing = compared and done[TIMED] < self._plan.rounds and not self._plan.by_batch
            turns = ((BARE, TIMED),) if timing else self._plan.decoding
        return turns[self._turn % len(turns)]

    def _end(self, cpu: float, forwards: int, block: int) -> None:
        kind = self._state
        if kind == "running":
            kind = {0: "idle", block: "decoding"}.get(forwards, "")
        if not kind:  # only some of its passes launched a batch
            self._begin()
            return
        if kind == "decoding" and self._plan.by_batch:
            kind = f"decoding {len(self._scheduler.running_batch.reqs)}"
        first, second = self._variants()
        variant = second if self._half else first
        self._half[variant] = ((cpu - self._in_model) / block, self._in_model / block)
        if variant == TIMED:
            self._probes.keep()
        if len(self._half) == 1:
            self._passes = 0
            self._apply(second)
            return
        self._pair(kind, first if second == BARE else second)
        self._turn += 1
        self._begin()

    def _pair(self, state: str, variant: str) -> None:
        (bare, model), (other, _) = self._half[BARE], self._half[variant]
        pairs = self._pairs.setdefault((state, variant), [])
        pairs.append({"model": model, "bare": bare, "added": other - bare})
        if len(pairs) < self._plan.pairs:
            return
        middle = {name: statistics.median(pair[name] for pair in pairs) for name in pairs[0]}
        times = self._probes.take() if variant == TIMED else []
        self._rounds.append({"state": state, "variant": variant, **middle, "probes": times})
        del self._pairs[state, variant]
        temporary = self._results.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._rounds))
        temporary.replace(self._results)

    def _apply(self, variant: str) -> None:
        self._ingest = self._ingests[variant]
        for switch in self._switches:
            switch.to(hooked=variant in (HOOKED, TIMED))
        # The engine asks for it in each pass.
        os.environ[_CHECK] = str(int(variant == CHECKED))


class _Switch:
    """One hooked function that can be bare.

    What takes its place on the class stays there: a class that changes makes its methods slow for many passes.
    """

    def __init__(self, path: str) -> None:
        owner, _, name = path.rpartition(".")
        resolved = pkgutil.resolve_name(owner)
        self._hooked = resolved.__dict__[name]
        cell = self._cell = [self._hooked]

        def switched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the engine's own
            return cell[0](*args, **kwargs)

        setattr(resolved, name, switched)

    def to(self, *, hooked: bool) -> None:
        """Choose which of the two runs."""
        self._cell[0] = self._hooked if hooked else self._hooked.__wrapped__


class _InProbes:
    """The time (s) inside the hook of each pass: from the end of the engine's own ingest to the end of the hook.

    In a pass that decodes no other hook runs.
    """

    def __init__(self) -> None:
        self._sum = self._inner_ended = 0.0
        self.passes: list[float] = []
        self._kept: list[float] = []

    def timed(self, session: Any, original: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ANN401 - a session of the hooks
        """The hook over an ingest, timed."""
        from engine_hooks.sglang.probes_on_demand import around_ingest  # noqa: PLC0415 - imported by now, and only in an engine

        def inner(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the engine's own
            result = original(*args, **kwargs)
            self._inner_ended = time.thread_time()
            return result

        hooked = around_ingest(session, inner)

        def outer(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            result = hooked(*args, **kwargs)
            self._sum += time.thread_time() - self._inner_ended
            return result

        return outer

    def reset(self) -> None:
        """A block begins."""
        self._sum = 0.0
        self.passes.clear()

    def passed(self) -> None:
        """A pass has ended."""
        self.passes.append(self._sum)
        self._sum = 0.0

    def keep(self) -> None:
        """The passes of this block count."""
        self._kept += self.passes

    def take(self) -> list[float]:
        """What was kept, and forget it."""
        kept, self._kept = self._kept, []
        return kept
