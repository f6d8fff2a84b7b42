"""What the monitor makes of a reading, and what it does where no lineage is followed."""

from __future__ import annotations

import logging

import pytest
from hooks_fakes import Bench

from engine_hooks.errors import ProtocolViolationError
from engine_hooks.lineage.report import Report
from engine_hooks.lineage.words import PLACES, Reading
from engine_hooks.monitor_options import MonitorOptions

FOLLOWED = MonitorOptions(unasked=frozenset())
PROPERTY = "no-stale-kv"


def reading(*requests: dict[tuple[str, str], int]) -> Reading:
    return Reading([[request.get(place, 0) for place in PLACES] for request in requests])


def report(bench: Bench) -> Report:
    return Report(bench.board, bench.monitor.stale_read, lambda: bench.monitor.epoch)


def update(bench: Bench, result: str) -> None:
    bench.monitor.weights_loaded()
    bench.monitor.update_answered("disk", result)


def test_stale_tokens_are_counted_and_one_episode() -> None:
    bench = Bench(FOLLOWED)
    told = report(bench)
    told(reading({("device", "current"): 32}, {("storage", "stale"): 48, ("host", "stale"): 16}))
    told(reading({("storage", "stale"): 16}))
    assert bench.sink.violated() == {PROPERTY: 1}
    assert "a batch read KV of older weights: request 2 of 2: 16 from host, 48 from storage" in (
        bench.sink.violations[0].message
    )
    counted = {key[1:]: n for key, n in bench.sink.counts.items() if key[0] == "kv_tokens_read_total"}
    assert counted == {("device", "current"): 32, ("storage", "stale"): 64, ("host", "stale"): 16}
    bench.monitor.continued()
    told(reading({("storage", "stale"): 16}))
    assert bench.sink.violated() == {PROPERTY: 2}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("mixed", "mixed by choice: a batch read KV of older weights, and nobody asked for a flush since"),
        ("unknown", "a batch read KV of which it is unknown which weights computed it"),
    ],
)
def test_what_is_mixed_or_unknown_is_no_violation_and_one_line_an_epoch(
    caplog: pytest.LogCaptureFixture, kind: str, line: str
) -> None:
    bench = Bench(FOLLOWED)
    told = report(bench)
    with caplog.at_level(logging.WARNING, "quiesce"):
        for _ in range(3):
            told(reading({("device", kind): 32}))
        assert caplog.messages == [f"quiesce: {line}: request 1 of 1: 32 from device"]
        bench.monitor.weights_loaded()
        told(reading({("device", kind): 32}))
    assert len(caplog.messages) == 2
    assert bench.sink.violated() == {}
    assert bench.sink.counts["kv_tokens_read_total", "device", kind] == 128


def test_where_lineage_is_followed_a_refused_flush_alone_is_no_stale_kv() -> None:
    bench = Bench(FOLLOWED)
    update(bench, "unflushed")
    bench.monitor.forward()
    assert bench.sink.violated() == {"update-tells-truth": 1}  # what the answer means, whatever is read


@pytest.mark.parametrize("options", [MonitorOptions(), FOLLOWED])
def test_where_it_is_not_or_no_longer_the_refused_flush_is_one(options: MonitorOptions) -> None:
    bench = Bench(options)
    bench.monitor.lost("lineage", "IndexError: of a pool")
    update(bench, "unflushed")
    bench.monitor.forward()
    assert bench.sink.violated() == {PROPERTY: 1, "update-tells-truth": 1}


def test_in_enforce_a_stale_read_raises() -> None:
    bench = Bench(MonitorOptions(enforce=True, unasked=frozenset()))
    with pytest.raises(ProtocolViolationError, match=r"no-stale-kv does not hold.*1 of 1: 16 from host"):
        report(bench)(reading({("host", "stale"): 16}))
