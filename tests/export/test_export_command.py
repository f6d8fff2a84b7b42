"""The command `checker export`: what it writes, where, and what it says of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("--profile", "sglang-0.5.23", "--loop", "normal", "--mode", "retract")


def export(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "checker", "export", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        ("--tla", "----------------------------- MODULE sglang_0_5_23_normal_retract_none", "===="),
        (
            "--promela",
            "/* sglang-0.5.23: loop normal, mode retract, storage none.",
            "ltl versions_agree { [] versions_agree",
        ),
        ("--itf", "{", "}"),
    ],
)
def test_stdout_and_file_hold_the_same(kind: str, first: str, last: str, tmp_path: Path) -> None:
    told = export(kind, *FIRST, "--property", "versions-agree")
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith(first)
    assert lines[-1].startswith(last)
    file = tmp_path / "out"
    assert export(kind, *FIRST, "--property", "versions-agree", "-o", str(file)).stdout == ""
    assert file.read_text(encoding="utf-8") == told.stdout


def test_itf_is_json() -> None:
    found = json.loads(export("--itf", *FIRST, "--storage", "file", "--property", "paused-flush-succeeds").stdout)
    assert found["#meta"]["format"] == "ITF"
    assert found["loop"] == len(found["states"]) - 1
    assert found["states"][-1]["paused"] is True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), ["name one format: --tla, --promela or --itf"]),
        (("--tla", "--itf"), ["name one format"]),
        (("--tla", "--storage", "disk"), ["unknown storage 'disk'", "valid names: file, none"]),
        (("--tla", "--loop", "norml"), ["unknown loop 'norml'", "did you mean 'normal'"]),
        (("--tla", "--property", "flushes"), ["unknown property 'flushes'", "paused-flush-succeeds"]),
        (("--tla", "--property", "pages-conserved"), ["nothing to export for pages-conserved", "has no pages"]),
        (("--itf", "--property", "requests-conserved"), ["is proved in", "no counterexample"]),
        (("--itf",), ["give one --property"]),
        (("--tla", "--property", "versions-agree", "-o", "no/such/folder/out"), ["'no/such/folder/out' cannot be"]),
        (("--promela", "--bound", "0"), ["--bound"]),
        (("--tla", "--bound", "3"), ["--bound is for --promela", "leave it out"]),
    ],
)
def test_bad_input_is_exit_code_2(arguments: tuple[str, ...], says: list[str]) -> None:
    done = export("--profile", "sglang-0.5.23", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in says:
        assert part in done.stderr


def test_what_promela_cannot_say_is_said(tmp_path: Path) -> None:
    text = (ROOT / "spec/profiles/sglang-0.5.23.toml").read_text(encoding="utf-8")
    strong = tmp_path / "strong.toml"
    strong.write_text(text.replace('fair = "weak"', 'fair = "strong"'), encoding="utf-8")
    done = export("--promela", "--profile", str(strong), "--property", "ledgers-drain")
    assert done.returncode == 0
    assert "checker: STRONG FAIRNESS of DeviceDone(write_through.submitted) is taken as weak" in done.stderr
    assert "STRONG FAIRNESS" in done.stdout
