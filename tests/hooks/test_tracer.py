"""The trace as the hooks write it: what repeats is counted, parts are bounded, and where a step is lost it ends."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from checker.replay.reading import Reading, traces
from engine_hooks import tracer_writer
from engine_hooks.trace import SCHEMA, STATE_FIELDS, End, Step, TraceHeader, TraceState
from engine_hooks.tracer import Tracer
from engine_hooks.tracer_writer import KEPT_PARTS, TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

HEADER = TraceHeader(
    SCHEMA, "sglang", "0.5.23", "test", "small", "d1", {"tp": 1, "pp": 0, "dp": 2}, "normal", (), "none", 1.7e9, 1, 1
)

NOTHING = TraceState()


class Bench:
    """A tracer of a state that a test sets."""

    def __init__(self, folder: Path, part_bytes: int = 1 << 20) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {}
        self.now = 1000.0
        self.writer = TraceWriter(folder, "tp1 pp0 dp2", HEADER, part_bytes)
        self.tracer = Tracer(self.read, self.writer, lambda: self.now)

    def read(self) -> tuple[Any, ...]:
        return tuple(self.state.get(name, getattr(NOTHING, name)) for name in STATE_FIELDS)

    def lines(self) -> list[Step | End]:
        self.tracer.close()
        (trace,) = traces([self.folder])
        return list(Reading(trace))

    def parts(self) -> list[Path]:
        return sorted(self.folder.glob("*.trace.ndjson"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "traces")


def test_passes_that_end_alike_are_one_line(bench: Bench) -> None:
    bench.tracer.did("start")
    for _ in range(1000):
        bench.tracer.did("pass")
    bench.state["waiting"] = 1
    bench.tracer.did("arrive")
    bench.tracer.did("arrive")
    bench.tracer.did("pass")
    *steps, end = bench.lines()
    told = [(step.n, step.do, step.times) for step in steps if isinstance(step, Step)]
    # Only passes are counted: what came twice may be two.
    assert told == [(1, "start", 1), (2, "pass", 1000), (1002, "arrive", 1), (1003, "arrive", 1), (1004, "pass", 1)]
    assert end == End(1004, "closed")


def test_what_the_profile_does_not_model_is_noted(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "traces")
    closed = [""]
    bench.tracer = Tracer(bench.read, bench.writer, lambda: bench.now, lambda: closed[0])
    bench.tracer.did("pass")
    closed[0] = "grammar"
    bench.tracer.did("pass")
    bench.tracer.did("pass")
    told = [(step.times, step.note) for step in bench.lines() if isinstance(step, Step)]
    assert told == [(1, ""), (2, "grammar")]


def test_a_long_spin_is_told_now_and_then(bench: Bench) -> None:
    for _ in range(10):
        bench.tracer.did("pass")
        bench.now += 0.2
    assert [step.times for step in bench.lines() if isinstance(step, Step)] == [3, 3, 3, 1]


def test_a_file_is_its_owners_and_holds_nothing_but_numbers(bench: Bench) -> None:
    bench.tracer.did("pause", "retract")
    bench.tracer.close()
    (path,) = bench.parts()
    assert path.stat().st_mode & 0o777 == 0o600
    header, step, end = (msgspec.json.decode(line) for line in path.read_bytes().splitlines())
    assert (header["kind"], header["rank"]) == ("trace", {"tp": 1, "pp": 0, "dp": 2})
    assert set(step) == {"crc", "kind", "n", "do", "how", "state", "at"}
    assert end == {"crc": end["crc"], "kind": "end", "steps": 1, "reason": "closed"}


def test_parts_are_bounded_and_the_oldest_make_room(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "traces", part_bytes=2000)
    (tmp_path / "traces").mkdir(exist_ok=True)
    other = tmp_path / "traces" / "notes.ndjson"
    other.write_text("not ours")
    for number in range(2000):
        bench.state["forwards"] = number
        bench.tracer.did("pass")
        if number % 200 == 0:
            time.sleep(0.25)  # so that the writer makes several goes of it
    bench.tracer.close()
    parts = bench.parts()
    assert len(parts) == KEPT_PARTS
    assert max(path.stat().st_size for path in parts) < 2000 + 300
    assert other.read_text() == "not ours"
    (trace,) = traces([bench.folder])
    assert trace.header.part > 1
    steps = [line for line in Reading(trace) if isinstance(line, Step)]
    assert (steps[0].n, steps[-1].n) == (trace.header.first, 2000)


def test_a_folder_that_is_none_ends_the_trace_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "traces").symlink_to(tmp_path / "elsewhere")
    bench = Bench(tmp_path / "traces")
    bench.tracer.did("start")
    bench.tracer.close()
    bench.tracer.did("pass")
    assert not list(tmp_path.rglob("*.trace.ndjson"))
    assert set(bench.tracer.take_dropped()) == {"folder"}
    assert bench.tracer.take_dropped() == {}
    # What comes later is lost for the same reason.
    assert not bench.writer.put(lambda: pytest.fail("a step that is lost is not made"), 3)
    assert bench.tracer.take_dropped() == {"folder": 3}
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "the trace in" in said[0]


def test_a_full_disk_ends_the_trace(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    bench.tracer.did("start")
    while not bench.parts() or not bench.parts()[0].stat().st_size:
        bench.state["forwards"] = bench.state.get("forwards", 0) + 1
        bench.tracer.did("pass")
        time.sleep(0.01)

    def full(descriptor: int, text: bytes) -> int:
        if descriptor == bench.writer._stream:
            raise OSError(28, "No space left on device")
        return real(descriptor, text)

    monkeypatch.setattr(tracer_writer.os, "write", full)
    bench.state["waiting"] = 1
    bench.tracer.did("arrive")
    bench.tracer.close()
    assert set(bench.tracer.take_dropped()) == {"disk"}


def test_a_disk_that_is_too_slow_ends_the_trace_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer_writer, "_MAX_PENDING", 5)
    monkeypatch.setattr(tracer_writer, "_WRITE_SECONDS", 3600.0)
    bench = Bench(tmp_path / "traces")
    for number in range(20):
        bench.state["forwards"] = number
        bench.tracer.did("pass")
    bench.writer._thread.join(30)
    lines = list(Reading(traces([bench.folder])[0]))
    end = lines[-1]
    assert isinstance(end, End)
    assert end.reason == "dropped"
    assert bench.tracer.take_dropped()["busy"] >= 1


def test_a_state_that_cannot_be_read_ends_the_trace(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.tracer.did("start")
    bench.state = None  # type: ignore[assignment] - as an engine whose attribute is gone
    bench.tracer.did("pass")
    bench.tracer.did("pass")
    (trace,) = traces([bench.folder])
    assert list(Reading(trace))[-1] == End(1, "lost")
    assert bench.tracer.take_dropped() == {"error": 1}
    assert [r.getMessage() for r in caplog.records] == ["quiesce: the trace ends: AttributeError"]
