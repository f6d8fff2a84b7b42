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
from engine_hooks.sglang.remedies import REMEDIES, all_ranks_agree, bind_remedies, make_remedies
from engine_hooks.sglang.repairs import base
from engine_hooks.sglang.repairs.base import Remedy
from engine_hooks.sglang.repairs.requests import PauseStopsClocks, RetractKeepsAdmitted
from engine_hooks.sglang.repairs.updates import EpochInStorageKey, StampVersionOnSuccess

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


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """These engines are no SGLang: whether its functions are those that are repaired is not asked of them."""
    monkeypatch.setattr(Remedy, "differing", lambda _self: [])


def bind(names: list[str], scheduler: Any) -> dict[str, Remedy]:
    return bind_remedies(make_remedies(names), scheduler, {})


def test_it_reaps_without_storage_retries() -> None:
    scheduler = engine()
    bound = bind(["reap-while-paused"], scheduler)
    bound["reap-while-paused"].before_record()
    assert scheduler.calls == [False]


@pytest.mark.parametrize(("decode_hicache", "calls"), [(False, []), (True, [False])])
def test_a_decode_worker_reaps_only_with_decode_hicache(decode_hicache: bool, calls: list[bool]) -> None:
    scheduler = engine(disaggregation_mode=SimpleNamespace(value="decode"), enable_decode_hicache=decode_hicache)
    bind(["reap-while-paused"], scheduler)["reap-while-paused"].before_record()
    assert scheduler.calls == calls


@pytest.mark.parametrize(
    "scheduler",
    [SimpleNamespace(), engine(_process_hicache_events=lambda: None), engine(_process_hicache_events=None)],
)
def test_a_remedy_that_cannot_bind_says_so_and_stays_off(scheduler: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "quiesce"):
        assert bind(["reap-while-paused"], scheduler) == {}
    assert "remedy reap-while-paused cannot bind and stays off" in caplog.text


def test_a_remedy_of_the_spec_without_a_hook_stays_off(caplog: pytest.LogCaptureFixture) -> None:
    assert bind(["from-the-future"], engine()) == {}
    assert "from-the-future" in caplog.text


def test_a_remedy_brings_what_it_needs_and_falls_with_it() -> None:
    manager = SimpleNamespace(has_waiting_grammars=bool, get_ready_grammar_requests=list)
    whole = engine(grammar_manager=manager, _add_request_to_queue=print)
    assert list(bind(["grammar-while-paused"], whole)) == ["reap-while-paused", "grammar-while-paused"]
    assert bind(["grammar-while-paused"], engine(_process_hicache_events=None)) == {}


def test_a_remedy_that_is_nowhere_hooked_stays_off(caplog: pytest.LogCaptureFixture) -> None:
    asked = make_remedies(["reap-while-paused"])
    assert bind_remedies(asked, engine(), {"reap-while-paused": "no hook on x"}) == {}
    assert "remedy reap-while-paused cannot bind and stays off: no hook on x" in caplog.text


def test_a_function_that_is_another_keeps_a_remedy_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(REMEDIES["reap-while-paused"], "repairs", {"inspect.unwrap": "000000000000"})
    assert bind(["reap-while-paused"], engine()) == {}
    assert "so either repaired already or another: inspect.unwrap" in caplog.text
    right = {"inspect.unwrap": base.fingerprint("inspect.unwrap")}
    monkeypatch.setattr(REMEDIES["reap-while-paused"], "repairs", right)
    assert list(bind(["reap-while-paused"], engine())) == ["reap-while-paused"]


def test_there_is_no_fingerprint_of_what_is_not_there() -> None:
    assert {base.fingerprint(path) for path in ("inspect.nothing", "nowhere.at.all", "math.sin")} == {""}
    assert len(base.fingerprint("inspect.unwrap")) == 12


def test_the_limit_counts_what_came_by_itself() -> None:
    remedy = RetractKeepsAdmitted()
    remedy.on = True
    scheduler = SimpleNamespace(max_queued_requests=2, waiting_queue=[])
    refused: list[str] = []

    def limit(_scheduler: Any, request: str) -> bool:
        refused.append(request)
        return True

    def pause(_scheduler: Any) -> None:
        for request in ("r1", "r2", "r3"):
            assert not remedy.limiting(limit, scheduler, request)
            scheduler.waiting_queue.append(request)

    remedy.pausing(pause, scheduler)
    assert not refused
    for request in ("new1", "new2"):
        assert not remedy.limiting(limit, scheduler, request)
        scheduler.waiting_queue.append(request)
    assert remedy.limiting(limit, scheduler, "new3")
    assert refused == ["new3"]
    scheduler.waiting_queue[:] = ["r3", "new1"]
    assert not remedy.limiting(limit, scheduler, "new4")
    scheduler.waiting_queue.append("new4")
    assert remedy.limiting(limit, scheduler, "new5")


def test_clocks_leave_out_every_pause() -> None:
    now = [0.0]
    remedy = PauseStopsClocks(lambda: now[0])
    remedy.on = True
    session = SimpleNamespace(last_active_time=0.0, timeout=10)

    def at(time: float, *, out: bool) -> None:
        now[0] = time
        assert remedy.session_timing_out(lambda one: now[0] - one.last_active_time > one.timeout, session) == out

    def pause(time: float, name: str) -> None:
        now[0] = time
        getattr(remedy, name)(lambda _scheduler: None, None)

    at(9, out=False)
    pause(9, "pausing")
    at(100, out=False)
    pause(109, "continuing")
    at(109.9, out=False)
    at(110.1, out=True)
    session.last_active_time = 50  # in the pause: only what follows it counts
    at(118, out=False)
    at(120, out=True)
    remedy.on = False
    at(118, out=True)


def test_a_version_is_taken_with_success_only() -> None:
    remedy = StampVersionOnSuccess()
    remedy.on = True
    stamped: list[str] = []

    def record(_manager: Any, version: str) -> None:
        stamped.append(version)

    def update(success: bool, version: str) -> None:
        def handle(manager: Any, _request: Any) -> Any:
            remedy.recording(record, manager, version)
            assert stamped.count(version) == 0
            return SimpleNamespace(success=success)

        remedy.updating(handle, None, None)

    update(False, "refused")
    update(True, "v2")
    remedy.recording(record, None, "by hand")
    assert stamped == ["v2", "by hand"]


def epochs(*versions: str | None) -> list[str]:
    remedy = EpochInStorageKey()
    remedy._process = "this"
    found = []
    for version in versions:
        remedy.enter(version)
        found.append(remedy.namespace)
    return found


def test_an_epoch_is_its_version_the_first_time_only() -> None:
    again = epochs("v1", "v2", "v1", None, None, "default", "default")
    assert len(set(again)) == 7
    # Another process that was given the same version has the same key; without one it never has.
    other = EpochInStorageKey()
    other._process = "other"
    for version, same in [("v1", True), (None, False), ("v2", True), ("default", False)]:
        other.enter(version)
        assert (other.namespace in epochs("v1", "v2", "default", None)) == same


def a_request(extra_key: str | None = None, *, holds_kv: bool = False) -> Any:
    return SimpleNamespace(extra_key=extra_key, kv=SimpleNamespace(holds_kv=holds_kv))


def test_a_request_is_named_by_the_weights_that_will_compute_it() -> None:
    remedy = EpochInStorageKey()
    remedy._process, remedy.on = "this", True
    remedy._scheduler = scheduler = SimpleNamespace(waiting_queue=[])
    remedy.enter(None)
    old = remedy.namespace
    plain, keyed, owner = a_request(), a_request("lora"), a_request(holds_kv=True)
    for request in (plain, keyed, owner):
        remedy.queueing(lambda _scheduler, one: scheduler.waiting_queue.append(one), scheduler, request)
    assert [r.extra_key for r in scheduler.waiting_queue] == [old, f"lora|{old}", None]

    def update(success: bool) -> None:
        asked = SimpleNamespace(flush_cache=True, weight_version="v2")
        remedy.updating(lambda _manager, _request: SimpleNamespace(success=success), None, asked)

    update(success=False)  # the tree still has the old pages, which these may have begun to read
    assert [r.extra_key for r in scheduler.waiting_queue] == [old, f"lora|{old}", None]
    remedy.flushing(lambda _scheduler: False, scheduler)
    assert plain.extra_key == old
    remedy.flushing(lambda _scheduler: True, scheduler)
    unnamed = remedy.namespace
    assert unnamed != old
    assert [r.extra_key for r in scheduler.waiting_queue] == [unnamed, f"lora|{unnamed}", None]
    update(success=True)
    assert remedy.namespace not in (old, unnamed)
    assert [r.extra_key for r in scheduler.waiting_queue] == [remedy.namespace, f"lora|{remedy.namespace}", None]


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
