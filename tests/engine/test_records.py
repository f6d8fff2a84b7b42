"""On the real engine: the flight record of a violation, and the pause as the tokenizer's process shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from harness import PROMPT, Engine, on, wait_until

from checker.record import read_record
from checker.report.flight import playback
from checker.report.places import Source

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

PROPERTY = "paused-flush-succeeds"


def records(engine: Engine) -> set[Path]:
    return set(engine.records.glob(f"*{PROPERTY}.ndjson"))


@on(loop="overlap", storage="none", remedies="")
def test_a_violation_leaves_one_record_that_tells_it(engine: Engine) -> None:
    before = records(engine)
    engine.rank.d2h.hold()
    stream = engine.generate(PROMPT, 100)
    engine.rank.d2h.wait_in_flight()
    # Of running passes not each one is observed.
    stream.wait_tokens(30)
    engine.pause("retract")
    engine.wait_metric(1, "quiesce_paused", process="scheduler")
    engine.wait_passes(100)
    assert records(engine) == before
    assert not engine.flush().success
    wait_until(lambda: len(records(engine)) == len(before) + 1, "the record")
    for _ in range(3):
        assert not engine.flush().success
    engine.wait_passes(100)
    (path,) = records(engine) - before

    found = read_record(path)
    assert (found.header.engine_version, found.header.loop) == ("0.5.23", "overlap")
    assert (found.header.property, found.header.storage) == (PROPERTY, "none")
    # The last pass is the one that it is about; most of those before it said the same and are counted.
    last, paused = found.passes[-1], [one for one in found.passes if one.mode == "retract"]
    assert last.last == found.header.pass_number
    assert last.state.flush_wanted
    assert last.state.write_through_submitted + last.state.write_through_queued > 0
    assert sum(one.times for one in paused) > 100 > len(paused)
    assert [one for one in found.passes if not one.state.paused and one.state.running]
    refused = [one for one in found.events if one.labels == ("immediate", "refused")]
    assert refused
    assert path.stat().st_mode & 0o777 == 0o600
    # Neither tokens nor names of requests: all that a line holds are numbers of closed names.
    assert str(PROMPT[:3]).strip("[]") not in path.read_text()
    assert all("rid" not in json.loads(line) for line in path.read_text().splitlines())
    assert engine.metrics().value("quiesce_trace_events_dropped_total") == 0

    page = playback(found, Source())
    assert page.stays
    assert [chart.stuck for chart in page.charts if chart.ledger == "write_through"] == [True]
    # The violation is said as soon as the region is entered, so the line that marks it is the last one, whatever an
    # earlier test left among the lines.
    assert [step.repeats for step in page.steps[-2:]] == [False, True]
    assert "write_through" in next(known.value for known in page.known if known.name == "Holds the flush back")

    engine.rank.d2h.release()
    engine.continue_()
    stream.result()
    assert len(records(engine)) == len(before) + 1


@on(loop="overlap", storage="none", remedies="")
def test_a_pause_of_mode_abort_is_seen_in_the_tokenizer_alone(engine: Engine) -> None:
    assert engine.metrics().value("quiesce_paused", process="tokenizer") == 0
    engine.pause("abort")
    # Its own process answers the scrape, so there is nothing to wait for.
    paused = engine.metrics()
    assert paused.value("quiesce_paused", process="tokenizer") == 1
    assert paused.value("quiesce_pause_start_timestamp_seconds", process="tokenizer") > 1.7e9
    assert paused.value("quiesce_paused", process="scheduler") == 0
    engine.continue_()
    assert engine.metrics().value("quiesce_paused", process="tokenizer") == 0

    engine.pause("retract")
    engine.wait_metric(1, "quiesce_paused", process="scheduler")
    assert engine.metrics().value("quiesce_paused", process="tokenizer") == 1
    engine.continue_()
    assert engine.metrics().value("quiesce_pause_start_timestamp_seconds", process="tokenizer") == 0
