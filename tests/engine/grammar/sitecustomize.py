"""Reached only through PYTHONPATH: an engine with a grammar backend whose compiler waits for the test.

The model of the testbed has no tokenizer, so no real backend compiles for it. What waits for the compiler is the
engine's own: its manager, queue and executor. A grammar begins with `compiling`, ends once there is `compiled`, and
then is none: the request is answered with an error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.01


def backend(folder: Path) -> Any:
    from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend  # noqa: PLC0415 - only where it is asked for

    class Waiting(BaseGrammarBackend):  # type: ignore[misc] # SGLang has no types
        def dispatch_regex(self, key_string: str) -> Any:
            (folder / "compiling").touch()
            while not (folder / "compiled").exists():
                time.sleep(POLL_SECONDS)
            return super().dispatch_regex(key_string)

    return Waiting()


def install(folder: Path) -> None:
    from engine_hooks.sglang import plugin  # noqa: PLC0415 - only where it is asked for

    register = plugin.register_hooks

    def built(_result: Any, manager: Any, *_args: Any) -> None:
        manager.grammar_backend = backend(folder)

    def register_hooks(environ: Any) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - as above

        if "sglang.srt.managers.scheduler" in sys.modules:
            target = "sglang.srt.constrained.grammar_manager.GrammarManager.__init__"
            HookRegistry.register(target, built, HookType.AFTER)
        register(environ)

    plugin.register_hooks = register_hooks


if "QUIESCE_TEST_GRAMMAR" in os.environ:
    install(Path(os.environ["QUIESCE_TEST_GRAMMAR"]))
