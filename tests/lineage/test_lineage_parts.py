"""What the lineage says, what it forgets, and when it says it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from engine_hooks.lineage.pages import Pages, Shape
from engine_hooks.lineage.readback import read_back
from engine_hooks.lineage.stored import Stored
from engine_hooks.lineage.tracker import Held, Lineage
from engine_hooks.lineage.words import CURRENT, LAST_EPOCH, MIXED, PLACES, STALE, UNKNOWN, UNSEEN, Reading, word_of

SIZE = 16
TABLE = torch.arange(SIZE, 9 * SIZE, dtype=torch.int32).repeat(4, 1)
"""Four rows that hold the same pages, 1 to 8."""


class Late:
    """Numbers that arrive when they are told to."""

    all: list[Late]

    def __init__(self, tensor: Any) -> None:
        self.arrived = False
        self._tensor = tensor
        Late.all.append(self)

    def ready(self) -> bool:
        return self.arrived

    def values(self) -> list[Any]:
        assert self.arrived
        return self._tensor.tolist()


def lineage(found: list[Reading], read: Any = read_back, keys: int = 8) -> Lineage:
    return Lineage(Pages(Shape(pages=9, page_size=SIZE, rows=4, host_pages=9)), Stored(keys), found.append, read)


def extend(ours: Lineage, held: list[Held], length: int) -> None:
    slots = torch.cat([TABLE[one.row, one.length : one.length + length].long() for one in held])
    ours.extend(TABLE, held, torch.tensor([one.row for one in held]), slots, [length] * len(held))


def test_a_batch_whose_requests_hold_nothing_reads_nothing() -> None:
    found: list[Reading] = []
    ours = lineage(found)
    extend(ours, [Held(0, "a", 0)], 20)
    assert not ours.waiting


def test_what_is_read_is_told_once_for_each_request_and_in_tokens() -> None:
    found: list[Reading] = []
    ours = lineage(found)
    extend(ours, [Held(0, "a", 0)], 40)
    ours.loaded(1, flush_asked=True)
    extend(ours, [Held(1, "b", 32), Held(2, "c", 0)], 3)
    extend(ours, [Held(1, "b", 35)], 5)  # the next chunk
    ours.judge()
    assert [reading.total() for reading in found] == [{("device", "stale"): 32}, {}]
    assert found[0].told(STALE) == "request 1 of 2: 32 from device"
    assert found[0].told(MIXED) == ""


def test_rows_that_hold_nothing_may_be_read_again() -> None:
    found: list[Reading] = []
    ours = lineage(found)
    ours.loaded(1, flush_asked=True)
    ours.decode(TABLE, lambda: [Held(0, "a", 0), Held(1, "b", 0)], torch.tensor([0, 1]), TABLE[0, :2].long())
    ours.judge()
    assert [reading.total() for reading in found] == [{}]


def test_the_same_without_a_flush_is_mixed_by_choice_until_somebody_asks_for_one() -> None:
    found: list[Reading] = []
    ours = lineage(found)
    held = [Held(0, "a", 40)]
    extend(ours, [Held(0, "a", 0)], 40)
    ours.loaded(1, flush_asked=False)
    for _ in range(3):
        ours.decode(TABLE, lambda: held, torch.tensor([0]), TABLE[0, 40:41].long())
    ours.flush_asked()
    ours.decode(TABLE, lambda: held, torch.tensor([0]), TABLE[0, 41:42].long())
    ours.judge()
    assert [reading.total() for reading in found] == [{("device", "mixed"): 40}, {("device", "stale"): 40}]


def test_a_decode_reads_rows_again_only_where_something_changed() -> None:
    found: list[Reading] = []
    ours = lineage(found)
    extend(ours, [Held(0, "a", 0)], 40)

    rows, asked = torch.tensor([0]), []
    for length in range(40, 60):
        ours.decode(
            TABLE, lambda n=length: asked.append(n) or [Held(0, "a", n)], rows, TABLE[0, length : length + 1].long()
        )
        ours.flush_asked()  # of the epoch that everything is of already
    assert asked == [40]
    ours.loaded(1, flush_asked=True)
    ours.decode(TABLE, lambda: asked.append(60) or [Held(0, "a", 60)], rows, TABLE[0, 60:61].long())
    assert asked == [40, 60]


def test_most_decode_steps_have_nothing_to_write_and_one_that_is_waited_for_is_not_skipped() -> None:
    Late.all = []
    found: list[Reading] = []
    ours = lineage(found, Late)
    rows = torch.tensor([0])
    extend(ours, [Held(0, "a", 0)], 40)
    skipped = []
    for length in range(40, 66):
        if ours.goes_on(rows):
            skipped.append(length)
            continue
        ours.decode(TABLE, lambda n=length: [Held(0, "a", n)], rows, TABLE[0, length : length + 1].long())
    # The first step looks; 48 and 64 begin a page.
    assert skipped == [*range(41, 48), *range(49, 64), 65]
    extend(ours, [Held(1, "b", 16)], 3)
    ours.decode(TABLE, lambda: [Held(0, "a", 66)], rows, TABLE[0, 66:67].long())
    assert not ours.goes_on(rows)
    Late.all[0].arrived = True
    ours.judge()
    assert ours.goes_on(rows)
    # Pages are current all the same.
    extend(ours, [Held(2, "c", 67)], 3)
    Late.all[1].arrived = True
    ours.judge()
    assert found[-1].total() == {("device", "current"): 67}


def test_a_reading_is_judged_when_it_has_arrived_and_in_order() -> None:
    found: list[Reading] = []
    Late.all = []
    ours = lineage(found, Late)
    extend(ours, [Held(0, "a", 0)], 40)
    ours.loaded(1, flush_asked=True)
    extend(ours, [Held(1, "b", 16)], 3)
    extend(ours, [Held(2, "c", 32)], 3)
    ours.judge()
    assert found == []
    Late.all[1].arrived = True
    ours.judge()
    assert found == []
    assert ours.waiting
    Late.all[0].arrived = True
    ours.judge()
    assert [reading.told(STALE) for reading in found] == [
        "request 1 of 1: 16 from device",
        "request 1 of 1: 32 from device",
    ]
    assert not ours.waiting


def test_readings_that_never_arrive_are_said_and_not_kept() -> None:
    Late.all = []
    ours = lineage([], Late)
    extend(ours, [Held(0, "a", 0)], 40)
    for request in range(1024):
        extend(ours, [Held(1, request, 16)], 3)
    with pytest.raises(RuntimeError, match="1024 readings have not arrived from the device"):
        extend(ours, [Held(1, 1024, 16)], 3)


def test_pages_that_were_never_written_are_unknown() -> None:
    found: list[Reading] = []
    ours = lineage(found)
    extend(ours, [Held(0, "a", 16)], 3)
    ours.judge()
    assert found[0].total() == {("device", "unknown"): 16}


def test_after_a_flush_nothing_is_known_but_what_is_in_the_storage() -> None:
    found: list[Reading] = []
    ours, backend, host = lineage(found), object(), torch.arange(0, 2 * SIZE)
    extend(ours, [Held(0, "a", 0)], 40)
    ours.to_host(TABLE[0, : 2 * SIZE].long(), host)
    ours.to_storage(host)
    there = ours.writing(backend, ["k", "l"], lambda _: False)
    ours.wrote(host, ["k"], there, keeps_first=True)  # it took one of two
    ours.flushed()
    ours.loaded(1, flush_asked=True)
    ours.from_storage(backend, ["k", "l"], host)
    ours.to_device(host, TABLE[0, : 2 * SIZE].long())
    extend(ours, [Held(1, "b", 40)], 3)
    ours.judge()
    assert found[0].total() == {("storage", "stale"): 16, ("storage", "unknown"): 16, ("device", "unknown"): 8}
    assert found[0].told(UNKNOWN) == "request 1 of 1: 8 from device, 16 from storage"
    assert found[0].told(CURRENT) == ""


def test_a_backup_that_nobody_announced_is_unknown() -> None:
    ours, stored = lineage([]), Stored(4)
    stored.written(["k"], [word_of(7, 0)], [False], keeps_first=True)
    ours._stored = stored
    ours.wrote(torch.arange(SIZE), ["k"], ours.writing(None, ["k"], lambda _: False), keeps_first=True)
    assert stored.words(["k"]) == [UNSEEN]


def test_a_host_page_outside_the_pool_is_an_error_on_every_device() -> None:
    with pytest.raises(IndexError, match="host pages 9 to 9 of a pool of 9"):
        lineage([]).to_host(TABLE[0, :SIZE].long(), torch.arange(9 * SIZE, 10 * SIZE))


def test_an_epoch_that_does_not_fit_is_said() -> None:
    with pytest.raises(OverflowError, match=f"the last is {LAST_EPOCH}"):
        lineage([]).loaded(LAST_EPOCH + 1, flush_asked=False)


def test_of_many_requests_four_are_told() -> None:
    numbers = [[0] * len(PLACES) for _ in range(9)]
    for request in range(1, 8):
        numbers[request][PLACES.index(("host", "stale"))] = 16 * request
    assert Reading(numbers).told(STALE) == (
        "request 2 of 9: 16 from host; request 3 of 9: 32 from host; request 4 of 9: 48 from host; "
        "request 5 of 9: 64 from host; and 3 more requests"
    )


# The side table.


def test_the_key_used_longest_ago_is_forgotten_and_then_unknown() -> None:
    stored = Stored(2)
    for key, epoch in (("a", 1), ("b", 3)):
        stored.written([key], [word_of(epoch, 0)], [False], keeps_first=True)
    assert stored.words(["a"]) == [word_of(1, 0)]
    stored.written(["c"], [word_of(5, 1)], [False], keeps_first=True)
    assert stored.words(["a", "b", "c"]) == [word_of(1, 0), UNSEEN, word_of(5, 0)]
    assert len(stored) == 2


@pytest.mark.parametrize(("keeps_first", "expected"), [(True, word_of(1, 0)), (False, UNSEEN)])
def test_a_key_that_was_there_before_keeps_what_a_storage_kept(*, keeps_first: bool, expected: int) -> None:
    stored = Stored()
    stored.written(["a"], [word_of(1, 0)], [False], keeps_first=True)
    stored.written(["a", "foreign"], [word_of(3, 0)] * 2, [True, True], keeps_first=keeps_first)
    assert stored.words(["a", "foreign"]) == [expected, UNSEEN]


def test_a_key_that_is_gone_is_forgotten_before_it_is_written_again() -> None:
    stored = Stored()
    stored.written(["a"], [word_of(1, 0)], [False], keeps_first=True)
    assert stored.before_write(["a"], lambda _: True) == [True]
    assert stored.words(["a"]) == [word_of(1, 0)]
    assert stored.before_write(["a"], lambda _: False) == [False]
    assert stored.words(["a"]) == [UNSEEN]
