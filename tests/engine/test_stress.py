"""What must not take the engine down: probes that fail, a scheduler that dies in a pause, a folder that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import requests
from harness import REMEDY, Engine, Models, modules, prompt, wait_until

from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SHORT = prompt(64, seed=11)
ALWAYS = ("pass", "paused_pass", "pause", "resume", "flush", "deferred_flush", "update", "version")
"""The hooks whose probes one pause with an update runs; a forward is looked at only while paused or with stale KV."""


def options(models: Models, folder: Path, warm: Warm, port: int = 0, **environment: str) -> ServerOptions:
    folder.mkdir()
    return ServerOptions(
        models.old,
        folder,
        arguments={"enable_metrics": True},
        environment={"QUIESCE_REMEDIES": REMEDY, "QUIESCE_RECORD": str(folder / "records"), **environment},
        port=port,
        start_seconds=480,
        warm=warm,
    )


def a_whole_pause(engine: Engine, models: Models) -> None:
    """Everything that the protocol does, once; the request is answered as if there were no pause."""
    stream = engine.generate(SHORT, 200)
    stream.wait_tokens(2)
    engine.rank.wait_idle()
    engine.pause("retract")
    engine.flush(timeout=0.2)
    assert engine.update_from_disk(models.old).success
    engine.continue_()
    stream.result()


@pytest.mark.parametrize("how", ["raises", "hogs", "sleeps"])
def test_probes_that_misbehave(how: str, models: Models, warm: Warm, tmp_path: Path) -> None:
    planted = modules("probing", QUIESCE_TEST_PROBES=how, QUIESCE_TEST_PROBES_AT=str(tmp_path))
    with Server(options(models, tmp_path / how, warm, **planted)) as server:
        engine = Engine(server, models.old)
        a_whole_pause(engine, models)
        assert set(engine.metrics().by("quiesce_hook_applied", "hook").values()) == {1}
        (tmp_path / "now").touch()
        # A probe that is slow is borne three times.
        for _ in range(3 if how == "sleeps" else 1):
            a_whole_pause(engine, models)
        applied = engine.metrics().by("quiesce_hook_applied", "hook")
        assert {hook for hook in ALWAYS if applied[hook]} == set()
        for hook in ALWAYS:
            (line,) = (line for line in engine.log().splitlines() if f"hook {hook} is lost" in line)
            assert {"raises": "planted", "hogs": "MemoryError", "sleeps": "took"}[how] in line
            assert "no longer checked: " in line
        assert engine.metrics().value("quiesce_remedy_active", remedy=REMEDY) == 1
        a_whole_pause(engine, models)


def test_a_scheduler_that_dies_in_a_pause(models: Models, warm: Warm, tmp_path: Path) -> None:
    """The server ends with it, as SGLang does; one that follows on its port begins anew, and nothing is left over."""
    with Server(options(models, tmp_path / "first", warm)) as server:
        engine = Engine(server, models.old)
        stream = engine.generate(SHORT, 2000)
        stream.wait_tokens(2)
        engine.pause("retract")
        engine.wait_metric(1, "quiesce_paused", process="scheduler")
        # The scheduler is the process that maps the testbed's switches of its rank.
        (scheduler,) = (p for p in server.processes() if any(m.path.endswith(".ctl") for m in _maps(p)))
        scheduler.kill()
        wait_until(lambda: not server.alive, "the server has ended with its scheduler")
        port = server.port
    with Server(options(models, tmp_path / "second", warm, port)) as server:
        engine = Engine(server, models.old)
        assert engine.metrics().value("quiesce_paused", process="scheduler") == 0
        assert set(engine.metrics().by("quiesce_hook_applied", "hook").values()) == {1}
        assert not any(engine.metrics().violations.values())
        a_whole_pause(engine, models)


def _maps(process: psutil.Process) -> list[psutil._common.pmmap_grouped]:
    try:
        return process.memory_maps()
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return []


def test_folders_that_go_away(models: Models, warm: Warm, tmp_path: Path) -> None:
    """The folders of the metrics and of the records are removed while it runs: it serves on."""
    with Server(options(models, tmp_path / "engine", warm)) as server:
        engine = Engine(server, models.old)
        a_whole_pause(engine, models)
        shutil.rmtree(tmp_path / "engine" / "metrics")
        shutil.rmtree(tmp_path / "engine" / "records", ignore_errors=True)
        a_whole_pause(engine, models)
        a_whole_pause(engine, models)
        assert requests.get(server.url + "/model_info", timeout=60).ok
        assert "quiesce: cannot" not in engine.log()
