"""Reached only through PYTHONPATH: the second rank of an engine is asked for other remedies than the first."""

from __future__ import annotations

import os
import sys
from pathlib import Path
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


def install_refusal(asked: Path) -> None:
    """The second rank refuses every flush while a file is there."""
    from engine_hooks.sglang import plugin  # noqa: PLC0415 - as above

    register = plugin.register_hooks

    def flush(original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        # Not before the engine itself has it: every process of the engine runs this file, also those with which
        # PyTorch tries out the processor, and in each of them the import of SGLang would take its time.
        from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415

        refuses = get_parallel().tp_rank == 1 and asked.exists()
        return False if refuses else original(scheduler, *args, **kwargs)

    def register_hooks(environ: Any) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - as above

        if "sglang.srt.managers.scheduler" in sys.modules:
            HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.flush_cache", flush, HookType.AROUND)
        register(environ)

    plugin.register_hooks = register_hooks


if "QUIESCE_TEST_RANK_1_REFUSES" in os.environ:
    install_refusal(Path(os.environ["QUIESCE_TEST_RANK_1_REFUSES"]))
if "QUIESCE_TEST_RANK_1" in os.environ:
    install(os.environ["QUIESCE_TEST_RANK_1"])
