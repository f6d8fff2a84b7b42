"""Pauses, updates, flushes and resumes without end, under load and with slow and failing transfers: nothing is lost.

A hundred cycles; QUIESCE_SOAK_CYCLES says another number (`make soak`: 2,000).
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from harness import Engine, Models, Stream, prompt

from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.sglang.testbed.warm import Warm

CYCLES = int(os.environ.get("QUIESCE_SOAK_CYCLES", "100"))
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200 + 30 * CYCLES)]

REMEDIES = (
    "deferred-flush-ignores-waiting,epoch-in-storage-key,flush-waits,pause-stops-clocks,"
    "reap-while-paused,retract-keeps-admitted,stamp-version-on-success"
)
STREAMS = 5
GROWTH_BYTES = 96 * 2**20
"""What a scheduler's memory may have grown by at the end: an engine's own pools fill in the first cycles."""


@pytest.fixture
def engine(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    options = ServerOptions(
        models.old,
        tmp_path_factory.mktemp("soak"),
        storage=True,
        arguments={"enable_metrics": True, "hicache_storage_prefetch_policy": "wait_complete"},
        environment={"QUIESCE_REMEDIES": REMEDIES},
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        yield Engine(server, models.old)


class Soak:
    """One run: the same dice give the same requests, modes and faults."""

    def __init__(self, engine: Engine, model: Models, seed: int) -> None:
        self._engine, self._model = engine, model.old
        self._dice = random.Random(seed)  # noqa: S311 - a reproducible run, no secret
        families = [prompt(700, seed=of) for of in (31, 37, 41)]
        self._requests = [
            (family[:length], tokens) for family in families for length, tokens in ((40, 40), (330, 20), (620, 10))
        ]
        self._clean = [engine.ask(*request).output_ids for request in self._requests]
        self._running: list[tuple[int, Stream]] = []
        self.compared = 0

    def cycle(self) -> None:
        """One pause, with whatever is in flight, and what a trainer does in it."""
        while len(self._running) < STREAMS:
            place = self._dice.randrange(len(self._requests))
            self._running.append((place, self._engine.generate(*self._requests[place])))
        self._running[-1][1].wait_tokens(1)
        hold = self._disturb()
        mode = self._dice.choice(("retract", "retract", "in_place"))
        self._engine.pause(mode)
        if hold:
            time.sleep(self._dice.uniform(0, 0.05))
            self._engine.rank.d2h.release()
        if mode == "retract":
            if self._dice.random() < 0.5:
                assert self._engine.update_from_disk(self._model).success
            else:
                assert self._engine.flush(timeout=60).success
        self._engine.continue_()
        self._running[0][1].result()  # so that each cycle ends one at least
        self._compare([one for one in self._running if not one[1].running])

    def end(self) -> None:
        """All requests to their end."""
        self._engine.rank.restore()
        self._compare(list(self._running))
        self._engine.settle()

    def _disturb(self) -> bool:
        """Slow and failing transfers and storage from now on; whether copies are held."""
        rank, dice = self._engine.rank, self._dice
        for switch in (rank.d2h, rank.storage_query, rank.storage_read, rank.storage_write):
            switch.delay(dice.choice((0, 0, 0.01, 0.05)))
        for switch in (rank.storage_read, rank.storage_write):
            if dice.random() < 0.3:
                switch.fail_next(1)
        held = dice.random() < 0.3
        if held:
            rank.d2h.hold()
        return held

    def _compare(self, ended: list[tuple[int, Stream]]) -> None:
        for place, stream in ended:
            assert stream.result() == self._clean[place]
            self.compared += 1
        self._running = [one for one in self._running if one not in ended]


def memory(engine: Engine) -> int:
    """Resident bytes of all processes of the engine."""
    return sum(process.memory_info().rss for process in engine.server.processes())


def test_cycles(engine: Engine, models: Models, capsys: pytest.CaptureFixture[str]) -> None:
    soak = Soak(engine, models, seed=11)
    before = engine.metrics()
    early = 0
    for number in range(CYCLES):
        soak.cycle()
        if number == CYCLES // 4:
            early = memory(engine)
    soak.end()
    grown = memory(engine) - early
    with capsys.disabled():
        print(f"\n{CYCLES} cycles, {soak.compared} outputs alike, {grown / 2**20:.0f} MiB more after the first quarter")  # noqa: T201 - the figures are what it is for
    assert not engine.metrics().violations_since(before)
    assert soak.compared >= CYCLES
    assert grown < GROWTH_BYTES
    assert set(engine.metrics().by("quiesce_hook_applied", "hook").values()) == {1}
