"""Hooking the real SGLang, without starting an engine: every place exists, and off is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("sglang")

from engine_hooks.sglang.probes_targets import START, TARGETS
from engine_hooks.sglang.remedies import REMEDIES
from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.tokenizer import LAUNCHED

pytestmark = pytest.mark.engine

_SCRIPT = """
import json, os
import sglang.srt.managers.scheduler
from sglang.srt.plugins.hook_registry import HookRegistry
from engine_hooks.sglang import install
from engine_hooks.sglang.plugin import register, register_hooks
from engine_hooks.sglang.probes_targets import TARGETS

found = {}
for name, environment in [
    ("off", {"QUIESCE": "off"}),
    ("bad mode", {"QUIESCE": "enforced"}),
]:
    register_hooks(environment)
    found[name] = sorted(path for path, hooks in HookRegistry._hooks.items() if hooks)
os.environ["QUIESCE"] = "off"
register()
found["main process, off"] = sorted(path for path, hooks in HookRegistry._hooks.items() if hooks)
del os.environ["QUIESCE"]
register()  # not a process that SGLang started for a scheduler
found["main process"] = sorted(path for path, hooks in HookRegistry._hooks.items() if hooks)
os.environ["QUIESCE_REMEDIES"] = "reap-while-paused,reap-sometimes"
install()
found["installed"] = sorted(HookRegistry._patched)
install()
found["hooks a target"] = max(len(hooks) for hooks in HookRegistry._hooks.values())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIESCE")}
    path = os.pathsep.join(launch.standin_paths())
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env=environment | {"PYTHONPATH": path, "SGLANG_USE_CPU_ENGINE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("case", ["off", "bad mode", "main process, off"])
def test_nothing_is_hooked(done: subprocess.CompletedProcess[str], case: str) -> None:
    assert json.loads(done.stdout.splitlines()[-1])[case] == []


def test_a_process_without_a_scheduler_only_waits_for_a_launch(done: subprocess.CompletedProcess[str]) -> None:
    assert json.loads(done.stdout.splitlines()[-1])["main process"] == [LAUNCHED]


def test_a_bad_setting_is_one_line_with_the_valid_values(done: subprocess.CompletedProcess[str]) -> None:
    valid = ", ".join(["all", *sorted(REMEDIES)])
    lines = [line.partition("quiesce: ")[2] for line in done.stderr.splitlines() if "quiesce: QUIESCE" in line]
    assert lines == [
        "QUIESCE='enforced' is not a mode; valid: off, observe, enforce; nothing is activated",
        f"QUIESCE_REMEDIES names 'reap-sometimes', unknown; valid: {valid}; no remedy is activated",
    ]


def test_every_target_of_the_real_engine_is_hooked_once(done: subprocess.CompletedProcess[str]) -> None:
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["installed"] == sorted([START.path, LAUNCHED, *(target.path for target in TARGETS)])
    assert found["hooks a target"] == 1
