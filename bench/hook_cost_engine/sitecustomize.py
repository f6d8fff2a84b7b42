"""Reached only through PYTHONPATH, in the engines of `hook_cost.py` and `lineage.py`: puts a meter into a scheduler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def install(results: Path) -> None:
    """Install the meter once the scheduler has its hooks."""
    from engine_hooks.sglang.probes import Probes  # noqa: PLC0415 - only where it is asked for

    original = Probes.started

    def with_meter(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        from meter import LINEAGE, PROBES, Meter  # noqa: PLC0415 - the folder of this file is on the path here only

        original(self, *args, **kwargs)
        plan = LINEAGE if os.environ.get("QUIESCE_BENCH_TARGETS") == "lineage" else PROBES
        Meter(results, plan).install(self._session)

    Probes.started = with_meter  # type: ignore[method-assign]


if "QUIESCE_BENCH_RESULTS" in os.environ:
    install(Path(os.environ["QUIESCE_BENCH_RESULTS"]))
