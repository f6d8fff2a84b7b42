"""The real engine under the testbed: it runs, the testbed says so, and an engine without it is refused."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import psutil
import pytest
from harness import ASKED_TOKENS, PROMPT, Engine, Models, on, renamed

from engine_hooks.sglang.testbed import server
from engine_hooks.sglang.testbed.server import LaunchError, Server, ServerOptions

if TYPE_CHECKING:
    from pathlib import Path

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine


def test_an_engine_inside_a_process_answers(fresh_answer: list[int]) -> None:
    """That it reports the testbed, and copies through it, it has asserted itself."""
    assert len(fresh_answer) == ASKED_TOKENS


@on(loop="normal", storage="none", remedies="")
def test_a_server_copies_through_the_testbed(engine: Engine) -> None:
    assert engine.server.control.installed_ranks() == 1
    before = engine.rank.d2h.done
    engine.ask(PROMPT)
    engine.rank.d2h.wait(lambda switch: switch.done > before)


@on(loop="normal", storage="none", remedies="")
def test_a_server_listens_on_the_loopback_alone(engine: Engine) -> None:
    connections = [c for process in engine.server.processes() for c in process.net_connections()]
    ours = {c.laddr.ip for c in connections if c.status == "LISTEN" and c.laddr.port == engine.server.port}
    assert ours == {"127.0.0.1"}


@on(loop="normal", storage="file", remedies="")
def test_a_quiet_failure_of_the_storage_is_survived(engine: Engine) -> None:
    write = engine.rank.storage_write
    failed = write.failed
    write.fail_next(1)
    engine.ask(PROMPT)
    write.wait(lambda switch: switch.failed == failed + 1)
    engine.settle()
    engine.ask(PROMPT)


def test_a_testbed_that_sglang_could_not_apply_is_refused(models: Models, warm: Warm, tmp_path: Path) -> None:
    changed = renamed("submit_device_to_host", "copy_out")
    options = ServerOptions(models.old, tmp_path, environment=changed, warm=warm)
    with (
        pytest.raises(LaunchError, match=r"did not apply .*L2TransferEngine\.submit_device_to_host"),
        Server(options),
    ):
        pass
    assert not processes_of(tmp_path)


def test_an_engine_without_the_testbed_is_refused(models: Models, warm: Warm, tmp_path: Path) -> None:
    options = ServerOptions(
        models.old,
        tmp_path,
        arguments={"enable_hierarchical_cache": False},
        environment={"SGLANG_PLUGINS": "quiesce"},
        warm=warm,
    )
    with pytest.raises(LaunchError, match=r"in place on 0 of 1 ranks.*quiesce_testbed"), Server(options):
        pass
    assert not processes_of(tmp_path)


def test_a_port_that_somebody_took_is_given_up(
    models: Models, warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server.free_port()))
        taken.listen()
        ports = [taken.getsockname()[1], server.free_port()]
        monkeypatch.setattr(server, "free_port", iter(ports).__next__)
        with Server(ServerOptions(models.old, tmp_path, warm=warm)) as engine:
            assert engine.port == ports[1]
            assert engine.control.installed_ranks() == 1


def processes_of(folder: Path) -> list[psutil.Process]:
    """Whatever has a file below that folder open: each process of an engine has its log."""
    return [process for process in psutil.process_iter() if any(str(folder) in path for path in files_of(process))]


def files_of(process: psutil.Process) -> list[str]:
    try:
        return [file.path for file in process.open_files()]
    except psutil.Error:
        return []
