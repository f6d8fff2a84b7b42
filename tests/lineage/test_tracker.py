"""The lineage against a model that keeps, of every token, the set of all that went into it."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from naive_lineage import FOREIGN, Naive, Page, Row, Token

from engine_hooks.lineage.pages import Pages, Shape
from engine_hooks.lineage.stored import Stored
from engine_hooks.lineage.tracker import Held, Lineage
from engine_hooks.lineage.words import Reading

PAGES, HOST_PAGES, ROWS, WIDTH, KEYS = 1000, 12, 4, 48, 3


class Engine(RuleBasedStateMachine):
    """Both follow the same engine; every reading must be the same."""

    pages_class = Pages
    lineage_class = Lineage

    @initialize(size=st.sampled_from([1, 3, 4]))
    def start(self, size: int) -> None:
        self.size = size
        self.model = Naive(size, KEYS)
        self.found: list[Reading] = []
        shape = Shape(PAGES, size, ROWS, HOST_PAGES)
        self.ours = self.lineage_class(self.pages_class(shape), Stored(KEYS), self.found.append)
        self.table = torch.zeros((ROWS, WIDTH), dtype=torch.int32)
        self.free = list(range(1, PAGES + 1))
        self.free_host = list(range(HOST_PAGES))
        self.rows: dict[int, Row] = {}
        self.tree: list[int] = []
        self.requests = 0
        self.decoding: list[int] = []
        self.backend = object()

        self.admit(0, 9)
        self.finish()

    # Loads and flushes.

    @rule(flush=st.booleans())
    def load(self, *, flush: bool) -> None:
        self.model.epoch += 1
        if flush:
            self.model.floor = self.model.epoch
        self.ours.loaded(self.model.epoch, flush_asked=flush)

    @rule()
    def refused_flush(self) -> None:
        self.model.floor = self.model.epoch
        self.ours.flush_asked()

    @rule()
    def granted_flush(self) -> None:
        self.refused_flush()
        self.rows.clear()
        self.tree.clear()
        self.model.device.clear()
        self.model.host.clear()
        self.free, self.free_host = list(range(1, PAGES + 1)), list(range(HOST_PAGES))
        self.ours.flushed()

    # Requests.

    @precondition(lambda self: len(self.rows) < ROWS and len(self.free) > 10)
    @rule(prefix=st.integers(0, 5), number=st.integers(1, 9))
    def admit(self, prefix: int, number: int) -> None:
        """A request begins with pages of the tree, in any combination: only what they hold matters here."""
        place = next(i for i in range(ROWS) if i not in self.rows)
        self.requests += 1
        shared = self.tree[:prefix]
        self.rows[place] = Row(self.requests, list(shared), len(shared) * self.size)
        self._extend({place: number})

    @precondition(lambda self: self.rows and len(self.free) > 20)
    @rule(number=st.integers(1, 9), two=st.booleans())
    def next_chunk(self, number: int, *, two: bool) -> None:
        self._extend({place: number + i for i, place in enumerate(list(self.rows)[: 1 + two])})

    @precondition(lambda self: self.rows)
    @rule()
    def decode(self) -> None:
        rows = {place: row for place, row in self.rows.items() if self._has_room(row, 1)}
        if not rows:
            return
        held = [Held(place, row.request, row.length) for place, row in rows.items()]
        expected = [self.model.read(row, new=self._is_new(row)) for row in rows.values()]
        slots = [self._slots(place, row, 1) for place, row in rows.items()]
        if self.decoding != list(rows):  # as in the engine, the tensor is another one only where the rows are others
            self.decoding, self.decoding_rows = list(rows), torch.tensor(list(rows))
        self.ours.decode(self.table, lambda: held, self.decoding_rows, torch.cat(slots))
        for row in rows.values():
            self.model.compute(row, 1)
        self._compare(expected)

    @precondition(lambda self: self.rows)
    @rule()
    def decode_pages(self) -> None:
        for _ in range(2 * self.size + 1):
            self.decode()

    @precondition(lambda self: self.rows)
    @rule()
    def finish(self) -> None:
        """Its whole pages go to the tree, the others are freed."""
        place, row = self.rows.popitem()
        whole = row.length // self.size
        self.tree += [page for page in row.pages[:whole] if page not in self.tree]
        self.free = [page for page in row.pages[whole:] if page not in self.tree] + self.free
        del place

    @precondition(lambda self: self.rows and self.tree)
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        """A request's page gives way to another of the tree, which has the same tokens."""
        place = data.draw(st.sampled_from(sorted(self.rows)))
        row = self.rows[place]
        if row.length < self.size:
            return
        at = data.draw(st.integers(0, row.length // self.size - 1))
        row.pages[at] = data.draw(st.sampled_from(self.tree))
        self._write(place, row)
        self.ours.adopted(place)

    @precondition(lambda self: self.tree and len(self.rows) < ROWS and len(self.free) > 10)
    @rule(data=st.data())
    def adopt_what_is_older(self, data: st.DataObject) -> None:
        """A prefix computed anew, beside an older one in the tree."""
        self.load(flush=data.draw(st.booleans()))
        self.admit(0, 5)
        self.adopt(data)
        self.decode()

    @precondition(lambda self: self.tree)
    @rule()
    def evict(self) -> None:
        page = self.tree.pop()
        if all(page not in row.pages for row in self.rows.values()):
            self.free.insert(0, page)

    # Copies.

    @precondition(lambda self: self.tree and self.free_host)
    @rule(data=st.data())
    def to_host(self, data: st.DataObject) -> None:
        self._to_host(data.draw(st.sampled_from(self.tree)))

    def _to_host(self, page: int) -> int:
        there = self.free_host.pop()
        self.model.host[there] = Page(list(self.model.device[page].tokens), "host")
        self.ours.to_host(self._of(page), self._of(there))
        return there

    @precondition(lambda self: self.model.host and len(self.free) > 10)
    @rule(data=st.data())
    def to_device(self, data: st.DataObject) -> None:
        self._to_device(data.draw(st.sampled_from(sorted(self.model.host))))

    def _to_device(self, there: int) -> None:
        page = self.free.pop()
        source = self.model.host[there]
        self.model.device[page] = Page(list(source.tokens), source.tier)
        self.tree.insert(0, page)
        self.ours.to_device(self._of(there), self._of(page))

    @precondition(lambda self: self.model.host)
    @rule(data=st.data(), key=st.sampled_from("abcde"), taken=st.booleans())
    def to_storage(self, data: st.DataObject, key: str, *, taken: bool) -> None:
        self._to_storage(data.draw(st.sampled_from(sorted(self.model.host))), key, taken=taken)

    def _to_storage(self, there: int, key: str, *, taken: bool) -> None:
        slots = self._of(there)
        self.ours.to_storage(slots)
        present = self.ours.writing(self.backend, [key], lambda key: key in self.model.storage)
        assert present == [key in self.model.storage]
        self.ours.wrote(slots, [key] if taken else [], present, keeps_first=True)
        if not present[0]:
            self.model.forget(key)
        if taken and not present[0]:
            self.model.storage[key] = list(self.model.host[there].tokens)
            if self.model.host[there].everything != Token({FOREIGN}):
                self.model.remember(key)

    @rule(key=st.sampled_from("abcde"))
    def another_engine_writes(self, key: str) -> None:
        self.model.storage.setdefault(key, [])

    @rule()
    def the_storage_is_cleared(self) -> None:
        self.model.storage.clear()

    @rule()
    def another_storage_is_attached(self) -> None:
        self.backend = object()
        self.model.remembered.clear()

    @precondition(lambda self: self.model.storage and self.free_host)
    @rule(data=st.data())
    def from_storage(self, data: st.DataObject) -> None:
        self._from_storage(data.draw(st.sampled_from(sorted(self.model.storage))))

    def _from_storage(self, key: str) -> int:
        there = self.free_host.pop()
        known = key in self.model.remembered
        if known:
            self.model.remember(key)
        self.model.host[there] = Page(list(self.model.storage[key]) if known else [], "storage")
        self.ours.from_storage(self.backend, [key], self._of(there))
        return there

    @precondition(lambda self: self.tree and len(self.free_host) > 1 and len(self.free) > 20)
    @rule(data=st.data(), key=st.sampled_from("abcde"), stored=st.booleans())
    def all_the_way(self, data: st.DataObject, key: str, *, stored: bool) -> None:
        """Out and back again, and read."""
        there = self._to_host(data.draw(st.sampled_from(self.tree)))
        if stored:
            self._to_storage(there, key, taken=True)
            there = self._from_storage(key)
        self._to_device(there)
        if len(self.rows) < ROWS:
            self.admit(1, 1)

    @precondition(lambda self: self.model.host)
    @rule()
    def evict_from_host(self) -> None:
        there = min(self.model.host)
        del self.model.host[there]
        self.free_host.append(there)

    @invariant()
    def nothing_is_left_over(self) -> None:
        assert not getattr(self, "found", [])

    # Helpers.

    def _extend(self, numbers: dict[int, int]) -> None:
        numbers = {place: n for place, n in numbers.items() if self._has_room(self.rows[place], n)}
        if not numbers:
            return
        held = [Held(place, self.rows[place].request, self.rows[place].length) for place in numbers]
        nothing_before = not any(one.length for one in held)
        expected = [self.model.read(row, new=self._is_new(row)) for row in (self.rows[place] for place in numbers)]
        slots = [self._slots(place, self.rows[place], n) for place, n in numbers.items()]
        rows = torch.tensor(list(numbers))
        self.ours.extend(self.table, held, rows, torch.cat(slots), list(numbers.values()))
        for place, n in numbers.items():
            self.model.compute(self.rows[place], n)
        self._compare([] if nothing_before else expected)

    def _compare(self, expected: list) -> None:
        self.ours.judge()
        assert not self.ours.waiting
        total = sum((Counter(reading.total()) for reading in self.found), start=Counter())
        assert total == sum(expected, start=Counter())
        self.found.clear()

    def _is_new(self, row: Row) -> bool:
        return row.counted_at != (self.model.epoch, self.model.floor)

    def _has_room(self, row: Row, number: int) -> bool:
        needed = -(-(row.length + number) // self.size) - len(row.pages)
        return row.length + number <= WIDTH and needed <= len(self.free)

    def _slots(self, place: int, row: Row, number: int) -> torch.Tensor:
        """Room for more tokens of a row: their slots."""
        while len(row.pages) * self.size < row.length + number:
            row.pages.append(self.free.pop(0))
        self._write(place, row)
        return self.table[place, row.length : row.length + number].long()

    def _write(self, place: int, row: Row) -> None:
        slots = [page * self.size + i for page in row.pages for i in range(self.size)][:WIDTH]
        self.table[place, : len(slots)] = torch.tensor(slots, dtype=torch.int32)

    def _of(self, page: int) -> torch.Tensor:
        return torch.arange(page * self.size, (page + 1) * self.size)


Engine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestEngine = Engine.TestCase


class OwnEpochOnly(Pages):
    """A page computed by new weights over an old prefix passes for new."""

    def hold(self, table, held, epoch, floor):
        sums = super().hold(table, held, epoch, floor)
        self.begin(torch.tensor([row for row, _, _ in held]), epoch)
        return sums


class NotMovedToTheHost(Pages):
    """What goes to the host keeps the word of whatever was there before."""

    def to_host(self, slots, host_slots):
        pass


class NotMovedToTheDevice(Pages):
    def to_device(self, host_slots, slots):
        pass


class StorageIsAlwaysNew(Pages):
    """What a storage brings passes for what the weights now computed."""

    def from_storage(self, host_slots, words):
        super().from_storage(host_slots, [min(words, default=0) | 0xFFFF for _ in words])


class DecodedPagesAreNotWritten(Pages):
    def decode(self, slots, rows):
        pass


class NoStepBeginsAPage(Lineage):
    """Only the first step of a batch writes."""

    def decode(self, table, held, rows, slots):
        super().decode(table, held, rows, slots)
        self._begins, self._idle = [False], 1000


class PartialLoadsDoNotCount(Lineage):
    """A load for which nobody asked for a flush is not counted."""

    def loaded(self, epoch, *, flush_asked):
        if flush_asked:
            super().loaded(epoch, flush_asked=True)


class RefusedFlushIsAChoice(Lineage):
    def flush_asked(self):
        pass


class AdoptedPagesAreNotRead(Lineage):
    def adopted(self, row):
        pass


PLANTS = [
    {"pages_class": OwnEpochOnly},
    {"pages_class": NotMovedToTheHost},
    {"pages_class": NotMovedToTheDevice},
    {"pages_class": StorageIsAlwaysNew},
    {"pages_class": DecodedPagesAreNotWritten},
    {"lineage_class": NoStepBeginsAPage},
    {"lineage_class": PartialLoadsDoNotCount},
    {"lineage_class": RefusedFlushIsAChoice},
    {"lineage_class": AdoptedPagesAreNotRead},
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: next(iter(plant.values())).__name__)
def test_a_planted_bug_is_noticed(plant: dict[str, type]) -> None:
    spoilt = type("Spoilt", (Engine,), dict(plant))
    quick = settings(
        max_examples=200,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(spoilt, settings=quick)
