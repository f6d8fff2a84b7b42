"""What people read, word for word. Update with `QUIESCE_GOLDENS=write pytest tests/checker/test_goldens.py`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GOLDENS = Path(__file__).parent / "goldens"
ROOT = Path(__file__).resolve().parents[2]
P = ["--profile", "sglang-0.5.23"]
COMMANDS = {
    "help": ["--help"],
    "explain-founding": ["explain", "paused-flush-succeeds", *P],
    "explain-founding-repaired": ["explain", "paused-flush-succeeds", *P, "--remedy", "reap-while-paused"],
    "explain-update-flushes": [
        "explain",
        "update-flushes",
        *P,
        "--loop",
        "normal",
        "--mode",
        "retract",
        "--remedy",
        "reap-while-paused",
    ],
    "verify-normal-retract": ["verify", *P, "--loop", "normal", "--mode", "retract"],
    "unknown-property": ["verify", *P, "--property", "paused-flush"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_golden(name):
    arguments = COMMANDS[name]
    done = subprocess.run(
        [sys.executable, "-m", "checker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
    )
    text = f"$ checker {' '.join(arguments)}\n{done.stdout}{done.stderr}exit code {done.returncode}\n"
    # The digest moves with every change of the profile, the solver's version with its release.
    text = re.sub(r"^spec \w+, z3 [\d.]+", "spec DIGEST, z3 VERSION", text, flags=re.MULTILINE)
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("QUIESCE_GOLDENS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
