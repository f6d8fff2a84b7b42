"""Engines that start from a process with SGLang imported are, but for that, like those that start from nothing."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
from harness import PROMPT, WAIT_SECONDS, Engine, Models, wait_until

from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.server import Server, ServerOptions
from engine_hooks.sglang.testbed.warm import Forked, Warm

if TYPE_CHECKING:
    from pathlib import Path


def environment(models: Models, folder: Path, **more: str) -> dict[str, str]:
    return dict(os.environ) | launch.environment(folder) | launch.other_models(models.old) | more


def test_which_engines_fit(models: Models, warm: Warm, tmp_path: Path) -> None:
    """What is read while SGLang is imported must be the same; what is read later may differ."""
    assert warm.fits(environment(models, tmp_path, QUIESCE="enforce", PROMETHEUS_MULTIPROC_DIR="a", PYTHONPATH="b"))
    assert not warm.fits(environment(models, tmp_path, SGLANG_USE_CPU_ENGINE="0"))
    assert not warm.fits(environment(models, tmp_path, SGLANG_DISABLED_MODEL_ARCHS=""))
    assert not warm.fits({})


def test_a_warm_process_that_ends_is_said(models: Models, tmp_path: Path) -> None:
    """Its log has the reason."""
    with Warm(models.old, tmp_path) as broken:
        broken._environment = {"PATH": os.environ["PATH"]}  # no stand-ins: sgl_kernel is not to be found
        (tmp_path / "engine").mkdir()
        (tmp_path / "server.log").touch()
        with pytest.raises(OSError, match=r"the warm process ended: (?s:.*)Error"):
            broken.start([], broken._environment, tmp_path / "server.log", 1)


@pytest.mark.engine
def test_its_processes_are_its_own(models: Models, warm: Warm, tmp_path: Path) -> None:
    """Each has the server as its parent and its session; a dead scheduler ends them; none outlives it."""
    with Server(ServerOptions(models.old, tmp_path, warm=warm)) as server:
        assert isinstance(server._process, Forked)
        Engine(server, models.old).ask(PROMPT)
        *children, root = server.processes()
        titles = {child.pid: " ".join(child.cmdline()) for child in children}
        (scheduler,) = (pid for pid, title in titles.items() if "scheduler" in title)
        assert sum("detokenizer" in title for title in titles.values()) == 1
        assert {child.ppid() for child in children} == {root.pid}
        assert os.getsid(scheduler) == root.pid
        psutil.Process(scheduler).kill()
        wait_until(lambda: not server.alive, "the server ends after its scheduler")
    assert not any(process.is_running() and process.status() != "zombie" for process in [*children, root])


@pytest.mark.engine
def test_a_server_that_nobody_ended_ends_with_the_warm_process(models: Models, tmp_path: Path) -> None:
    """As after a test session that was killed."""
    folder = tmp_path / "engine"
    folder.mkdir()
    with Warm(models.old, tmp_path) as warm:
        server = Server(ServerOptions(models.old, folder, warm=warm)).__enter__()
        family = server.processes()
        assert server.alive
    gone, alive = psutil.wait_procs(family, timeout=WAIT_SECONDS)
    assert (len(gone), alive) == (len(family), [])


@pytest.mark.engine
def test_an_engine_that_does_not_fit_starts_from_nothing(models: Models, warm: Warm, tmp_path: Path) -> None:
    options = ServerOptions(models.old, tmp_path, environment={"SGLANG_LOG_MS": "1"}, warm=warm)
    server = Server(options)
    process = server._start(server._environment())
    try:
        assert isinstance(process, subprocess.Popen)
    finally:
        process.kill()
        process.wait(20)
