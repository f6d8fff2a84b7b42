"""Where findings go, where that cannot be: said in one line each, and nothing else is lost by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

_SCRIPT = """
import logging
import os
from pathlib import Path
from engine_hooks.compiled import compiled_profile
from engine_hooks.observation import Rank
from engine_hooks.settings import Settings
from engine_hooks.sglang.plugin import _Starter

logging.basicConfig(format="%(message)s")
settings = Settings.from_environment(os.environ)
starter = _Starter(settings, compiled_profile("sglang", "0.5.23"), {}, "0.5.23", {})
print(*(type(sink).__name__ for sink in starter._sinks(Rank())))
"""


def sinks(**environment: str) -> tuple[str, str]:
    """Their names, and what was logged."""
    # The client of Prometheus decides when it is imported whether values are files: so in a process of its own.
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("QUIESCE", "PROMETHEUS"))}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=bare | environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip(), done.stderr


def test_a_folder_of_metrics_that_cannot_be_written_leaves_the_status_file(tmp_path: Path) -> None:
    metrics, status = tmp_path / "metrics", str(tmp_path / "status")
    metrics.mkdir()
    assert sinks(PROMETHEUS_MULTIPROC_DIR=str(metrics), QUIESCE_STATUS_DIR=status) == ("PrometheusSink StatusFile", "")
    kept, said = sinks(PROMETHEUS_MULTIPROC_DIR=str(tmp_path / "gone"), QUIESCE_STATUS_DIR=status)
    assert kept == "StatusFile"
    assert said.startswith("quiesce: no metrics: ")
    assert said.count("\n") == 1


def test_a_status_folder_that_is_a_file_leaves_the_metrics(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept, said = sinks(PROMETHEUS_MULTIPROC_DIR=str(tmp_path), QUIESCE_STATUS_DIR=str(tmp_path / "file" / "status"))
    assert kept == "PrometheusSink"
    assert said.startswith("quiesce: no status file: ")
