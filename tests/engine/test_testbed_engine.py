"""The real engine under the testbed: it runs, the testbed says so, and an engine without it is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from harness import ASKED_TOKENS, PROMPT, Fresh, Models, rewritten

from engine_hooks.sglang.testbed.server import LaunchError, Server, ServerOptions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

IN_PROCESS = """
import sys
from pathlib import Path
from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.control import Control

if __name__ == "__main__":
    model, folder = map(Path, sys.argv[1:])
    control = Control(folder / "control")
    launch.prepare_this_process(control.directory)
    import sglang
    engine = sglang.Engine(**launch.engine_args(model))
    assert control.rank().installed
    sampling = {"max_new_tokens": 16, "temperature": 0, "ignore_eos": True}
    prompt = [int(token) for token in sys.stdin.read().split()]
    print("answer", *engine.generate(input_ids=prompt, sampling_params=sampling)["output_ids"])
    control.rank().d2h.wait(lambda switch: switch.done > 0)
    engine.shutdown()
"""


def test_a_server_reports_the_testbed_and_copies_through_it(fresh: Fresh) -> None:
    assert fresh.installed_ranks == 1
    assert fresh.copies > 0
    assert len(fresh.answer) == ASKED_TOKENS


def test_a_server_listens_on_the_loopback_alone(fresh: Fresh) -> None:
    assert fresh.address == "127.0.0.1"


def test_no_process_is_left_behind(fresh: Fresh) -> None:
    assert len(fresh.family) > 1
    assert not [pid for pid in fresh.family if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_in_this_process_runs_too(models: Models, fresh: Fresh, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(IN_PROCESS)
    done = subprocess.run(  # noqa: S603 - our own command, no shell
        [sys.executable, str(program), str(models.new), str(tmp_path)],
        check=False,
        input=" ".join(map(str, PROMPT)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"answer {' '.join(map(str, fresh.answer))}\n" in done.stdout


def test_a_testbed_that_sglang_could_not_apply_is_refused(models: Models, tmp_path: Path) -> None:
    options = ServerOptions(models.old, tmp_path, environment=rewritten("submit_device_to_host", "copy_out"))
    with pytest.raises(LaunchError, match=r"did not apply .*L2TransferEngine\.submit_device_to_host"), Server(options):
        pass


def test_an_engine_without_the_testbed_is_refused(models: Models, tmp_path: Path) -> None:
    options = ServerOptions(
        models.old,
        tmp_path,
        arguments={"enable_hierarchical_cache": False},
        environment={"SGLANG_PLUGINS": "quiesce"},
    )
    with pytest.raises(LaunchError, match=r"in place on 0 of 1 ranks.*quiesce_testbed"), Server(options):
        pass
