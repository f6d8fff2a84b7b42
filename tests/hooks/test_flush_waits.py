"""`flush-waits`: which messages wait, for what, for how long, and in what order."""

# A parametrized test has booleans as arguments.
# ruff: noqa: FBT001

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.sglang.repairs import flushes
from engine_hooks.sglang.repairs.flushes import FlushWaits


class Update:
    """Named as one of the engine's messages is."""

    def __init__(self, *, flush_cache: bool = True) -> None:
        self.flush_cache = flush_cache


Update.__name__ = "UpdateWeightFromDiskReqInput"


class Waiting:
    """`flush-waits` over a scheduler whose gate is as it is told, with every call of the engine's intake."""

    def __init__(self, seconds: float = 15, agree: Any = lambda first, second: (first, second)) -> None:
        self.now, self.open, self.running = 0.0, False, 0
        self.taken: list[list[Any]] = []
        self.remedy = FlushWaits(seconds, lambda: self.now)
        self.remedy._agree = agree
        self.remedy.on = True
        self.paused = False

    def ingest(self, *requests: Any) -> None:
        scheduler = SimpleNamespace(
            _engine_paused=self.paused,
            is_fully_idle=lambda ignore_waiting: self.open and ignore_waiting == self.paused,
            running_batch=SimpleNamespace(is_empty=lambda: not self.running),
            chunked_req=None,
            last_batch=None,
            enable_overlap=False,
        )
        self.remedy.ingesting(lambda _scheduler, taken: self.taken.append(list(taken)), scheduler, requests)


def test_an_update_waits_at_the_head_and_the_rest_behind_it() -> None:
    waiting, update = Waiting(), Update()
    waiting.ingest("before", update, "after")
    waiting.ingest("later")
    waiting.ingest()
    assert waiting.taken == [["before"], [], []]
    waiting.open = True
    waiting.ingest("last")
    assert waiting.taken[3:] == [[update, "after", "later", "last"]]
    waiting.ingest("next")
    assert waiting.taken[4:] == [["next"]]


def test_each_of_two_updates_waits_for_its_own_flush() -> None:
    waiting, one, two = Waiting(), Update(), Update()
    waiting.ingest(one, two)
    waiting.now = 14
    waiting.open = True
    asked = iter([True, False])
    waiting.remedy._agree = lambda _open, still: (next(asked, False), still)
    waiting.ingest()
    assert waiting.taken == [[], [one]]
    waiting.now = 28
    waiting.ingest()
    assert waiting.taken[2:] == [[]]  # its own fifteen seconds began at 14
    waiting.now = 29
    waiting.ingest()
    assert waiting.taken[3:] == [[two]]


def test_an_update_waits_no_longer_than_that() -> None:
    waiting, update = Waiting(seconds=15), Update()
    waiting.ingest(update)
    waiting.now = 14.9
    waiting.ingest()
    assert waiting.taken == [[], []]
    waiting.now = 15
    waiting.ingest()
    assert waiting.taken[2:] == [[update]]


@pytest.mark.parametrize(("paused", "running", "taken"), [(True, 1, True), (True, 0, False), (False, 1, False)])
def test_no_update_waits_in_a_pause_for_work_that_runs(paused: bool, running: int, taken: bool) -> None:
    waiting, update = Waiting(), Update()
    waiting.paused, waiting.running = paused, running
    waiting.ingest(update)
    assert waiting.taken == ([[update]] if taken else [[]])


def test_an_update_that_must_not_flush_does_not_wait() -> None:
    waiting, update = Waiting(), Update(flush_cache=False)
    waiting.ingest(update)
    assert waiting.taken == [[update]]


@pytest.mark.parametrize(("others", "taken"), [((False, True), False), ((True, True), True), ((False, False), True)])
def test_one_rank_that_is_not_ready_holds_all_and_one_that_is_late_ends_the_wait(
    others: tuple[bool, bool], taken: bool
) -> None:
    waiting, update = Waiting(agree=lambda first, second: (first and others[0], second and others[1])), Update()
    waiting.open = True
    waiting.ingest(update)
    assert waiting.taken == ([[update]] if taken else [[]])


def test_switched_off_it_holds_nothing() -> None:
    waiting, update = Waiting(), Update()
    waiting.remedy.on = False
    waiting.ingest(update)
    assert waiting.taken == [[update]]


@pytest.mark.source
def test_the_messages_that_wait_are_those_of_the_engine() -> None:
    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations is not None
    source = (Path(found.submodule_search_locations[0]) / "srt" / "managers" / "io_struct.py").read_text()
    fields = {
        cls.name: {part.target.id for part in cls.body if isinstance(part, ast.AnnAssign)}  # type: ignore[union-attr]
        for cls in ast.parse(source).body
        if isinstance(cls, ast.ClassDef)
    }
    flushing = {name for name, of in fields.items() if "flush_cache" in of}
    assert flushing == flushes._UPDATES
