"""What must come and does not, on the real engine: counted once it has taken longer than `QUIESCE_PATIENCE`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from harness import PROMPT, REMEDY, WAIT_SECONDS, Models, Spoilable, modules, prompt, wait_until

from engine_hooks.monitor_overdue import OVERDUE
from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

PATIENCE = 2
SHORT = prompt(64, seed=11)
READY, DRAIN, RETURN, ANSWERED, ENDS = OVERDUE


class Patient(Spoilable):
    """An engine with little patience, and defects of `test_planted` that a test switches on."""

    def overdue(self) -> dict[str, float]:
        violations = self.metrics().violations
        return {name: violations[name] for name in OVERDUE if violations[name]}

    def wait_overdue(self, before: dict[str, float], *properties: str) -> None:
        """Until these were counted once more, and no other of them."""
        expected = before | {name: before.get(name, 0) + 1 for name in properties}
        wait_until(lambda: self.overdue() == expected, f"{expected}")


@pytest.fixture(scope="module")
def started(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    folder = tmp_path_factory.mktemp("overdue")
    options = ServerOptions(
        models.old,
        folder,
        storage=True,
        arguments={
            "enable_metrics": True,
            "disable_overlap_schedule": True,
            "hicache_storage_prefetch_policy": "wait_complete",
        },
        environment={
            "QUIESCE_PATIENCE": str(PATIENCE),
            "QUIESCE_REMEDIES": REMEDY,  # so that a lookup in a pause ends, and another can begin
            **modules("defects", QUIESCE_TEST_DEFECTS=str(folder)),
        },
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        engine = Patient(server, models.old, folder)
        engine.ask(PROMPT)  # the first lookup of all may compile its hash, for longer than the patience
        yield engine


@pytest.fixture
def engine(started: Patient) -> Iterator[Patient]:
    yield started
    started.spoil()
    started.reset()


def test_what_takes_its_time_is_no_violation(engine: Patient) -> None:
    """Each kind of work for less than the patience, and an idle engine for longer."""
    before = engine.overdue()
    for held in (engine.rank.d2h, engine.rank.storage_query, engine.rank.storage_write):
        held.hold()
        stream = engine.generate(prompt(600, seed=23), 4)
        time.sleep(PATIENCE / 4)
        held.release()
        stream.result()
    assert not engine.flush(timeout=PATIENCE * 4).message.count("Timed out")
    engine.pause("retract")
    time.sleep(PATIENCE + 1.5)
    engine.continue_()
    assert engine.metrics().value("quiesce_checks_total", property=READY) > PATIENCE
    assert engine.overdue() == before


def test_done_work_that_running_passes_leave_alone(engine: Patient) -> None:
    """And its control: a copy that is not done is not ready, however long it takes."""
    before = engine.overdue()
    engine.rank.d2h.hold()
    engine.ask(PROMPT, 4)
    engine.wait_overdue(before, DRAIN)
    engine.spoil("running_reap_skipped")
    time.sleep(0.5)
    engine.rank.d2h.release()
    engine.rank.d2h.wait_idle()
    engine.wait_overdue(before, DRAIN, READY)
    finding = engine.findings(READY)[-1]
    assert "write_through" in finding.text
    assert "not picked up by running passes for" in finding.text
    engine.spoil()
    engine.settle()
    assert set(engine.overdue()) == {*before, DRAIN, READY}


def test_a_request_that_nothing_moves(engine: Patient) -> None:
    before = engine.overdue()
    engine.rank.storage_query.hold()
    stream = engine.generate(prompt(600, seed=29), 4)
    engine.wait_overdue(before, RETURN, DRAIN)
    assert "0 running and 1 waiting requests, and no batch is launched" in engine.findings(RETURN)[-1].text
    engine.rank.storage_query.release()
    stream.result()


def test_a_flush_with_a_timeout_that_is_forgotten(engine: Patient) -> None:
    before = engine.overdue()
    engine.spoil("pending_flush_forgotten")
    stream = engine.generate(SHORT, 1000)
    stream.wait_tokens(1)
    with ThreadPoolExecutor(1) as client:
        flush = client.submit(engine.flush, 1)
        engine.wait_overdue(before, ANSWERED)
        assert not flush.done()
        engine.spoil()
        flush.result(WAIT_SECONDS)  # answered, one way or the other
    engine.rank.wait_idle()


def test_lookups_that_never_end(engine: Patient) -> None:
    before = engine.overdue()
    stream = engine.generate(SHORT, 800)
    stream.wait_tokens(300)
    engine.rank.wait_idle()
    engine.pause("retract")
    time.sleep(PATIENCE + 1)
    assert ENDS not in engine.overdue().keys() - before.keys()
    engine.spoil("requeue_looks_up")
    wait_until(lambda: engine.overdue().get(ENDS, 0) == before.get(ENDS, 0) + 1, "it is reported", 20)
    assert "into the pause" in engine.findings(ENDS)[-1].text
