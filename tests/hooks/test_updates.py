"""How long an update takes, and which versions scheduler and tokenizer have after it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hooks_fakes import PROFILE, RecordingSink, scheduler

from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.observation import Rank
from engine_hooks.sglang.probes import Probes
from engine_hooks.sglang.probes_session import Session, Sources
from engine_hooks.sglang.probes_state import EngineKind, StateReader

BEGAN = ("update_start_timestamp_seconds",)
MISMATCH = ("version_mismatch",)


class Versioned:
    """A scheduler that stamps a version as SGLang does, before it knows whether the flush succeeds."""

    def __init__(self, *, readable: bool = True) -> None:
        self.version = "default"
        self.sink = RecordingSink()
        self.monitor = Monitor(PROFILE, Board([self.sink]), MonitorOptions(), lambda: 1234.5)
        engine = scheduler()
        reader = StateReader(engine, Rank(), "normal", EngineKind())
        version = (lambda: self.version) if readable else None
        session = Session(engine, self.monitor, Sources(reader, lambda: 0, lambda: "file", (), version))
        self.probes = Probes(lambda _: session)
        self.probes.started(None, engine)

    def update(self, version: str | None, *, success: bool) -> None:
        def original(_manager: Any, request: Any) -> Any:
            assert self.sink.gauges[BEGAN] == 1234.5
            self.version = request.weight_version or self.version
            return SimpleNamespace(success=success, message="")

        self.probes.update_from_disk(original, SimpleNamespace(), SimpleNamespace(weight_version=version))

    def set_version(self, version: str) -> None:
        self.version = version
        self.probes.version_set(None, SimpleNamespace(), SimpleNamespace(new_version=version))


def test_an_update_has_a_start_while_it_is_handled_and_none_after() -> None:
    engine = Versioned()
    engine.update(None, success=True)
    assert engine.sink.gauges[BEGAN] == 0


def test_an_update_that_raises_has_ended_too() -> None:
    def original(_manager: Any, _request: Any) -> Any:
        raise RuntimeError("out of memory")

    engine = Versioned()
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.probes.update_from_disk(original, SimpleNamespace(), SimpleNamespace(weight_version="v1"))
    assert engine.sink.gauges[BEGAN] == 0


def test_a_version_stamped_by_a_failed_update_is_a_mismatch_until_the_tokenizer_has_it() -> None:
    engine = Versioned()
    engine.update("v1", success=True)
    assert engine.sink.gauges[MISMATCH] == 0
    engine.update("v2", success=False)
    assert engine.sink.gauges[MISMATCH] == 1
    engine.update("v2", success=True)
    assert engine.sink.gauges[MISMATCH] == 0
    engine.update("v3", success=False)
    engine.set_version("v3")
    assert engine.sink.gauges[MISMATCH] == 0


def test_a_failed_update_without_a_version_changes_none() -> None:
    engine = Versioned()
    engine.update(None, success=False)
    assert engine.sink.gauges[MISMATCH] == 0


def test_a_version_that_cannot_be_read_is_not_compared() -> None:
    engine = Versioned(readable=False)
    engine.update("v2", success=False)
    assert MISMATCH not in engine.sink.gauges


def test_a_version_that_goes_away_loses_its_hook_only() -> None:
    engine = Versioned()
    del engine.version
    engine.probes.version_set(None, SimpleNamespace(), SimpleNamespace(new_version="v1"))
    engine.monitor.board.tick(force=True)
    assert engine.sink.gauges["hook_applied", "version"] == 0
    assert engine.sink.gauges["hook_applied", "update"] == 1
