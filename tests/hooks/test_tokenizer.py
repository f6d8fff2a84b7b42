"""The pause in the tokenizer's process, on stand-ins; the real one is in tests/engine/test_records.py."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hooks_fakes import Clock, RecordingSink
from prometheus_client import CollectorRegistry

from engine_hooks.metrics import PrometheusSink, Vocabulary
from engine_hooks.sglang.tokenizer import PROCESS, SERIES, TokenizerProbe

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSED, START = ("paused", PROCESS), ("pause_start_timestamp_seconds", PROCESS)


class Front:
    """A tokenizer manager's pause as the engine has it, with the probe around it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.probe = TokenizerProbe(self.clock)
        self.sink = RecordingSink()
        self.probe._sink = self.sink
        self.manager = SimpleNamespace(is_pause=False)
        self.until = asyncio.Event()

    async def pause(self, original: Callable[..., Any] | None = None) -> Any:
        return await self.probe.pausing(original or self._pause, self.manager, "request", option=1)

    async def resume(self) -> Any:
        return await self.probe.continuing(self._continue, self.manager, "request")

    async def _pause(self, manager: Any, request: str, *, option: int) -> tuple[str, int]:
        manager.is_pause = True
        await self.until.wait()
        return request, option

    async def _continue(self, manager: Any, request: str) -> str:
        manager.is_pause = False
        return request


def test_a_pause_is_shown_while_its_call_still_waits_for_requests() -> None:
    async def run() -> None:
        front = Front()
        call = asyncio.create_task(front.pause())
        await asyncio.sleep(0)
        assert front.sink.gauges == {PAUSED: 1, START: 1000}
        front.clock.now += 60
        front.until.set()
        assert await call == ("request", 1)
        assert await front.pause() == ("request", 1)
        # A second pause is the same one.
        assert front.sink.gauges == {PAUSED: 1, START: 1000}
        assert await front.resume() == "request"
        assert front.sink.gauges == {PAUSED: 0, START: 0}

    asyncio.run(run())


def test_what_the_engine_raises_passes_through_and_is_no_pause() -> None:
    async def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("no such mode")

    async def run() -> None:
        front = Front()
        with pytest.raises(AssertionError, match="no such mode"):
            await front.pause(refuse)
        assert front.sink.gauges == {PAUSED: 0, START: 0}

    asyncio.run(run())


def test_a_cancelled_call_leaves_what_the_engine_says() -> None:
    async def run() -> None:
        front = Front()
        call = asyncio.create_task(front.pause())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert front.sink.gauges[PAUSED] == 1

    asyncio.run(run())


def test_a_sink_that_fails_is_one_line_and_the_pause_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        front = Front()
        front.until.set()
        front.probe._sink = SimpleNamespace(gauge=lambda *_: 1 / 0)  # type: ignore[assignment]
        assert await front.pause() == ("request", 1)
        assert await front.resume() == "request"

    with caplog.at_level(logging.WARNING, "quiesce"):
        asyncio.run(run())
    assert len(caplog.records) == 1
    assert "the tokenizer's pause is not shown: ZeroDivisionError" in caplog.text


def test_it_exports_the_pause_and_nothing_that_belongs_to_a_rank() -> None:
    registry = CollectorRegistry()
    PrometheusSink(Vocabulary(process=PROCESS), ("", "", ""), registry, SERIES)
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert {sample.name for sample in samples} == {f"quiesce_{name}" for name in SERIES}
    labels = {"process": PROCESS, "tp_rank": "", "pp_rank": "", "dp_rank": ""}
    assert [(sample.labels, sample.value) for sample in samples] == [(labels, 0)] * 2
