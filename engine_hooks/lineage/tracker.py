"""The lineage of one engine's pages: follows what writes and moves them, and says what each batch reads.

Called on the scheduler's thread, but for `writing` and `wrote`, which the thread that writes to the storage calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine_hooks.lineage.pages import Pages
from engine_hooks.lineage.readback import Readback, read_back
from engine_hooks.lineage.stored import Stored
from engine_hooks.lineage.words import LAST_EPOCH, UNSEEN, Reading

# Torch's.
Tensor = Any

_WAITING = 1024
"""Readings that may be on their way from the device. They arrive one pass later; so many never are."""


class Held(NamedTuple):
    """One request of a batch: what its row held before the batch."""

    row: int
    request: object
    """Equal for the same request only."""
    length: int
    """Tokens."""


class _Told(NamedTuple):
    """What was last read of a row, and when."""

    request: object
    moment: tuple[int, int]
    end: int
    """Tokens that the row held after it."""


class Lineage:
    """Follows the pages of one engine."""

    def __init__(
        self,
        pages: Pages,
        stored: Stored,
        found: Callable[[Reading], None],
        read: Callable[[Tensor], Readback] = read_back,
    ) -> None:
        """`found` is given each reading, once it has arrived from the device, by `judge`."""
        self._pages = pages
        self._stored = stored
        self._found = found
        self._read = read
        self._epoch = self._floor = 0
        self._told: dict[int, _Told] = {}
        self._adopted: set[int] = set()
        self._changed = False
        # The rows of the last decode step; None where the next must look at them. A row's word stays the same from step
        # to step, so only the first token of a page must write it: `_begins` says in which steps one does, and `_idle`
        # how many have none from now on.
        self._rows: Tensor = None
        self._begins: list[bool] = []
        self._step = self._idle = 0
        self._waiting: deque[Readback] = deque()
        # By the identity of the host slots that the engine's own entry in flight holds.
        self._backups: dict[int, Readback] = {}

    # Epochs.

    def loaded(self, epoch: int, *, flush_asked: bool) -> None:
        """Weights were written: this epoch began. `flush_asked`: and whoever asked for it asked for a flush too."""
        if epoch > LAST_EPOCH:
            raise OverflowError(f"epoch {epoch} does not fit into a word; the last is {LAST_EPOCH}")
        self._epoch = epoch
        if flush_asked:
            self._floor = epoch
        self._changed = True
        self._rows = None

    def flush_asked(self) -> None:
        """A flush was asked for: that older pages are read after it is nobody's choice."""
        if self._floor != self._epoch:
            self._floor = self._epoch
            self._changed = True
            self._rows = None

    def flushed(self) -> None:
        """The caches of device and host were dropped. A storage keeps what it has."""
        self._pages.forget()
        self._rows = None
        self._told.clear()
        self._adopted.clear()
        self._backups.clear()

    # Forwards.

    def extend(self, table: Tensor, held: Sequence[Held], rows: Tensor, slots: Tensor, lengths: Sequence[int]) -> None:
        """A batch is launched that computes `lengths` tokens for each of `held`, into `slots`.

        `table` is `req_to_token`, `rows` int64 `[n]` the rows of `held`, `slots` int64 `[sum of lengths]`.
        """
        self._rows = None
        if any(one.length for one in held):
            self._hold(table, held)
        else:
            self._pages.begin(rows, self._epoch)
        moment = (self._epoch, self._floor)
        for one, length in zip(held, lengths, strict=True):
            self._told[one.row] = _Told(one.request, moment, one.length + length)
            self._adopted.discard(one.row)
        self._pages.extend(slots, rows, lengths)

    def decode(self, table: Tensor, held: Callable[[], Sequence[Held]], rows: Tensor, slots: Tensor) -> None:
        """A batch is launched that computes one token for each row; `held` is called where the rows are not as before.

        `rows` must be another tensor wherever it has other rows, as the engine's are.
        """
        if rows is not self._rows:
            requests = held()
            if self._changed or self._adopted:
                self._look_again(table, requests)
            self._begin(rows, requests)
        elif self._idle:
            self._idle -= 1
            return
        self._pages.decode(slots, rows)
        self._count_idle()

    def goes_on(self, rows: Tensor) -> bool:
        """Whether a batch of these rows goes on with a decode step that has nothing to write, nor to judge: it is done.

        Else `judge` and `decode` are to be called.
        """
        if rows is self._rows and self._idle and not self._waiting:
            self._idle -= 1
            return True
        return False

    def _begin(self, rows: Tensor, held: Sequence[Held]) -> None:
        size = self._pages.page_size
        self._rows, self._step = rows, 0
        self._begins = [False] * size
        for one in held:
            self._begins[-one.length % size] = True

    def _count_idle(self) -> None:
        """After a step that wrote: how many follow that need not."""
        size = self._pages.page_size
        following = range(self._step + 1, self._step + size + 1)
        self._step = next((step for step in following if self._begins[step % size]), self._step + size)
        self._idle = self._step - following[0]

    def adopted(self, row: int) -> None:
        """A request took over pages of the tree in the place of its own."""
        self._adopted.add(row)
        self._rows = None

    def _look_again(self, table: Tensor, held: Sequence[Held]) -> None:
        moment = (self._epoch, self._floor)
        again = []
        for one in held:
            told = self._told.get(one.row)
            if one.row in self._adopted or told is None or told.request != one.request or told.moment != moment:
                again.append(one)
        if again:
            self._hold(table, again)
        for one in again:
            self._told[one.row] = _Told(one.request, moment, one.length)
        self._adopted.difference_update([one.row for one in held])
        self._changed = False

    def _hold(self, table: Tensor, held: Sequence[Held]) -> None:
        sums = self._pages.hold(
            table, [(one.row, one.length, self._is_new(one)) for one in held], self._epoch, self._floor
        )
        self._waiting.append(self._read(sums))
        if len(self._waiting) > _WAITING:
            raise RuntimeError(f"{_WAITING} readings have not arrived from the device")

    def _is_new(self, one: Held) -> bool:
        """Whether what the row holds has not been read in this moment; else it goes on, as after a chunk."""
        told = self._told.get(one.row)
        same = told is not None and told.request == one.request and told.moment == (self._epoch, self._floor)
        return not same or (told is not None and one.length < told.end)

    @property
    def waiting(self) -> bool:
        """Whether `judge` has something to look at."""
        return bool(self._waiting)

    def judge(self) -> None:
        """Give away the readings that have arrived, in their order."""
        while self._waiting and self._waiting[0].ready():
            self._found(Reading(self._waiting.popleft().values()))

    # Copies. Slots are those of whole pages.

    def to_host(self, slots: Tensor, host_slots: Tensor) -> None:
        """Pages go from the device to the host."""
        self._pages.to_host(slots, host_slots)

    def to_device(self, host_slots: Tensor, slots: Tensor) -> None:
        """Pages come from the host to the device."""
        self._pages.to_device(host_slots, slots)

    def to_storage(self, host_slots: Tensor) -> None:
        """Pages of the host are to be written to the storage: `writing` and `wrote` follow, with the same tensor."""
        self._backups[id(host_slots)] = self._read(self._pages.of_host(host_slots))

    def from_storage(self, backend: object, keys: Sequence[str], host_slots: Tensor) -> None:
        """Pages were read from the storage into the host's pool, one for each key."""
        self._stored.of(backend)
        self._pages.from_storage(host_slots, self._stored.words(keys))

    def writing(self, backend: object, keys: Sequence[str], exists: Callable[[str], bool]) -> list[bool]:
        """The storage is about to be given these keys: which of them it has already."""
        self._stored.of(backend)
        return self._stored.before_write(keys, exists)

    def wrote(self, host_slots: Tensor, keys: Sequence[str], there: Sequence[bool], *, keeps_first: bool) -> None:
        """It took these, perhaps fewer than it was given; see `Stored.written`."""
        going = self._backups.pop(id(host_slots), None)
        words = [UNSEEN] * len(keys) if going is None else going.values()
        self._stored.written(keys, words[: len(keys)], there[: len(keys)], keeps_first=keeps_first)
