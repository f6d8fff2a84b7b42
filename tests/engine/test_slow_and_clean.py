"""With the remedy, what is merely slow is no violation, and an ordinary run counts none of any property."""

from __future__ import annotations

import random
import time

import pytest
from harness import PROMPT, REMEDY, Engine, Models, Stream, on, prompt

pytestmark = pytest.mark.engine

SLOW_SECONDS = 1.5
ROUNDS = 6
PASSES_A_PAUSE = 30
REQUESTS_A_ROUND = 24
PROPERTY = "paused-flush-succeeds"


@on(remedies=REMEDY)
def test_with_the_remedy_a_slow_transfer_is_no_violation(engine: Engine, models: Models) -> None:
    before = engine.metrics()
    engine.rank.d2h.hold()
    stream = engine.generate(PROMPT, 200)
    engine.rank.d2h.wait_in_flight()
    engine.pause("retract")
    assert not engine.flush().success
    engine.wait_metric(1, "quiesce_flush_blocked", ledger="write_through")

    for switch in (engine.rank.d2h, engine.rank.storage_query, engine.rank.storage_write):
        switch.delay(SLOW_SECONDS)
    began = time.monotonic()
    engine.rank.d2h.release()
    # The flush stays wanted all that time, and the monitor looks at every pass of it.
    engine.wait_passes(100)
    assert not engine.metrics().stuck
    engine.flush_until_done()
    assert time.monotonic() - began > SLOW_SECONDS
    assert engine.update_from_disk(models.new).success
    assert not engine.metrics().violations_since(before)
    engine.continue_()
    stream.result()


@on(remedies=REMEDY)
def test_a_clean_run_counts_no_violation(engine: Engine, models: Models) -> None:
    """Pauses and updates as a correct trainer makes them, among requests that share prefixes."""
    before = engine.metrics()
    dice = random.Random(5)  # noqa: S311 - a reproducible run, no secret
    streams: list[Stream] = []
    for round_ in range(ROUNDS):
        streams += [engine.generate(*a_request(dice)) for _ in range(REQUESTS_A_ROUND)]
        for stream in streams[-REQUESTS_A_ROUND:]:
            stream.wait_tokens(1)  # past the tokenizer: a request that arrives in the pause would hold back its update
        engine.pause("retract" if round_ % 3 else "in_place")
        if round_ % 3:
            engine.wait_passes(PASSES_A_PAUSE)
            engine.flush_until_done()
            assert engine.update_from_disk(models.new if round_ % 2 else models.old).success
        engine.continue_()
    for stream in streams:
        stream.result()
    after = engine.metrics()
    assert not after.violations_since(before)
    # Looked at, and not only because nothing was watched.
    for watched in (PROPERTY, "no-new-lookup-while-paused"):
        checks = (m.value("quiesce_checks_total", property=watched) for m in (after, before))
        assert next(checks) - next(checks) > 100
    granted = (m.value("quiesce_flushes_total", kind="update", result="granted") for m in (after, before))
    assert next(granted) - next(granted) >= ROUNDS - ROUNDS // 3


def a_request(dice: random.Random) -> tuple[list[int], int]:
    """A prompt of one of a few families, cut somewhere, and a number of tokens."""
    family = prompt(700, seed=dice.choice([31, 37, 41, 43]))
    return family[: dice.randrange(20, 700)], dice.randrange(4, 60)
