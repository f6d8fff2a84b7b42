"""The flight recorder: what it keeps, and what it writes."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from recorded import HELD, STUCK, Recorded, warnings

from checker.record import RecordError, read_record
from engine_hooks import record, recorder_writer
from engine_hooks.errors import ProtocolViolationError
from engine_hooks.monitor import MonitorOptions
from engine_hooks.monitor_text import HOOKS
from engine_hooks.observation import VARIABLES, Observation
from engine_hooks.recorder import KEPT_EVENTS, KEPT_PASSES

if TYPE_CHECKING:
    from collections.abc import Callable


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
