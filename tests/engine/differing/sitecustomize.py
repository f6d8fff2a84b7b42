"""Reached only through PYTHONPATH: the second rank of an engine is asked for other remedies than the first."""

from __future__ import annotations

import os
from typing import Any


def install(remedies: str) -> None:
    from engine_hooks.sglang import plugin  # noqa: PLC0415 - only where it is asked for

    original = plugin._Starter._remedies

    def differing(self: Any, scheduler: Any, board: Any, parallel: Any) -> Any:
        if parallel.tp_rank == 1:
            chosen = {name: one for name, one in self.chosen.items() if name in remedies.split(",")}
            object.__setattr__(self, "chosen", chosen)
        return original(self, scheduler, board, parallel)

    plugin._Starter._remedies = differing  # type: ignore[method-assign]


if "QUIESCE_TEST_RANK_1" in os.environ:
    install(os.environ["QUIESCE_TEST_RANK_1"])
