"""The command: options, exit codes, JSON by its schema, a live view that Ctrl-C ends with what is known."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from engines import engine, exported, idle, served, stuck

from checker.doctor.results import Diagnosis, Report
from checker.doctor.show import in_full
from checker.doctor.visit import EngineUrlError, engine_urls

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "from checker.cli import main; main(prog_name='checker')", "doctor"]


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)


@pytest.fixture(scope="module")
def healthy() -> Iterator[str]:
    with served(engine(exported(idle))) as url:
        yield url


@pytest.fixture(scope="module")
def ill() -> Iterator[str]:
    with served(engine(exported(stuck))) as url:
        yield url


def test_exit_codes(healthy: str, ill: str) -> None:
    assert doctor("--url", healthy).returncode == 0
    assert doctor("--url", ill).returncode == 1
    done = doctor("--url", healthy, "--url", ill, "--url", "http://127.0.0.1:1", "--timeout", "2")
    assert done.returncode == 2
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["healthy", "stuck", "unreachable"]
    assert done.stderr == ""


def test_a_file_of_urls(healthy: str, ill: str, tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_text(f"# the fleet\n{healthy}\n\n  {ill}/  # the ill one\n{healthy}\n")
    done = doctor("--urls", str(file), "--url", ill)
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[ill, "stuck"], [healthy, "healthy"]]


def test_json_has_the_shape_of_its_schema(ill: str) -> None:
    done = doctor("--url", ill, "--json")
    report = msgspec.json.decode(done.stdout, type=Report)
    assert (report.schema, report.state, len(report.engines)) == (1, "stuck", 1)
    schema: dict[str, Any] = json.loads((ROOT / "checker" / "schemas" / "doctor-1.json").read_text())
    assert set(json.loads(done.stdout)["engines"][0]) == set(schema["$defs"]["Diagnosis"]["properties"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), ["no engine to ask", "--urls FILE"]),
        (("--url", "engine-1:30000"), ["--url engine-1:30000: 'engine-1:30000'", "valid: http://HOST:PORT"]),
        (("--url", "http://"), ["is not the base URL"]),
        (("--url", "http://h:port"), ["is not the base URL"]),
        (("--url", "http://u:p@h:1"), ["is not the base URL"]),
        (("--url", "http://h:1/?a=b"), ["is not the base URL"]),
        (("--urls", "nowhere"), ["--urls nowhere cannot be read"]),
        (("--url", "http://h:1", "--timeout", "0"), ["--timeout"]),
    ],
)
def test_bad_input_is_exit_code_2_with_the_remedy(arguments: tuple[str, ...], says: list[str]) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for part in says:
        assert part in done.stderr


def test_a_bad_line_of_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_text("http://a:1\nb:2\n")
    assert f"{file}:2: 'b:2'" in doctor("--urls", str(file)).stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x89PNG\r\n\xff\xfe", "cannot be read"),
        (b"http://a:1\n\0\n", "engines:2: '\\x00' is not the base URL"),
        (b"http://a:1\n" + b"x" * 5000, f"engines:2: '{'x' * 100}…' is not the base URL"),
        (b"http://a:1\n\x1b[2Jb:2\n", r"engines:2: '\x1b[2Jb:2' is not the base URL"),
        (b"# only comments\n\n", "no engine to ask"),
        (b"#" * (2**20 + 1), "is larger than 1048576 bytes"),
    ],
    ids=["bytes", "nul", "a long line", "escapes", "nothing", "huge"],
)
def test_a_file_of_junk_is_bad_input(content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "engines"
    file.write_bytes(content)
    done = doctor("--urls", str(file))
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 400


def test_a_file_without_an_end_and_a_name_with_a_nul() -> None:
    assert "is larger than 1048576 bytes" in doctor("--urls", "/dev/zero").stderr
    with pytest.raises(EngineUrlError, match="cannot be read: embedded null byte"):
        engine_urls([], "a\0b")


def test_what_is_to_be_pasted_is_quoted(ill: str) -> None:
    text = doctor("--url", f"{ill}/$(reboot)").stdout
    assert "/$(reboot): unreachable" in text
    found = Diagnosis(f"{ill}/$(reboot)", "stuck", "", runbooks=("FlushCannotSucceed",))
    assert f"  ENGINE='{ill}/$(reboot)'" in list(in_full(found))


def test_watch_says_what_changes_and_ctrl_c_ends_it_with_the_last_exit_code() -> None:
    pages = engine(exported(idle))
    with served(pages) as url:
        process = subprocess.Popen(
            [*COMMAND, "--watch", "--every", "0.2", "--url", url], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        assert process.stdout.readline() == f"{url}: healthy\n"
        pages.update(engine(exported(stuck)))
        while (line := process.stdout.readline()) != f"{url}: stuck\n":
            assert line
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    # Said once, however often it was asked for.
    assert f"{url}: " not in rest


def test_watch_on_a_terminal_redraws(healthy: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--watch", "--every", "0.2", "--url", healthy], stdout=theirs, stderr=theirs, cwd=ROOT
    )
    os.close(theirs)
    seen = b""
    while seen.count(b"\x1b[H\x1b[2J") < 3:
        seen += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    os.close(ours)
    assert seen.count(b"healthy") >= 2
    assert b"Ctrl-C ends" in seen


def test_watch_with_json_is_a_line_each_time(healthy: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--watch", "--every", "0.2", "--json", "--url", healthy],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    states = [msgspec.json.decode(process.stdout.readline(), type=Report).state for _ in range(3)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert states == ["healthy"] * 3
    assert process.returncode == 0


def test_the_doctor_needs_no_solver() -> None:
    code = "import sys, checker.doctor.visit, checker.doctor.watch; print('z3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"
