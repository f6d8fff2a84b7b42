"""The lineage of KV pages on the real engine: what each tier brings in of older weights, and nothing on a clean run.

The ground truth is the logits of a fresh engine with the new weights: they differ where stale KV is reported, and are
the same where none is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import (
    ASKED_TOKENS,
    ASKING_SCORES,
    PROMPT,
    REMEDY,
    Engine,
    Fresh,
    Metrics,
    Models,
    Scores,
    Stream,
    prompt,
    wait_until,
)

from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

PROPERTY = "no-stale-kv"
SERIES = "quiesce_kv_tokens_read_total"
PAGE = 16
POOL = 4096
OTHER_SCORE = 0.1
"""Nats. Logits from the same weights differ by less than a thousandth."""
# The last token of a prompt is computed always, and with it the rest of its page.
CACHED = (len(PROMPT) - 1) // PAGE * PAGE


class Followed(Engine):
    """An engine, and what its lineage said since the test began."""

    before: Metrics

    def begin(self) -> None:
        self.before = self.metrics()

    def read(self) -> dict[tuple[str, str], float]:
        """(Tier, lineage) to tokens."""
        now = self.metrics()
        places = [(tier, kind) for tier in now.by(SERIES, "tier") for kind in now.by(SERIES, "lineage")]
        counts = {
            place: now.value(SERIES, tier=place[0], lineage=place[1])
            - self.before.value(SERIES, tier=place[0], lineage=place[1])
            for place in places
        }
        return {place: count for place, count in counts.items() if count}

    def wait_read(self, expected: dict[tuple[str, str], float]) -> None:
        """Until just this was read: it is judged one pass late."""
        try:
            wait_until(lambda: self.read() == expected, f"{expected} are read", 10)
        except TimeoutError:
            assert self.read() == expected

    def ask_scores(self) -> Scores:
        return Scores.of(self.ask(PROMPT, ASKED_TOKENS, **ASKING_SCORES).meta)

    def violations(self) -> float:
        return self.metrics().violations[PROPERTY] - self.before.violations[PROPERTY]

    def drain(self) -> None:
        """Until what was computed is on the host and in the storage, and nothing is dropped."""
        self.rank.wait_idle()
        for name in ("write_through", "backup"):
            self.wait_metric(0, "quiesce_ledger_entries", ledger=name)

    def refuse_the_flush_of(self, models: Models) -> None:
        """An update whose flush is refused, since a copy of another prompt is in flight."""
        self.rank.d2h.hold()
        self.ask(prompt(100, seed=9), 1)
        self.rank.d2h.wait_in_flight()
        assert not self.update_from_disk(models.new).success
        self.rank.d2h.release()
        self.rank.wait_idle()


def served(folder: Path, models: Models, warm: Warm, **environment: str) -> ServerOptions:
    return ServerOptions(
        models.old,
        folder,
        storage=True,
        arguments={
            "enable_metrics": True,
            "max_total_tokens": POOL,
            "page_size": PAGE,
            "hicache_storage_prefetch_policy": "wait_complete",
            "disable_overlap_schedule": environment.pop("loop", "normal") == "normal",
        },
        environment={"QUIESCE": "observe", "QUIESCE_REMEDIES": REMEDY} | environment,
        start_seconds=480,
        warm=warm,
    )


@pytest.fixture(scope="module")
def shared(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory, fresh: Fresh) -> Iterator[Followed]:
    assert len(fresh.answer) == ASKED_TOKENS  # its engine is gone before this one starts
    options = served(tmp_path_factory.mktemp("lineage"), models, warm, QUIESCE_LINEAGE="200")
    with Server(options) as server:
        yield Followed(server, models.old)


@pytest.fixture
def engine(shared: Followed) -> Iterator[Followed]:
    shared.begin()
    yield shared
    shared.reset()


def from_tiers(stream: Stream) -> dict[str, int]:
    """What the engine itself says of where a request's prefix came from."""
    details = stream.meta["cached_tokens_details"]
    return {tier: details[tier] for tier in ("device", "host", "storage") if details.get(tier)}


def test_a_clean_run_is_clean_in_every_tier(engine: Followed, models: Models, fresh: Fresh) -> None:
    assert engine.metrics().value("quiesce_hook_applied", hook="lineage") == 1
    old = engine.ask(PROMPT, ASKED_TOKENS)
    assert engine.ask(PROMPT, ASKED_TOKENS).output_ids == old.output_ids
    engine.wait_read({("device", "current"): CACHED})
    engine.drain()
    engine.settle()
    assert from_tiers(engine.ask(PROMPT, 1)) == {"storage": CACHED}
    engine.drain()
    for seed in range(20, 28):
        engine.ask(prompt(600, seed), 1)
    assert from_tiers(engine.ask(PROMPT, 1)) == {"host": CACHED}
    assert from_tiers(engine.ask(prompt(600, seed=20), 1)) == {"host": CACHED}
    # PROMPT is on the host only since the storage was read.
    clean = {("device", "current"): CACHED, ("storage", "current"): 2 * CACHED, ("host", "current"): CACHED}
    engine.wait_read(clean)

    engine.pause("retract")
    engine.drain()
    engine.clear_storage()
    assert engine.update_from_disk(models.new).success
    engine.continue_()
    assert engine.ask_scores().equals(fresh.scores)
    assert engine.ask_scores().equals(fresh.scores)
    engine.wait_read(clean | {("device", "current"): 2 * CACHED})
    assert engine.violations() == 0
    assert engine.metrics().value("quiesce_hook_applied", hook="lineage") == 1


def test_kv_on_the_device_after_a_refused_flush_is_stale(engine: Followed, models: Models, fresh: Fresh) -> None:
    """B02; and so is what new weights compute over it."""
    engine.ask(PROMPT, 1)
    engine.refuse_the_flush_of(models)
    engine.ask(prompt(200, seed=31), 1)  # reads nothing that is old
    assert engine.read() == {}
    assert engine.violations() == 0

    stale = engine.ask(PROMPT, ASKED_TOKENS, **ASKING_SCORES)
    assert Scores.of(stale.meta).apart(fresh.scores) > OTHER_SCORE
    assert from_tiers(stale) == {"device": CACHED}
    engine.wait_read({("device", "stale"): CACHED})
    assert engine.violations() == 1
    assert (
        f"a batch read KV of older weights: request 1 of 1: {CACHED} from device" in engine.findings(PROPERTY)[-1].text
    )

    longer = PROMPT + stale.output_ids
    again = engine.ask(longer + prompt(20, seed=5), 1)
    assert from_tiers(again) == {"device": (len(longer) - 1) // PAGE * PAGE}
    engine.wait_read({("device", "stale"): CACHED + (len(longer) - 1) // PAGE * PAGE})
    assert engine.violations() == 1  # one episode

    engine.flush_until_done()
    engine.clear_storage()
    engine.begin()
    assert engine.ask_scores().equals(fresh.scores)
    assert engine.ask_scores().equals(fresh.scores)
    engine.wait_read({("device", "current"): CACHED})
    assert engine.violations() == 0


def read_stale_storage(engine: Followed, models: Models, fresh: Fresh) -> None:
    """B04: a granted flush, and after it the old weights' KV comes back from storage."""
    engine.ask(PROMPT, 1)
    engine.drain()
    engine.pause("retract")
    assert engine.update_from_disk(models.new).success
    engine.continue_()
    stale = engine.ask(PROMPT, ASKED_TOKENS, **ASKING_SCORES)
    assert Scores.of(stale.meta).apart(fresh.scores) > OTHER_SCORE
    assert from_tiers(stale) == {"storage": CACHED}


def test_kv_in_the_storage_after_a_granted_flush_is_stale(engine: Followed, models: Models, fresh: Fresh) -> None:
    read_stale_storage(engine, models, fresh)
    engine.wait_read({("storage", "stale"): CACHED})
    assert engine.violations() == 1
    assert f"request 1 of 1: {CACHED} from storage" in engine.findings(PROPERTY)[-1].text


def test_kv_on_the_host_after_a_refused_flush_is_stale(engine: Followed, models: Models, fresh: Fresh) -> None:
    engine.ask(PROMPT, 1)
    for seed in range(20, 28):
        engine.ask(prompt(600, seed), 1)
    engine.drain()
    engine.refuse_the_flush_of(models)
    stale = engine.ask(PROMPT, ASKED_TOKENS, **ASKING_SCORES)
    assert Scores.of(stale.meta).apart(fresh.scores) > OTHER_SCORE
    assert from_tiers(stale) == {"host": CACHED}
    engine.wait_read({("host", "stale"): CACHED})
    assert engine.violations() == 1
    assert f"request 1 of 1: {CACHED} from host" in engine.findings(PROPERTY)[-1].text


def test_an_update_in_place_without_a_flush_is_mixed_by_choice(engine: Followed, models: Models) -> None:
    stream = engine.generate(PROMPT, 200)
    stream.wait_tokens(5)
    engine.pause("in_place")
    assert engine.update_from_disk(models.new, flush_cache=False).success
    engine.continue_()
    stream.result()
    mixed = engine.read()
    assert list(mixed) == [("device", "mixed")]
    assert len(PROMPT) < mixed["device", "mixed"] < len(PROMPT) + 200
    assert engine.violations() == 0
    assert "mixed by choice: a batch read KV of older weights, and nobody asked for a flush since" in engine.log()

    # Who asks for a flush and does not get it, chose nothing.
    engine.rank.d2h.hold()
    engine.ask(prompt(100, seed=9), 1)
    assert not engine.flush().success
    engine.rank.d2h.release()
    stale = engine.ask(PROMPT, 1)
    assert from_tiers(stale) == {"device": CACHED}
    engine.wait_read(mixed | {("device", "stale"): CACHED})
    assert engine.violations() == 1


def test_what_the_table_forgot_is_unknown_and_no_violation(engine: Followed, models: Models) -> None:
    """200 keys are remembered; nine other prompts have more."""
    engine.ask(PROMPT, 1)
    engine.drain()
    for seed in range(40, 49):
        engine.ask(prompt(600, seed), 1)
        engine.drain()
    engine.pause("retract")
    assert engine.update_from_disk(models.new).success
    engine.continue_()
    assert from_tiers(engine.ask(PROMPT, 1)) == {"storage": CACHED}
    engine.wait_read({("storage", "unknown"): CACHED})
    assert engine.violations() == 0
    assert f"it is unknown which weights computed it: request 1 of 1: {CACHED} from storage" in engine.log()


@pytest.fixture(scope="module")
def left_behind(shared: Followed) -> Path:
    """The storage of an engine, with what it wrote of PROMPT."""
    shared.ask(PROMPT, 1)
    shared.drain()
    return shared.server.storage


def test_a_storage_that_an_earlier_process_wrote_is_unknown(
    left_behind: Path, models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On the overlap loop; and there too a refused flush leaves stale KV."""
    folder = tmp_path_factory.mktemp("later")
    variables = {"QUIESCE_LINEAGE": "on", launch.STORAGE_VARIABLE: str(left_behind), "loop": "overlap"}
    with Server(served(folder, models, warm, **variables)) as server:
        engine = Followed(server, models.old)
        engine.begin()
        assert from_tiers(engine.ask(PROMPT, 1)) == {"storage": CACHED}
        engine.wait_read({("storage", "unknown"): CACHED})
        stream = engine.generate(prompt(50, seed=33), 400)
        stream.wait_tokens(3)
        engine.pause("in_place")
        assert not engine.update_from_disk(models.new).success
        engine.continue_()
        stream.result()
        read = engine.read()
        assert set(read) == {("storage", "unknown"), ("device", "stale")}
        assert 50 < read["device", "stale"] < 450
        assert engine.violations() == 1
        assert engine.metrics().value("quiesce_hook_applied", hook="lineage") == 1


def test_without_the_lineage_stale_kv_in_the_storage_is_not_seen(
    models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory, fresh: Fresh
) -> None:
    with Server(served(tmp_path_factory.mktemp("unfollowed"), models, warm)) as server:
        engine = Followed(server, models.old)
        engine.begin()
        read_stale_storage(engine, models, fresh)
        engine.ask(prompt(30, seed=2), 1)
        assert engine.read() == {}
        assert engine.violations() == 0
        assert engine.metrics().get("quiesce_hook_applied", hook="lineage") is None
