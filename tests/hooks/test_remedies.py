"""Remedies: binding, and the agreement of all ranks, on torch's own key-value store."""

# A parametrized test has booleans as arguments.
# ruff: noqa: FBT001

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.sglang import remedies
from engine_hooks.sglang.remedies import all_ranks_agree, bind_remedies

CARD = {"version": "1", "spec_digest": "d", "remedies": ["reap-while-paused"]}


def engine(**changes: Any) -> Any:
    calls: list[bool] = []

    def reap(should_retry_storage_prefetch: bool = True) -> None:  # noqa: FBT002 - the engine's signature
        calls.append(should_retry_storage_prefetch)

    fields = {
        "_process_hicache_events": reap,
        "disaggregation_mode": SimpleNamespace(value="null"),
        "enable_decode_hicache": False,
        "calls": calls,
    }
    return SimpleNamespace(**(fields | changes))


def test_it_reaps_without_storage_retries() -> None:
    scheduler = engine()
    bound = bind_remedies(["reap-while-paused"], scheduler)
    bound["reap-while-paused"].before_record()
    assert scheduler.calls == [False]


@pytest.mark.parametrize(("decode_hicache", "calls"), [(False, []), (True, [False])])
def test_a_decode_worker_reaps_only_with_decode_hicache(decode_hicache: bool, calls: list[bool]) -> None:
    scheduler = engine(disaggregation_mode=SimpleNamespace(value="decode"), enable_decode_hicache=decode_hicache)
    bind_remedies(["reap-while-paused"], scheduler)["reap-while-paused"].before_record()
    assert scheduler.calls == calls


@pytest.mark.parametrize(
    "scheduler",
    [SimpleNamespace(), engine(_process_hicache_events=lambda: None), engine(_process_hicache_events=None)],
)
def test_a_remedy_that_cannot_bind_says_so_and_stays_off(scheduler: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "quiesce"):
        assert bind_remedies(["reap-while-paused"], scheduler) == {}
    assert "remedy reap-while-paused cannot bind and stays off" in caplog.text


def test_a_remedy_of_the_spec_without_a_hook_stays_off(caplog: pytest.LogCaptureFixture) -> None:
    assert bind_remedies(["from-the-future"], engine()) == {}
    assert "from-the-future" in caplog.text


class Store:
    """A fresh store of torch's, with which worlds are formed."""

    def __init__(self) -> None:
        distributed = pytest.importorskip("torch.distributed")
        self.store = distributed.HashStore()

    def decide(self, cards: dict[int, dict[str, Any]], world: int) -> dict[int, bool]:
        """What each rank with a card decides; a rank of the world without one never reports."""
        decisions: dict[int, bool] = {}

        def ask(rank: int) -> None:
            decisions[rank] = all_ranks_agree(self.store, rank, world, cards[rank])

        threads = [threading.Thread(target=ask, args=(rank,)) for rank in cards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return decisions


def test_ranks_with_one_card_agree() -> None:
    assert Store().decide(dict.fromkeys(range(4), CARD), 4) == dict.fromkeys(range(4), True)


@pytest.mark.parametrize("key", ["version", "spec_digest"])
def test_ranks_that_differ_turn_the_remedies_off_everywhere(key: str) -> None:
    cards = {0: CARD, 1: CARD, 2: CARD | {key: "other"}}
    assert Store().decide(cards, 3) == {0: False, 1: False, 2: False}


def test_a_rank_without_remedies_does_not_wait_and_the_others_turn_them_off() -> None:
    store = Store()
    without = CARD | {"remedies": []}
    assert store.decide({0: without}, 2) == {0: True}
    assert store.decide({1: CARD}, 2) == {1: False}


def test_a_rank_that_never_reports_turns_them_off_and_one_that_is_late_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remedies, "_AGREEMENT_TIMEOUT", timedelta(seconds=1))
    store = Store()
    assert store.decide({0: CARD}, 2) == {0: False}
    assert store.decide({1: CARD}, 2) == {1: False}
