"""Each remedy on the real engine: the same story on an engine without it, which fails, and on one with all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import requests
from harness import ASKED_TOKENS, PROMPT, WAIT_SECONDS, Engine, Models, Setup, Stream, prompt, wait_until

from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

SHORT = prompt(64, seed=11)
"""Too short for a lookup when it is queued."""
TOGETHER = (
    "deferred-flush-ignores-waiting",
    "epoch-in-storage-key",
    "flush-waits",
    "pause-stops-clocks",
    "reap-while-paused",
    "retract-keeps-admitted",
    "stamp-version-on-success",
)
BARE, REPAIRED = "bare", "repaired"
both = pytest.mark.parametrize("kind", [BARE, REPAIRED], scope="module")


@pytest.fixture(scope="module")
def started(
    kind: str, models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory, fresh_answer: list[int]
) -> Iterator[Engine]:
    """Overlap loop, file storage, a queue of one request; with all remedies at once, or with none."""
    assert len(fresh_answer) == ASKED_TOKENS
    setup = Setup("overlap", "file", ",".join(TOGETHER) if kind == REPAIRED else "")
    options = ServerOptions(
        models.old,
        tmp_path_factory.mktemp(kind),
        storage=True,
        arguments=setup.arguments | {"max_queued_requests": 1},
        environment=setup.environment,
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        yield Engine(server, models.old)


@pytest.fixture
def engine(started: Engine) -> Iterator[Engine]:
    yield started
    started.reset()


def from_storage(stream: Stream) -> int:
    """How many of its prompt's tokens a request has read from storage."""
    details = stream.meta.get("cached_tokens_details") or {}
    return int(details.get("storage", 0))


@both
def test_all_are_active_together_or_none(kind: str, engine: Engine) -> None:
    active = engine.metrics().by("quiesce_remedy_active", "remedy")
    assert {name for name, on in active.items() if on} == (set(TOGETHER) if kind == REPAIRED else set())
    assert set(active) == {*TOGETHER, "grammar-while-paused", "pp-honours-pause", "pd-drains-while-paused"}


@both
def test_a_deferred_flush_while_requests_wait(kind: str, engine: Engine) -> None:
    before = engine.metrics()
    stream = engine.generate(SHORT, 200)
    stream.wait_tokens(4)
    engine.rank.wait_idle()
    engine.pause("retract")
    reply = engine.flush(timeout=3)
    assert reply.success == (kind == REPAIRED)
    assert engine.flush().success  # an immediate one is granted in the same state
    assert engine.metrics().violations_since(before) == ({} if kind == REPAIRED else {"deferred-flush-agrees": 1})
    engine.continue_()
    stream.result()


@both
def test_an_update_right_after_a_request(kind: str, engine: Engine, models: Models, fresh_answer: list[int]) -> None:
    """Nothing runs and nothing is paused; only the copy of what has just ended is in flight (B02)."""
    before = engine.metrics()
    engine.rank.d2h.hold()
    engine.ask(PROMPT)
    engine.rank.d2h.wait_in_flight()
    with ThreadPoolExecutor(1) as client:
        update = client.submit(engine.update_from_disk, models.new)
        if kind == BARE:
            assert not update.result(WAIT_SECONDS).success
        else:
            # It is held where it came in: neither answered nor begun, while the passes go round.
            engine.wait_passes(5, "deferred-flush-agrees")
            begun, ended = (m.value("quiesce_updates_total", kind="disk") for m in (before, engine.metrics()))
            assert (begun, update.done()) == (ended, False)
        engine.rank.d2h.release()
        assert update.result(WAIT_SECONDS).success == (kind == REPAIRED)
    answer = engine.ask(PROMPT, ASKED_TOKENS).output_ids
    assert (answer == fresh_answer) == (kind == REPAIRED)
    violated = {} if kind == REPAIRED else {"no-stale-kv": 1, "update-tells-truth": 1}
    assert engine.metrics().violations_since(before) == violated


@both
def test_an_update_in_a_pause_that_has_just_begun(kind: str, engine: Engine, models: Models) -> None:
    """The copy that the retraction itself has left in flight (B03)."""
    before = engine.metrics()
    engine.rank.d2h.hold()
    stream = engine.generate(PROMPT, 200)
    engine.rank.d2h.wait_in_flight()
    stream.wait_tokens(1)
    engine.pause("retract")
    with ThreadPoolExecutor(1) as client:
        update = client.submit(engine.update_from_disk, models.new)
        engine.wait_metric(1, "quiesce_paused", process="scheduler")
        if kind == BARE:
            assert not update.result(WAIT_SECONDS).success
        engine.rank.d2h.release()
        assert update.result(WAIT_SECONDS).success == (kind == REPAIRED)
    if kind == REPAIRED:
        assert not engine.metrics().violations_since(before)
    engine.continue_()
    stream.result()


@both
def test_a_refused_update_and_the_version(kind: str, engine: Engine, models: Models) -> None:
    """Paused in place, with work that keeps its KV: no waiting helps, and the update is answered at once (B16)."""
    before = engine.metrics().violations["versions-agree"]
    stream = engine.generate(SHORT, 400)
    stream.wait_tokens(4)
    engine.pause("in_place")
    body = {"model_path": str(models.new), "weight_version": "v2", "flush_cache": True}
    url = engine.server.url + "/update_weights_from_disk"
    assert not requests.post(url, json=body, timeout=WAIT_SECONDS).json()["success"]
    engine.wait_metric(0 if kind == REPAIRED else 1, "quiesce_version_mismatch")
    assert engine.metrics().violations["versions-agree"] - before == (0 if kind == REPAIRED else 1)
    assert ("Weight version changed" in engine.log()) == (kind == BARE)
    engine.continue_()
    stream.result()
    engine.settle()
    assert requests.post(url, json=body, timeout=WAIT_SECONDS).json()["success"]
    engine.wait_metric(0, "quiesce_version_mismatch")
    assert engine.log().count("Weight version changed") == 1
    assert requests.post(url, json=body | {"model_path": str(models.old)}, timeout=WAIT_SECONDS).json()["success"]


@both
def test_pages_in_storage_after_an_update(kind: str, engine: Engine, models: Models, fresh_answer: list[int]) -> None:
    """What the old weights have stored is not read for the new ones, and what the new ones store is (B04)."""
    engine.ask(PROMPT)
    engine.settle()
    assert engine.update_from_disk(models.new).success
    stream = engine.ask(PROMPT, ASKED_TOKENS)
    read = from_storage(stream)
    assert (stream.output_ids == fresh_answer, read == 0) == ((True, True) if kind == REPAIRED else (False, False))
    engine.settle()
    again = engine.ask(PROMPT, ASKED_TOKENS)
    assert from_storage(again) > 0
    assert (again.output_ids == fresh_answer) == (kind == REPAIRED)


@both
def test_a_retraction_of_more_than_the_queue_holds(kind: str, engine: Engine) -> None:
    before, streams = engine.metrics(), []
    for seed in (13, 17, 19):
        streams.append(engine.generate(prompt(48, seed=seed), 300))
        streams[-1].wait_tokens(2)
    engine.pause("retract")
    engine.wait_metric(1, "quiesce_paused", process="scheduler")
    assert engine.flush().success or kind == BARE
    engine.continue_()
    wait_until(lambda: not any(stream.running for stream in streams), "all have ended")
    lost = sum(bool(stream.error) or len(stream.output_ids) < stream.tokens for stream in streams)
    told = {} if kind == REPAIRED else {"requests-conserved": 1}
    assert engine.metrics().violations_since(before) == told
    assert ("a retract turned away 2 requests" in engine.log()) == (kind == BARE)
    assert lost == (0 if kind == REPAIRED else 2)
