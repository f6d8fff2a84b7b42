"""The pause as the tokenizer's process has it: in mode abort it is the only one, since the scheduler is told nothing.

SGLang loads plugins in that process before it has imported the tokenizer manager, and an import then would come before
its arguments are read. So the hooks follow later: after the function that the launcher calls where metrics are on.
"""

from __future__ import annotations

import inspect
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from engine_hooks.metrics import PrometheusSink, Vocabulary

if TYPE_CHECKING:
    from engine_hooks.monitor_board import Sink

logger = logging.getLogger("quiesce")

# Objects of the engine; its modules are not imported here.
Engine = Any

LAUNCHED = "sglang.srt.utils.common.set_prometheus_multiproc_dir"
_MODULE = "sglang.srt.managers.tokenizer_manager"
_MANAGER = f"{_MODULE}.TokenizerManager"
PROCESS = "tokenizer"
SERIES = ("paused", "pause_start_timestamp_seconds")


class TokenizerProbe:
    """The hooks of one tokenizer's process. What fails in them ends them, and is one log line."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sink: Sink | None = None
        self._shown = False

    def launched(self, _result: object, *_args: object, **_kwargs: object) -> None:
        """AFTER `set_prometheus_multiproc_dir`, which the launcher calls before it builds the tokenizer manager."""
        try:
            self._hook()
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self._end(error)

    def built(self, _result: object, _manager: Engine, *_args: object, **_kwargs: object) -> None:
        """AFTER `TokenizerManager.__init__`."""
        try:
            self._sink = PrometheusSink(Vocabulary(process=PROCESS), ("", "", ""), series=SERIES)
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self._end(error)

    async def pausing(self, original: Callable[..., Awaitable[Any]], manager: Engine, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the engine's own
        """AROUND `TokenizerManager.pause_generation`.

        Shown at once: in mode abort the call lasts until every request has left.
        """
        self._show(paused=True)
        try:
            return await original(manager, *args, **kwargs)
        finally:
            self._show_as(manager)

    async def continuing(
        self,
        original: Callable[..., Awaitable[Any]],
        manager: Engine,
        *args: Any,  # noqa: ANN401 - the engine's own
        **kwargs: Any,  # noqa: ANN401 - the engine's own
    ) -> Any:  # noqa: ANN401 - the engine's own
        """AROUND `TokenizerManager.continue_generation`."""
        try:
            return await original(manager, *args, **kwargs)
        finally:
            self._show_as(manager)

    def _hook(self) -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - imported only where an engine runs

        module = sys.modules.get(_MODULE)
        if module is None or f"{_MANAGER}.__init__" in HookRegistry._patched:  # noqa: SLF001 - the engine has no public name for it
            return
        around = {"pause_generation": self.pausing, "continue_generation": self.continuing}
        for name in around:
            if not inspect.iscoroutinefunction(getattr(module.TokenizerManager, name)):
                raise TypeError(f"{name} is no coroutine function")
        HookRegistry.register(f"{_MANAGER}.__init__", self.built, HookType.AFTER)
        for name, hook in around.items():
            HookRegistry.register(f"{_MANAGER}.{name}", hook, HookType.AROUND)
        HookRegistry.apply_hooks()

    def _show_as(self, manager: Engine) -> None:
        self._show(paused=getattr(manager, "is_pause", False) is True)

    def _show(self, *, paused: bool) -> None:
        if self._sink is None or paused == self._shown:
            return
        self._shown = paused
        try:
            self._sink.gauge("paused", (PROCESS,), int(paused))
            self._sink.gauge("pause_start_timestamp_seconds", (PROCESS,), self._clock() if paused else 0)
        except Exception as error:  # noqa: BLE001 - a probe must never raise into the engine
            self._end(error)

    def _end(self, error: Exception) -> None:
        self._sink = None
        logger.warning("quiesce: the tokenizer's pause is not shown: %s: %s", type(error).__name__, error)
