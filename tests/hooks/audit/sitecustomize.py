"""Reached only through PYTHONPATH, in engines of `test_probes_engine`: checks each observation against the engine.

In the scheduler's process, right after the probes have read the state, it asks the engine itself: the length of each
in-flight dict, and `is_fully_idle`. What it found goes to the file QUIESCE_TEST_AUDIT, once in 500 observations and on
each difference.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

LEDGERS = ("write_through", "load_back", "backup", "prefetch")
_WRITE_SECONDS = 0.5
_KEPT_DIFFERENCES = 20


class Audit:
    """What was compared, and what differed."""

    def __init__(self, folder: Path) -> None:
        from engine_hooks.compiled import compiled_profile  # noqa: PLC0415 - only where the audit is asked for

        self._file = folder / f"{os.getpid()}.json"
        self._profile: Any = compiled_profile("sglang", "0.5.23")
        self._seen: Counter[str] = Counter()
        self._differences: list[str] = []
        self._written = 0.0

    def compare(self, scheduler: Any, seen: Any) -> None:
        self._seen["observations"] += 1
        self._compare_ledgers(scheduler.tree_cache, seen)
        # The engine's own function, without the hook around it.
        idle = type(scheduler).is_fully_idle.__wrapped__
        self._compare_gate(seen, "deferred_flush", idle(scheduler))
        self._compare_gate(seen, "flush", idle(scheduler, ignore_waiting=scheduler._engine_paused))
        if time.monotonic() - self._written >= _WRITE_SECONDS:
            self._written = time.monotonic()
            self._write()

    def _compare_ledgers(self, tree: Any, seen: Any) -> None:
        for name in LEDGERS:
            total = len(getattr(tree, f"ongoing_{name}"))
            counts = {
                a: getattr(seen, a) for attributes in self._profile.ledgers[name].stages.values() for a in attributes
            }
            if sum(counts.values()) != total:
                self._differ(f"{name}: {counts} do not add up to {total}")
            self._seen.update({attribute: 1 for attribute, count in counts.items() if count})

    def _compare_gate(self, seen: Any, gate: str, engine: bool) -> None:  # noqa: FBT001
        ours = self._profile.gates[gate](seen) and not seen.unmodelled
        self._seen[f"{gate} {'open' if engine else 'closed'}"] += 1
        if ours != engine:
            self._differ(f"gate {gate}: the engine says {engine}, the profile {ours}, of {seen}")

    def _differ(self, text: str) -> None:
        if len(self._differences) < _KEPT_DIFFERENCES:
            self._differences.append(text)
        self._write()

    def _write(self) -> None:
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(json.dumps({"seen": self._seen, "differences": self._differences}))
        temporary.replace(self._file)


def install(folder: Path) -> None:
    from engine_hooks.sglang.probes_state import StateReader  # noqa: PLC0415 - only where the audit is asked for

    original = StateReader.read
    audits: list[Audit] = []

    def read(self: Any, seen: Any, sequence: int) -> Any:
        result = original(self, seen, sequence)
        if not audits:
            audits.append(Audit(folder))
        audits[0].compare(self._scheduler, seen)
        return result

    StateReader.read = read  # type: ignore[method-assign]


if "QUIESCE_TEST_AUDIT" in os.environ:
    install(Path(os.environ["QUIESCE_TEST_AUDIT"]))
