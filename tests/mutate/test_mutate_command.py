"""The command `checker mutate`: its answers, its exit codes, an interrupt that keeps what is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from checker.mutate.results import Report

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "checker", "mutate", "--profile", "sglang-0.5.23", "--remedy", "all"]


def test_json_and_exit_code() -> None:
    done = subprocess.run(
        [*COMMAND, "--sample", "2", "--json"], capture_output=True, text=True, check=False, timeout=300, cwd=ROOT
    )
    report = msgspec.json.decode(done.stdout, type=Report)
    assert len(report.outcomes) == 2
    assert report.configuration["storage"] == "none"
    assert done.returncode == (1 if report.survived else 0), done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--storage", "disk"), "valid names: file, none"),
        (("--loop", "norml"), "did you mean 'normal'"),
        (("--sample", "0"), "--sample"),
        (("--suite",), "--suite has its own profiles"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: tuple[str, ...], says: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_keeps_what_is_known() -> None:
    with subprocess.Popen([*COMMAND, "--json"], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        time.sleep(8)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    if out:
        assert not msgspec.json.decode(out, type=Report).complete


def test_a_worker_that_is_killed_keeps_what_is_known() -> None:
    arguments = [*COMMAND, "--sample", "60", "--workers", "2", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, **pipes, text=True, cwd=ROOT) as process:  # type: ignore[call-overload]
        command = psutil.Process(process.pid)
        while len(command.children()) < 2:  # the first is alone, and lists the mutants
            time.sleep(0.01)
        command.children()[0].kill()
        out, err = process.communicate(timeout=60)
    said = "a worker ended with exit code -9 before its work did"
    assert (process.returncode, err) == (4, f"checker: {said}\n")
    report = msgspec.json.decode(out, type=Report)
    assert (report.complete, report.lost) == (False, said)
    assert len(report.outcomes) < 60
