"""The flight recorder: what it keeps, what it writes, and that nothing a disk does reaches the engine."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hooks_fakes import Bench

from checker.record import Record, RecordError, read_record
from engine_hooks import record, recorder_writer
from engine_hooks.errors import ProtocolViolationError
from engine_hooks.monitor import MonitorOptions
from engine_hooks.monitor_text import HOOKS
from engine_hooks.observation import VARIABLES, Observation, Rank
from engine_hooks.recorder import KEPT_EVENTS, KEPT_PASSES, FlightRecorder, Identity
from engine_hooks.recorder_writer import MAX_FILES, RecordWriter

if TYPE_CHECKING:
    from collections.abc import Callable

IDENTITY = Identity("sglang", "0.5.23", "0.1.0", "small", "d1", Rank(1, 0, 2), "normal", ("reap-while-paused",))
HELD = {"waiting": 1, "write_through_submitted": 1}
STUCK = "paused-flush-succeeds"


class Recorded(Bench):
    """A monitor with a flight recorder that writes into `folder`."""

    def __init__(self, folder: Path, options: MonitorOptions | None = None) -> None:
        super().__init__(options)
        self.folder = folder
        self.writer = RecordWriter(folder, "tp1 pp0 dp2")
        self.recorder = FlightRecorder(IDENTITY, self.writer, self.clock)
        self.monitor.record_with(self.recorder)

    def episode(self, times: int = 1) -> None:
        """A pause in which a flush is refused and can never be granted, so often."""
        for _ in range(times):
            self.observe(running=1)
            self.monitor.paused("retract", "file")
            self.paused_pass(**HELD)
            self.monitor.flush_decided("immediate", "refused")
            self.paused_pass(**HELD)
            self.monitor.continued()

    def wait_for_folder(self) -> None:
        while not self.folder.exists():
            time.sleep(0.001)

    def files(self) -> list[Path]:
        self.writer.settle(30)
        return sorted(self.folder.glob("*"))

    def written(self) -> Record:
        (path,) = self.files()
        return read_record(path)

    def dropped(self) -> dict[str, int]:
        """Reason to number, as exported."""
        self.writer.settle(30)
        counts = self.settle().counts
        return {key[1]: n for key, n in counts.items() if key[0] == "trace_events_dropped_total"}


@pytest.fixture
def bench(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "records")


def test_an_episode_is_one_file_that_tells_it(bench: Recorded) -> None:
    bench.episode()
    found = bench.written()
    header = found.header
    assert (header.schema, header.engine, header.engine_version, header.version) == (1, "sglang", "0.5.23", "0.1.0")
    assert (header.profile, header.spec_digest, header.rank) == ("small", "d1", {"tp": 1, "pp": 0, "dp": 2})
    assert (header.loop, header.remedies, header.storage) == ("normal", ("reap-while-paused",), "file")
    assert (header.property, header.pass_number) == (STUCK, 3)
    assert STUCK in header.message
    assert [(line.first, line.mode, line.state.flush_wanted) for line in found.passes] == [
        (1, None, False),
        (2, "retract", False),
        (3, "retract", True),
    ]
    assert [line.state.write_through_submitted for line in found.passes] == [0, 1, 1]
    assert ("flushes_total", ("immediate", "refused")) in [(line.series, line.labels) for line in found.events]
    assert [line.value for line in found.events if line.series == "paused"] == [1]
    assert header.forgotten == 0
    assert bench.dropped() == {}


def test_without_a_violation_nothing_is_written(bench: Recorded) -> None:
    for _ in range(100):
        bench.paused_pass(waiting=1)
    bench.wait_for_folder()
    assert bench.files() == []


def test_once_for_each_episode_however_long_it_lasts(bench: Recorded) -> None:
    bench.episode(2)
    bench.monitor.paused("retract", "file")
    bench.monitor.flush_decided("immediate", "refused")
    for _ in range(1000):
        bench.monitor.flush_decided("immediate", "refused")
        bench.paused_pass(**HELD)
    assert len(bench.files()) == 3


def test_what_repeats_is_counted_also_where_a_client_flushes_without_end(bench: Recorded) -> None:
    bench.observe(running=1)
    bench.monitor.paused("retract", "other")  # no region is known: no episode yet
    for _ in range(5000):
        bench.monitor.flush_decided("immediate", "refused")
        bench.paused_pass(**HELD)
    bench.monitor.paused("retract", "file")
    bench.paused_pass(**HELD)
    found = bench.written()
    assert [(line.first, line.last, line.times) for line in found.passes] == [(1, 1, 1), (2, 5002, 5001)]
    refusals = [line for line in found.events if line.series == "flushes_total"]
    # The first one also showed what holds the flush back.
    assert [(line.first, line.last, line.times) for line in refusals] == [(1, 1, 1), (2, 5000, 4999)]


def test_a_pass_that_changed_something_tells_how_it_began(bench: Recorded) -> None:
    bench.monitor.paused("retract", "file")
    bench.paused_pass(began={"lookups": 4}, lookups=5)
    (line,) = bench.written().passes
    assert line.began is not None
    assert (line.began.lookups, line.state.lookups) == (4, 5)


def test_the_state_in_which_a_flush_was_granted_is_told(bench: Recorded) -> None:
    bench.monitor.gate_answered("flush", Observation(sequence=1, running=3), open_=True)
    (line,) = [line for line in bench.written().events if line.series == "gate"]
    assert line.state is not None
    assert line.state.running == 3


def test_memory_is_bounded_and_what_is_forgotten_is_said(bench: Recorded) -> None:
    def churn(count: int) -> None:
        for number in range(count):
            bench.monitor.flush_decided("immediate", "granted" if number % 2 else "refused")
            bench.observe(running=number % 1000, lookups=10**9 + number)

    churn(2 * KEPT_PASSES)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    churn(20_000)
    growth = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # The ring was full before; it holds as much after. An entry alone is a tenth of this.
    assert growth < KEPT_PASSES * 1000
    bench.monitor.paused("retract", "file")
    bench.monitor.flush_decided("immediate", "refused")
    bench.paused_pass(**HELD)
    found = bench.written()
    assert (len(found.passes), len(found.events)) == (KEPT_PASSES, KEPT_EVENTS)
    assert found.header.forgotten > 40_000
    # A ring forgets by design; nothing was lost that should be there.
    assert bench.dropped() == {}


# What is in a file, and who may read it.


def test_its_owner_alone_may_read_it(bench: Recorded) -> None:
    before = os.umask(0)
    try:
        bench.episode()
        (path,) = bench.files()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert bench.folder.stat().st_mode & 0o777 == 0o700


def test_no_text_of_an_exception_and_no_long_name_gets_in(bench: Recorded) -> None:
    bench.monitor.paused("retract", "secret" * 1000)
    bench.monitor.continued()
    bench.monitor.lost("lookups", "KeyError: 'secret-request-id'")
    bench.episode()
    (path,) = bench.files()
    assert "secret" not in path.read_text()
    assert '"lookups"' in path.read_text()


def test_every_word_in_a_line_comes_from_a_closed_set(bench: Recorded) -> None:
    bench.episode()
    (path,) = bench.files()
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header["kind"] == "header"
    words = {word for line in lines for word in strings(line)}
    assert words <= {
        "pass", "event", "retract", "write_through", "running", "waiting", "paused", "scheduler", "stuck", STUCK,
        "flush_blocked", "flushes_total", "immediate", "refused", "hook_applied", *HOOKS,
    }  # fmt: skip


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [word for part in inner for word in strings(part)]


def test_a_record_has_the_variables_of_an_observation() -> None:
    assert record.State.__struct_fields__ == VARIABLES


def test_the_schema_allows_what_is_written_and_nothing_else(bench: Recorded) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    root = Path(recorder_writer.__file__).parent.parent
    schema = json.loads((root / "checker" / "schemas" / "record-1.json").read_text())
    bench.episode()
    (path,) = bench.files()
    lines = list(map(json.loads, path.read_text().splitlines()))
    for line in lines:
        jsonschema.validate(line, schema)
    for line in lines[:2]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(line | {"prompt": "text"}, schema)


# What a disk may do.


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        r.getMessage() for r in caplog.records if "flight record" in r.getMessage() and r.levelno >= logging.WARNING
    ]


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
from test_recorder import Recorded
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


@pytest.mark.parametrize("function", ["_header", "_event"])
def test_a_fault_of_the_recorder_ends_the_recorder_only(
    bench: Recorded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    def fail(*_args: object) -> None:
        raise ValueError("secret")

    if function == "_event":
        bench.recorder._clock = fail  # type: ignore[assignment]
    else:
        monkeypatch.setattr(bench.recorder, function, fail)
    bench.episode(3)
    assert bench.sink.violated()[STUCK] == 3
    assert bench.dropped()["error"] >= 3
    assert len(warnings(caplog)) == 1
    assert "secret" not in caplog.text
    assert bench.files() == []


def test_a_line_that_cannot_be_encoded_costs_one_record(bench: Recorded) -> None:
    bench.observe(running=object())
    bench.monitor.paused("retract", "file")
    bench.monitor.flush_decided("immediate", "refused")
    bench.paused_pass(**HELD)
    assert bench.files() == []
    assert set(bench.dropped()) == {"error"}
    bench.monitor.continued()
    for number in range(KEPT_PASSES):
        bench.observe(running=number)
    bench.episode()
    assert len(bench.files()) == 1


def test_in_enforce_the_record_is_there_when_it_raises(tmp_path: Path) -> None:
    bench = Recorded(tmp_path / "records", MonitorOptions(enforce=True))
    with pytest.raises(ProtocolViolationError):
        bench.episode()
    assert len(list(bench.folder.glob("*.ndjson"))) == 1


# Reading.


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: b"", "cut off"),
        (lambda text: text[:-1], "cut off"),
        (lambda text: b"\n".join(text.splitlines()[1:]) + b"\n", "line 1: no header"),
        (lambda text: text + text.splitlines()[0] + b"\n", "more than one header"),
        (lambda text: text.replace(b'"schema":1', b'"schema":7'), "schema 7 is not known; this version reads 1"),
        (lambda text: text + b'{"kind":"pass"}\n', "missing required field"),
        (lambda text: text + b"\xff\n", "line "),
        (lambda text: text + b"[" * 100_000 + b"\n", "line "),
        (lambda text: text + b" " * record.MAX_BYTES, "larger than"),
        (lambda _: b"\x80\x04K\x01.\n", "line 1"),
    ],
)
def test_a_file_that_is_no_record_says_why(
    bench: Recorded, tmp_path: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    bench.episode()
    (path,) = bench.files()
    broken = tmp_path / "broken"
    broken.write_bytes(change(path.read_bytes()))
    with pytest.raises(RecordError) as caught:
        read_record(broken)
    assert says in str(caught.value)
    assert read_record(path).passes


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read flight record"):
        read_record(tmp_path / "none")
