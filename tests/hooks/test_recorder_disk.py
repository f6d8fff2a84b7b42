"""The flight recorder and the disk: nothing that a disk does reaches the engine, and nothing is lost in silence."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recorded import STUCK, Recorded, warnings

from checker.record import read_record
from engine_hooks import recorder_writer
from engine_hooks.recorder_writer import MAX_FILES, RecordWriter

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bench(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "records")


def a_file(folder: Path) -> None:
    folder.write_text("")


def a_symlink(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


def nothing(folder: Path) -> None:
    """What can be made is made; then it goes away."""


@pytest.mark.parametrize("spoil", [a_file, a_symlink, nothing])
def test_a_folder_that_is_none_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    folder = tmp_path / "records"
    spoil(folder)
    bench = Recorded(folder)
    if spoil is nothing:
        bench.wait_for_folder()
        folder.rmdir()
    bench.episode(3)
    assert set(bench.dropped()) == {"folder"}
    assert bench.dropped()["folder"] > 9
    assert len(warnings(caplog)) == 1
    assert not list(tmp_path.rglob("*.ndjson*"))
    # The watching goes on, and so does the recorder where the folder comes back.
    assert bench.sink.violated()[STUCK] == 3
    if folder.is_symlink() or folder.exists():
        folder.unlink()
    folder.mkdir()
    bench.episode()
    assert len(bench.files()) == 1


def test_a_folder_that_nobody_may_write_into_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Not even root makes a file below /proc."""
    bench = Recorded(Path("/proc/self"))
    bench.episode(2)
    assert set(bench.dropped()) == {"folder"}
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("function", ["fsync", "rename"])
def test_a_full_disk_is_counted_and_leaves_no_half_file(
    bench: Recorded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(recorder_writer.os, function, full)
        bench.episode(2)
        assert bench.files() == []
    assert set(bench.dropped()) == {"disk"}
    assert len(warnings(caplog)) == 1
    assert "No space left" in warnings(caplog)[0]
    bench.episode()
    assert len(bench.files()) == 1


_LIMITED = """
import resource, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from recorded import Recorded
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
bench = Recorded(Path.cwd() / "records")
bench.episode()
print(len(bench.files()), bench.dropped())
"""


@pytest.mark.parametrize(("limit", "says"), [(1000, "0 {'disk': "), (1 << 20, "1 {}")])
def test_a_write_that_the_system_refuses_half_way(tmp_path: Path, limit: int, says: str) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", _LIMITED, str(limit), str(here), str(here.parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith(says)


def test_a_planted_link_is_not_followed(bench: Recorded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(RecordWriter, "_name", lambda *_: "quiesce-known.ndjson")
    bench.wait_for_folder()
    (bench.folder / "quiesce-known.ndjson.tmp").symlink_to(victim)
    bench.episode()
    assert set(bench.dropped()) == {"folder"}
    assert victim.read_text() == "precious"
    # In place of the file itself: it is replaced, not written through.
    (bench.folder / "quiesce-known.ndjson.tmp").unlink()
    (bench.folder / "quiesce-known.ndjson").symlink_to(victim)
    bench.episode()
    assert victim.read_text() == "precious"
    (path,) = bench.files()
    assert not path.is_symlink()
    assert read_record(path).header.property == STUCK


def test_the_oldest_records_make_room_and_nothing_else_is_removed(bench: Recorded) -> None:
    bench.wait_for_folder()
    bench.clock.now = 1.8e9
    others = ["notes.txt", "quiesce-old.ndjson", "a quiesce-20200101T000000.000000Z-x.ndjson"]
    for name in others:
        (bench.folder / name).write_text("")
    old = [f"quiesce-20200101T0000{n:02d}.000000Z-tp0-1-1-x.ndjson" for n in range(60)]
    for name in old:
        (bench.folder / name).write_text("")
    (bench.folder / f"{old[0]}.tmp").write_text("")  # of a process that was killed while it wrote
    for _ in range(8):
        bench.episode()
        bench.writer.settle(30)
    names = {path.name for path in bench.files()}
    assert set(others) <= names
    assert len(names) == MAX_FILES + len(others)
    assert not names & {*old[:4], f"{old[0]}.tmp"}
    assert set(old[5:]) <= names
    assert bench.dropped() == {}


def test_records_that_cannot_be_removed_are_a_reason(bench: Recorded) -> None:
    bench.wait_for_folder()
    for number in range(MAX_FILES):
        (bench.folder / f"quiesce-20200101T0000{number:02d}.000000Z-x.ndjson").mkdir()
    bench.episode()
    assert set(bench.dropped()) == {"files"}


def test_a_record_is_cut_at_its_size_and_says_so(bench: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        bench.observe(running=number)
    monkeypatch.setattr(recorder_writer, "MAX_BYTES", 4000)
    bench.episode()
    (path,) = bench.files()
    assert 3000 < path.stat().st_size <= 4000
    found = read_record(path)
    cut = bench.dropped()["size"]
    assert found.header.forgotten == cut > 80
    # The newest lines are those that stay.
    assert found.passes[-1].state.flush_wanted


def test_a_slow_disk_never_holds_the_scheduler(bench: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(recorder_writer.os, "fsync", lambda _: release.wait(60))
        # Returns although not one record can be written; with a disk that is waited for, this would not end.
        bench.episode(20)
        assert set(bench.sink.violated()) == {STUCK}
        release.set()
        written = len(bench.files())
    assert 4 <= written <= 6
    assert set(bench.dropped()) == {"busy"}
