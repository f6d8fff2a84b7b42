"""A storage lookup that the retraction itself starts: 256 tokens and more that neither device nor host hold."""

from __future__ import annotations

import pytest
from harness import REMEDY, Engine, Models, Stream, on, prompt

pytestmark = pytest.mark.engine

PROPERTY = "paused-flush-succeeds"
LEDGER = "prefetch"
SHORT = prompt(64, seed=11)
"""Too short for a lookup when it arrives."""
ENOUGH = 300
"""The storage is asked for whole pages of 16 tokens, 256 tokens or more."""
LONG_ANSWER = 800
"""So many that the request still runs when the pause arrives, also where the client is slow."""


def pause_a_long_answer(engine: Engine) -> Stream:
    """Retracted with so many tokens of its own that its way back into the queue starts a lookup."""
    stream = engine.generate(SHORT, LONG_ANSWER)
    stream.wait_tokens(ENOUGH)
    engine.rank.wait_idle()
    assert stream.running
    engine.pause("retract")
    return stream


@on(storage="file", remedies="")
def test_without_the_remedy_the_lookup_blocks_every_flush(engine: Engine, models: Models) -> None:
    before = engine.metrics()
    lookups = engine.rank.storage_query.submitted
    engine.rank.storage_query.hold()
    stream = pause_a_long_answer(engine)
    engine.rank.storage_query.wait_in_flight()
    assert engine.rank.storage_query.submitted == lookups + 1
    assert not engine.update_from_disk(models.new).success

    engine.wait_metric(1, "quiesce_stuck", property=PROPERTY)
    engine.wait_metric(1, "quiesce_flush_blocked", ledger=LEDGER)
    assert engine.metrics().value("quiesce_flush_blocked", ledger="write_through") == 0
    assert engine.rank.storage_query.in_flight == 1

    engine.rank.storage_query.release()
    engine.rank.wait_idle()
    engine.wait_passes(1000)
    assert not engine.flush().success
    assert engine.metrics().violations_since(before) == {PROPERTY: 1, "update-flushes": 1}

    engine.continue_()
    stream.result()
    engine.settle()


@on(storage="file", remedies=REMEDY)
def test_with_the_remedy_a_lookup_that_misses_is_retired_while_paused(engine: Engine, models: Models) -> None:
    before = engine.metrics()
    engine.rank.storage_query.hold()
    stream = pause_a_long_answer(engine)
    engine.rank.storage_query.wait_in_flight()
    assert not engine.update_from_disk(models.new).success
    engine.wait_metric(1, "quiesce_flush_blocked", ledger=LEDGER)

    engine.rank.storage_query.release()
    engine.flush_until_done()
    assert engine.update_from_disk(models.new).success
    assert engine.metrics().violations_since(before) == {"update-flushes": 1}
    engine.continue_()
    stream.result()


@on(storage="file", remedies=REMEDY)
def test_with_the_remedy_a_lookup_that_hits_is_read_and_retired_while_paused(engine: Engine, models: Models) -> None:
    before = engine.metrics()
    engine.ask(SHORT, ENOUGH + 32)  # its pages are in the storage now
    engine.settle()
    reads = engine.rank.storage_read.submitted
    engine.rank.storage_read.hold()
    stream = pause_a_long_answer(engine)
    # Only a reap turns a hit into a read.
    engine.rank.storage_read.wait_in_flight()
    assert not engine.update_from_disk(models.new).success
    engine.wait_metric(1, "quiesce_flush_blocked", ledger=LEDGER)

    engine.rank.storage_read.release()
    engine.flush_until_done()
    assert engine.rank.storage_read.submitted > reads
    assert engine.update_from_disk(models.new).success
    assert engine.metrics().violations_since(before) == {"update-flushes": 1}
    engine.continue_()
    stream.result()


@on(storage="file", remedies="")
def test_without_the_remedy_a_hit_is_never_read_while_paused(engine: Engine) -> None:
    engine.ask(SHORT, ENOUGH + 32)
    engine.settle()
    reads = engine.rank.storage_read.submitted
    stream = pause_a_long_answer(engine)
    engine.rank.storage_query.wait_idle()
    engine.wait_passes(1000)
    assert engine.rank.storage_read.submitted == reads
    engine.continue_()
    stream.result()
    assert engine.rank.storage_read.submitted > reads
