"""The census of the live pools of one real engine: clean while the protocol runs, and each planted defect reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import WAIT_SECONDS, Engine, Models, modules, prompt, wait_until

from engine_hooks.sglang.testbed.control import SPIN_VARIABLE
from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

PROPERTY = "pages-conserved"
TOKENS = 4096
PAGE = 16
PAGES = TOKENS // PAGE


class Planted(Engine):
    """An engine whose pools a test can spoil."""

    def __init__(self, server: Server, model: Path, folder: Path) -> None:
        super().__init__(server, model)
        self._folder = folder

    def plant(self, name: str) -> list[int]:
        """Have it carried out; the pages that it is about."""
        done = self._folder / "planted"
        (self._folder / "new").write_text(name)
        (self._folder / "new").replace(self._folder / "plant")
        wait_until(done.exists, f"{name} is planted")
        pages: list[int] = json.loads(done.read_text())
        done.unlink()
        return pages

    def pages(self) -> dict[str, float]:
        """Pages by state, as last shown."""
        return self.metrics().by("quiesce_kv_pages", "state")

    def violations(self) -> float:
        return self.metrics().violations[PROPERTY]

    def censuses(self) -> float:
        return self.metrics().value("quiesce_checks_total", property=PROPERTY)

    def wait_censuses(self, count: int = 1) -> None:
        first = self.censuses()
        wait_until(lambda: self.censuses() >= first + count, f"{count} censuses", 2 * WAIT_SECONDS)

    def wait_violation(self, count: float) -> str:
        """Until so many are counted in all; what the log says of the last one, which follows the count."""
        wait_until(lambda: self.violations() >= count, f"{count:g} violations", 2 * WAIT_SECONDS)
        wait_until(lambda: len(self.findings(PROPERTY)) >= count, "the line in the log")
        assert self.violations() == count
        return self.findings(PROPERTY)[-1].text


@pytest.fixture(scope="module")
def engine(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("census")
    plants = folder / "plants"
    plants.mkdir()
    # Without file storage: an update's flush can end an engine whose storage is in a call (`engine-survives`).
    options = ServerOptions(
        models.old,
        folder,
        arguments={"enable_metrics": True, "max_total_tokens": TOKENS, "page_size": PAGE},
        environment={
            SPIN_VARIABLE: "1",  # a budget is of the time of passes
            "QUIESCE_CENSUS": "3",
            **modules("planting", QUIESCE_TEST_PLANT=str(plants)),
            # The engine's own check of an idle pool would end it at the first plant.
            "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "0",
        },
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        yield Planted(server, models.old, plants)


def test_the_protocol_on_a_busy_engine_has_no_violation(engine: Planted, models: Models) -> None:
    engine.wait_metric(1, "quiesce_hook_applied", hook="census")
    engine.wait_metric(PAGES, "quiesce_kv_pages", state="free")
    base = prompt(300)
    streams = [engine.generate(base + prompt(40 + seed, seed), 150) for seed in range(3, 7)]
    for stream in streams:
        stream.wait_tokens(20)
    engine.wait_censuses(3)  # while they run
    for model in (models.new, models.old):
        engine.pause("in_place")
        engine.flush()  # refused; counted before it
        engine.continue_()
        engine.pause("retract")
        engine.rank.wait_idle()
        engine.update_from_disk(model)
        engine.continue_()
    for stream in streams:
        stream.result()
    engine.settle()
    engine.wait_metric(PAGES, "quiesce_kv_pages", state="free")  # after the flush
    engine.ask(base, 20)
    # 300 tokens and 19 of the 20: the last one's KV is never computed. The tail of a page is not kept.
    engine.wait_metric(19, "quiesce_kv_pages", state="cached")
    assert engine.pages() == {"free": PAGES - 19, "cached": 19, "owned": 0, "unaccounted": 0}
    engine.wait_censuses()  # at idle, with what it cached
    assert engine.violations() == 0
    assert engine.findings(PROPERTY) == []
    assert engine.metrics().value("quiesce_hook_applied", hook="census") == 1


def test_a_leaked_page_is_reported_at_idle(engine: Planted) -> None:
    engine.settle()
    before = engine.violations()
    (page,) = engine.plant("leak")
    engine.wait_metric(1, "quiesce_kv_pages", state="unaccounted")
    assert (
        f"a census at idle found {PAGES} pages: {PAGES - 1} free, 0 cached, 0 owned, 1 unaccounted; "
        f"1 held by nobody: leaked ({page})" in engine.wait_violation(before + 1)
    )
    engine.wait_censuses()
    assert engine.violations() == before + 1  # one episode
    engine.plant("undo")
    engine.wait_metric(0, "quiesce_kv_pages", state="unaccounted")


def test_a_page_freed_twice_is_reported_and_a_flush_repairs_it(engine: Planted) -> None:
    engine.settle()
    before = engine.violations()
    (page,) = engine.plant("free_twice")
    found = engine.wait_violation(before + 1)
    assert f"{PAGES} free, 0 cached, 0 owned, 0 unaccounted; 1 twice in the free list ({page})" in found
    assert engine.flush().success
    engine.wait_censuses()
    (other,) = engine.plant("leak")  # a new episode: the flush ended the first
    assert f"1 held by nobody: leaked ({other})" in engine.wait_violation(before + 2)
    engine.plant("undo")
    engine.wait_metric(0, "quiesce_kv_pages", state="unaccounted")


def test_a_page_that_two_requests_own_is_reported_before_a_flush(engine: Planted) -> None:
    engine.settle()
    before = engine.violations()
    streams = [engine.generate(prompt(100, seed), 200) for seed in (11, 13)]
    for stream in streams:
        stream.wait_tokens(2)
    engine.pause("in_place")
    shared, lost = engine.plant("own_twice")
    assert not engine.flush().success
    found = engine.wait_violation(before + 1)
    assert "a census before a flush found" in found
    assert f"1 held by nobody: leaked ({lost})" in found
    assert f"1 owned by two rows, or twice by one ({shared})" in found
    engine.plant("undo")
    engine.continue_()
    for stream in streams:
        stream.result()
    engine.settle()
    engine.wait_metric(PAGES, "quiesce_kv_pages", state="free")
    assert engine.violations() == before + 1
