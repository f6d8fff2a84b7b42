"""The status file."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from engine_hooks.monitor_board import Violation
from engine_hooks.status import StatusFile

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = {"engine": "sglang", "rank": {"tp": 0}}


def wait_for(path: Path, condition: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists():
            content: dict[str, Any] = json.loads(path.read_text())
            if condition(content):
                return content
        time.sleep(0.01)
    raise TimeoutError(path)


def test_it_holds_what_was_written_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    status = StatusFile(tmp_path / "status", "scheduler-0", IDENTITY)
    status.count("flushes_total", ("update", "refused"), 2)
    status.count("flushes_total", ("update", "refused"), 1)
    status.gauge("stuck", ("paused-flush-succeeds",), 1)
    status.observe("check_duration_seconds", 0.1)
    status.report(Violation("update-flushes", "tp0 pp0 dp0", 7, 12.5, "text"))
    status.close()
    content = json.loads(status.path.read_text())
    assert status.path.name == "scheduler-0.json"
    assert status.path.stat().st_mode & 0o777 == 0o600
    assert content["pid"] == os.getpid()
    assert content["schema"] == 1
    assert content["engine"] == "sglang"
    assert content["series"] == {"flushes_total": {"update,refused": 3}, "stuck": {"paused-flush-succeeds": 1}}
    assert content["violations"] == [
        {"property": "update-flushes", "rank": "tp0 pp0 dp0", "pass_number": 7, "at": 12.5, "message": "text"}
    ]
    assert [p.name for p in status.path.parent.iterdir()] == ["scheduler-0.json"]


def test_a_flush_shows_up_soon_and_the_caller_does_not_write(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, "s", IDENTITY)
    status.gauge("paused", ("scheduler",), 1)
    status.flush()
    wait_for(status.path, lambda content: content["series"] == {"paused": {"scheduler": 1}})
    status.gauge("paused", ("scheduler",), 0)
    status.flush()
    wait_for(status.path, lambda content: content["series"] == {"paused": {"scheduler": 0}})
    status.close()


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, "s", IDENTITY)
    status.flush()
    wait_for(status.path, lambda _: True)
    done = threading.Event()

    def write() -> None:
        for number in range(300):
            status.gauge("weight_epoch", (), number)
            status.flush()
            time.sleep(0.001)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        json.loads(status.path.read_text())
    writer.join()
    status.close()
    assert json.loads(status.path.read_text())["series"] == {"weight_epoch": {"": 299}}


def test_the_last_violations_are_kept_and_no_more(tmp_path: Path) -> None:
    status = StatusFile(tmp_path, "s", IDENTITY)
    for number in range(100):
        status.report(Violation("p", "r", number, 0.0, "m"))
    status.close()
    kept = [v["pass_number"] for v in json.loads(status.path.read_text())["violations"]]
    assert kept == list(range(84, 100))


def test_a_folder_that_goes_away_is_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "status"
    status = StatusFile(folder, "s", IDENTITY)
    folder.rmdir()
    with caplog.at_level(logging.WARNING, "quiesce"):
        for _ in range(3):
            status.flush()
            time.sleep(0.1)
        assert len(caplog.records) == 1
        assert "is out of date" in caplog.text
        folder.mkdir()  # and it is written again
        status.flush()
        status.close()
    assert [file.name for file in folder.iterdir()] == ["s.json"]


def test_a_folder_that_cannot_be_made_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        StatusFile(tmp_path / "file" / "status", "s", IDENTITY)
