"""The founding case on the real engine: a write-through in flight at the pause, then an update that must flush."""

from __future__ import annotations

import time

import pytest
from harness import PROMPT, REMEDY, Engine, Models, Stream, on

pytestmark = pytest.mark.engine

TOKENS = 200
PROPERTY = "paused-flush-succeeds"
LEDGER = "write_through"


def pause_with_a_write_in_flight(engine: Engine) -> Stream:
    """Prefilled, its write-through held, then retracted."""
    engine.rank.d2h.hold()
    stream = engine.generate(PROMPT, TOKENS)
    engine.rank.d2h.wait_in_flight()
    stream.wait_tokens(1)
    engine.pause("retract")
    return stream


@on(remedies="")
def test_without_the_remedy_no_flush_succeeds_before_continue(engine: Engine, models: Models) -> None:
    before = engine.metrics()
    stream = pause_with_a_write_in_flight(engine)
    reply = engine.update_from_disk(models.new)
    assert not reply.success
    assert "not flushed" in reply.message

    # Said while the copy is still held: no need to wait for it in order to know that this flush cannot succeed.
    engine.wait_metric(1, "quiesce_stuck", property=PROPERTY)
    engine.wait_metric(1, "quiesce_flush_blocked", ledger=LEDGER)
    assert engine.rank.d2h.in_flight > 0

    # On the first paused pass after the refusal, which came in the ingest of that pass.
    stuck, unflushed = (engine.findings(prop)[-1] for prop in (PROPERTY, "update-flushes"))
    assert 0 <= stuck.pass_number - unflushed.pass_number <= 1
    assert LEDGER in stuck.text
    assert "would have to run" in stuck.text

    engine.rank.d2h.release()
    engine.rank.wait_idle()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert not engine.flush().success
    engine.wait_passes(1000)
    after = engine.metrics()
    assert after.stuck
    # One for the flush that cannot succeed, however often it is asked for and however many passes see it; and one
    # for the update that was answered unflushed.
    assert after.violations_since(before) == {PROPERTY: 1, "update-flushes": 1}

    engine.continue_()
    stream.result()
    engine.settle()
    engine.wait_metric(0, "quiesce_stuck", property=PROPERTY)
    engine.wait_metric(0, "quiesce_flush_blocked", ledger=LEDGER)
    # Continuing was the only way out, and it served the new weights over the cache of the old.
    assert engine.metrics().violations_since(after) == {"no-stale-kv": 1, "update-tells-truth": 1}


@on(remedies=REMEDY)
def test_with_the_remedy_a_refused_update_succeeds_when_sent_again(engine: Engine, models: Models) -> None:
    before = engine.metrics()
    stream = pause_with_a_write_in_flight(engine)
    # The very first attempt is still refused while the copy is in flight: the remedy drains, it does not wait
    # (`update-flushes` stays refuted under it alone).
    assert not engine.update_from_disk(models.new).success
    engine.wait_metric(1, "quiesce_flush_blocked", ledger=LEDGER)

    engine.rank.d2h.release()
    engine.flush_until_done()
    assert engine.update_from_disk(models.new).success
    after = engine.metrics()
    assert after.violations_since(before) == {"update-flushes": 1}
    assert not after.stuck
    assert after.value("quiesce_remedy_active", remedy=REMEDY) == 1
    engine.wait_metric(0, "quiesce_flush_blocked", ledger=LEDGER)
    engine.wait_metric(1, "quiesce_paused", process="scheduler")

    engine.continue_()
    stream.result()


@on(remedies=REMEDY)
def test_with_the_remedy_the_ledgers_drain_while_paused(engine: Engine, models: Models) -> None:
    """No flush asked for before the copies have landed: then the first update succeeds."""
    before = engine.metrics()
    stream = pause_with_a_write_in_flight(engine)
    engine.wait_metric(1, "quiesce_paused", process="scheduler")
    engine.rank.d2h.release()
    for ledger in (LEDGER, "backup"):
        for stage in ("queued", "submitted", "ready"):
            engine.wait_metric(0, "quiesce_ledger_entries", ledger=ledger, stage=stage)
    # A gauge is written at most once a second: a backup may have begun after the last write.
    engine.rank.wait_idle()
    engine.wait_passes(100)
    assert engine.update_from_disk(models.new).success
    assert not engine.metrics().violations_since(before)
    engine.continue_()
    stream.result()
