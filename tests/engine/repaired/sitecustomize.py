"""Reached only through PYTHONPATH: an engine whose deferred flush asks the gate that an immediate one asks.

SGLang is repaired as a later version might be, before it builds anything: by a hook of a plugin's kind, with the other
hooks, would not do, since those wrap the function and leave its source what it was.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def repair() -> None:
    from sglang.srt.managers.scheduler import Scheduler  # noqa: PLC0415 - only where it is asked for
    from sglang.srt.managers.scheduler_components import flush_wrapper  # noqa: PLC0415 - as above

    original = flush_wrapper.SchedulerFlushWrapper.check_pending

    def check_pending(self: Any) -> None:
        scheduler = self._flush_cache.__self__
        if isinstance(scheduler, Scheduler):
            self._is_fully_idle = lambda: scheduler.is_fully_idle(ignore_waiting=scheduler._engine_paused)
        original(self)

    flush_wrapper.SchedulerFlushWrapper.check_pending = check_pending  # type: ignore[method-assign]


def install() -> None:
    from engine_hooks.sglang import plugin  # noqa: PLC0415 - only where it is asked for

    original = plugin.register_hooks

    def register_hooks(environ: Any) -> None:
        if "sglang.srt.managers.scheduler" in sys.modules:
            repair()
        original(environ)

    plugin.register_hooks = register_hooks


if "QUIESCE_TEST_REPAIRED" in os.environ:
    install()
