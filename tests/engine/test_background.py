"""What the storage threads do while the engine is paused: finish what is in flight, promptly, and begin nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from harness import PROMPT, REMEDY, Engine, on, prompt

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.control import Switch

pytestmark = pytest.mark.engine

PASSES = 3000
SHORT = prompt(64, seed=53)
LOOKUPS = "no-new-lookup-while-paused"


@on(storage="file", remedies=REMEDY)
def test_with_the_remedy_no_lookup_starts_while_paused(engine: Engine) -> None:
    before = engine.metrics()
    running = engine.generate(SHORT, 800)
    running.wait_tokens(300)
    query = engine.rank.storage_query
    first = query.submitted
    engine.pause("retract")
    # The retraction's own lookup finds nothing, and a miss is what the engine would try again, up to eight times.
    query.wait(lambda switch: switch.submitted == first + 1)
    query.wait_idle()
    engine.wait_passes(PASSES, LOOKUPS)
    assert query.submitted == first + 1
    assert not engine.metrics().violations_since(before)

    engine.continue_()
    running.result()
    # The measure can fail: the same counter moves with a lookup of the running engine.
    engine.ask(PROMPT)
    assert query.submitted > first + 1


@on(storage="file", remedies=REMEDY)
def test_with_the_remedy_the_paused_loop_leaves_the_storage_threads_their_time(engine: Engine) -> None:
    """A write of 37 pages, held until the engine is in the state, then timed from its release to its end."""
    write = engine.rank.storage_write
    load = engine.generate(SHORT, 2000)
    load.wait_tokens(1)
    engine.rank.wait_idle()

    write.hold()
    engine.ask(prompt(600, seed=59), 4)
    write.wait_in_flight()
    decoding = seconds_to_finish(write)
    assert load.running

    write.hold()
    engine.ask(prompt(600, seed=61), 4)
    write.wait_in_flight()
    engine.pause("retract")
    engine.wait_metric(1, "quiesce_paused", process="scheduler")
    paused = seconds_to_finish(write)
    engine.wait_metric(0, "quiesce_ledger_entries", ledger="backup", stage="submitted")
    assert engine.flush_until_done() >= 0
    # Both loops hold the interpreter's lock nearly all the time; starved threads would not get through at all.
    assert paused < 10 * decoding + 1


def seconds_to_finish(switch: Switch) -> float:
    began = time.monotonic()
    switch.release()
    switch.wait_idle()
    return time.monotonic() - began
