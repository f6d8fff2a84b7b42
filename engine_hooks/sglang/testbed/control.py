"""A switchboard in shared memory between a test and the ranks of the engine under test.

Each rank owns one small file in the control directory, which both sides map. An all-zero file means "nothing held,
nothing delayed, nothing fails", so either side may create it first and no handshake is needed. Each word has a single
writer (the test the switches, the engine the counters) and an aligned store of 8 bytes is atomic, so no lock crosses
the border between processes, and each side survives the death of the other.

The operations of a kind are numbered from 0 in the order in which the engine submits them, and the switches speak in
those numbers. That keeps a test deterministic: "fail the next two" is "fail every number below submitted + 2".
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

VARIABLE = "QUIESCE_TESTBED"
"""Environment variable with the control directory. Without it the testbed's plugin does nothing."""
SPIN_VARIABLE = "QUIESCE_TESTBED_SPIN"
"""Set where passes are timed: a loop without work spins, as in production, instead of resting a millisecond a pass."""

_FILE_BYTES = 4096
_BLOCK_WORDS = 16
_POLL_SECONDS = 0.0005


class Kind(StrEnum):
    """What can be held, stepped, delayed and failed."""

    D2H = "d2h"
    """Device to host: a write-through, or a write-back."""
    H2D = "h2d"
    """Host to device: a load-back. Delay it rather than hold it: the forward that needs it waits in the scheduler."""
    STORAGE_QUERY = "storage_query"
    """Which of these pages does the storage have."""
    STORAGE_READ = "storage_read"
    STORAGE_WRITE = "storage_write"
    PD_SEND = "pd_send"
    """KV on its way from a prefill to a decode worker, on the ranks of the former."""
    GRAMMAR = "grammar"
    """The compilation of a request's grammar, by a thread of the engine."""
    LOOP_PASS = "loop_pass"  # noqa: S105 - no password
    """A pass of the event loop, from its ingest on. While it is held the scheduler stays in ingest and handles what
    comes there, so that single steps of the loop stand between messages (`passes`). For an engine of one rank."""
    REQUEST = "request"
    """A request on its way from the tokenizer to the scheduler. For an engine of one rank, like the next."""
    MESSAGE = "message"
    """Any other message on that way, e.g. a pause."""


TRANSFERS = (Kind.D2H, Kind.H2D, Kind.STORAGE_QUERY, Kind.STORAGE_READ, Kind.STORAGE_WRITE, Kind.PD_SEND, Kind.GRAMMAR)
"""What copies, asks or compiles. The other kinds are of the event loop, which never ends; nothing of them can fail."""


class _Word(IntEnum):
    """Offsets inside a block: first what the test writes, then, from 8, what the engine writes."""

    HOLD = 0
    PASS_BELOW = 1
    DELAY_US = 2
    FAIL_BELOW = 3
    FAIL_RAISES = 4
    SUBMITTED = 8
    STARTED = 9
    DONE = 10
    FAILED = 11


# Block 0 belongs to the rank itself; each kind has one after it.
_INSTALLED = 8


class InjectedFailureError(RuntimeError):
    """Raised inside the engine where a test asked an operation to fail."""


@dataclass(frozen=True)
class RankId:
    """Which scheduler of an engine: its data-, pipeline- and tensor-parallel rank."""

    dp: int = 0
    pp: int = 0
    tp: int = 0

    @property
    def file_name(self) -> str:
        """Name of the rank's file in the control directory."""
        return f"dp{self.dp}-pp{self.pp}-tp{self.tp}.ctl"


def _map_words(path: Path) -> memoryview:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(fd).st_size < _FILE_BYTES:
            os.ftruncate(fd, _FILE_BYTES)
        return memoryview(mmap.mmap(fd, _FILE_BYTES)).cast("Q")
    finally:
        os.close(fd)


def _block(words: memoryview, kind: Kind) -> memoryview:
    start = (1 + list(Kind).index(kind)) * _BLOCK_WORDS
    return words[start : start + _BLOCK_WORDS]


class Gate:
    """Engine side: one rank's operations of one kind pass through here."""

    def __init__(self, words: memoryview, kind: Kind) -> None:
        self._words = _block(words, kind)
        self._kind = kind
        # Several threads of the engine may share a kind, and each word must keep a single writer at a time.
        self._lock = threading.Lock()

    def _count(self, word: _Word) -> int:
        with self._lock:
            value = int(self._words[word])
            self._words[word] = value + 1
        return value

    def submit(self) -> int:
        """Number a new operation, from 0."""
        return self._count(_Word.SUBMITTED)

    def enter(self, number: int) -> None:
        """Block until the test lets operation `number` run, then for its delay."""
        while self.holds(number):
            time.sleep(_POLL_SECONDS)
        self._count(_Word.STARTED)
        if self._words[_Word.DELAY_US]:
            time.sleep(self._words[_Word.DELAY_US] / 1e6)

    def holds(self, number: int) -> bool:
        """Whether the test keeps operation `number` from running."""
        return bool(self._words[_Word.HOLD] and number >= self._words[_Word.PASS_BELOW])

    def fails(self, number: int) -> bool:
        """Whether the test wants operation `number` to fail.

        Raises:
            InjectedFailureError: the test wants it to fail with an exception.
        """
        if number >= self._words[_Word.FAIL_BELOW]:
            return False
        self._count(_Word.FAILED)
        if self._words[_Word.FAIL_RAISES]:
            raise InjectedFailureError(f"{self._kind} operation {number} was told to fail")
        return True

    def leave(self) -> None:
        """Count an operation that entered as done."""
        self._count(_Word.DONE)

    def run(self, operation: Callable[[], object], refusal: Callable[[], object] | None = None) -> object:
        """One operation, when the test lets it; where it is to fail, what `refusal` gives instead.

        Raises:
            InjectedFailureError: it is to fail, and only an exception says so.
        """
        number = self.submit()
        self.enter(number)
        if self.fails(number):
            if refusal is None:
                raise InjectedFailureError(f"{self._kind} operation {number} was told to fail")
            return refusal()
        try:
            return operation()
        finally:
            self.leave()


class RankGates:
    """Engine side: the gates of one rank, and its report that the testbed is in place."""

    def __init__(self, directory: Path, rank: RankId) -> None:
        self._words = _map_words(directory / rank.file_name)
        self._gates = {kind: Gate(self._words, kind) for kind in Kind}

    def __getitem__(self, kind: Kind) -> Gate:
        return self._gates[kind]

    def report_installed(self) -> None:
        """Tell the launching side that every substitute of this rank is in place."""
        self._words[_INSTALLED] = 1


def report_failure(directory: Path, text: str) -> None:
    """Engine side: tell the launching side that this process cannot run under the testbed, and why."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"failure-{os.getpid()}.txt").write_text(text)


class Switch:
    """Test side: the switches and counters of one kind on one rank."""

    def __init__(self, words: memoryview, kind: Kind, label: str) -> None:
        self._words = _block(words, kind)
        self._label = f"{label} {kind}"

    def hold(self) -> None:
        """Let nothing that has not started yet run, until `release`."""
        self._words[_Word.PASS_BELOW] = 0
        self._words[_Word.HOLD] = 1

    def release(self) -> None:
        """Let everything run."""
        self._words[_Word.HOLD] = 0

    def step(self, count: int = 1) -> None:
        """Let `count` more held operations run, and no others."""
        self._words[_Word.PASS_BELOW] = max(self._words[_Word.PASS_BELOW], self.started) + count

    def delay(self, seconds: float) -> None:
        """Make every operation take this much longer; 0 ends it."""
        self._words[_Word.DELAY_US] = int(seconds * 1e6)

    def fail_next(self, count: int = 1, *, raises: bool = False) -> None:
        """Fail the next `count` operations submitted: as the operation itself reports failure, or with an exception."""
        self._words[_Word.FAIL_RAISES] = int(raises)
        self._words[_Word.FAIL_BELOW] = self.submitted + count

    def restore(self) -> None:
        """Nothing held, nothing delayed, nothing fails."""
        self.release()
        self.delay(0)
        self._words[_Word.FAIL_BELOW] = 0

    @property
    def submitted(self) -> int:
        """Operations submitted since the engine started."""
        return int(self._words[_Word.SUBMITTED])

    @property
    def started(self) -> int:
        """Operations that were let through."""
        return int(self._words[_Word.STARTED])

    @property
    def done(self) -> int:
        """Operations that ran to their end."""
        return int(self._words[_Word.DONE])

    @property
    def failed(self) -> int:
        """Operations that failed because the test asked for it."""
        return int(self._words[_Word.FAILED])

    @property
    def in_flight(self) -> int:
        """Operations submitted and neither done nor failed."""
        # The counters are read one after the other while the engine moves on. What ends an operation is read first,
        # so that an operation in between counts as in flight: too many for a moment, never too few.
        ended = self.done + self.failed
        return self.submitted - ended

    def wait(self, condition: Callable[[Switch], bool], seconds: float = 60.0) -> None:
        """Wait until `condition(self)`.

        Raises:
            TimeoutError: it did not become true within `seconds`; the message carries the counters.
        """
        deadline = time.monotonic() + seconds
        while not condition(self):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} did not get there within {seconds} s")
            time.sleep(_POLL_SECONDS)

    def wait_in_flight(self, count: int = 1, seconds: float = 60.0) -> None:
        """Wait until at least `count` operations are in flight. Raises `TimeoutError`."""
        self.wait(lambda switch: switch.in_flight >= count, seconds)

    def wait_idle(self, seconds: float = 60.0) -> None:
        """Wait until nothing is in flight. Raises `TimeoutError`."""
        self.wait(lambda switch: switch.in_flight == 0, seconds)

    def __repr__(self) -> str:
        return (
            f"<{self._label}: submitted={self.submitted} started={self.started} done={self.done} failed={self.failed}>"
        )


class RankControl:
    """Test side: the switches of one rank, one attribute a kind, e.g. `rank.d2h.hold()`."""

    def __init__(self, directory: Path, rank: RankId) -> None:
        self._words = _map_words(directory / rank.file_name)
        label = rank.file_name.removesuffix(".ctl")
        self._switches = {kind: Switch(self._words, kind, label) for kind in Kind}
        self.d2h = self._switches[Kind.D2H]
        self.h2d = self._switches[Kind.H2D]
        self.storage_query = self._switches[Kind.STORAGE_QUERY]
        self.storage_read = self._switches[Kind.STORAGE_READ]
        self.storage_write = self._switches[Kind.STORAGE_WRITE]
        self.pd_send = self._switches[Kind.PD_SEND]
        self.grammar = self._switches[Kind.GRAMMAR]
        self.passes = self._switches[Kind.LOOP_PASS]
        self.requests = self._switches[Kind.REQUEST]
        self.messages = self._switches[Kind.MESSAGE]

    @property
    def switches(self) -> Mapping[Kind, Switch]:
        """The switch of each kind of transfer."""
        return {kind: self._switches[kind] for kind in TRANSFERS}

    @property
    def installed(self) -> bool:
        """Whether the rank has reported that the testbed is in place."""
        return bool(self._words[_INSTALLED])

    def restore(self) -> None:
        """Nothing held, nothing delayed, nothing fails, of any kind."""
        for switch in self._switches.values():
            switch.restore()

    def wait_idle(self, seconds: float = 60.0) -> None:
        """Wait until no transfer of any kind is in flight. Raises `TimeoutError`."""
        for switch in self.switches.values():
            switch.wait_idle(seconds)


class Control:
    """Test side: the switchboard of one engine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ranks: dict[RankId, RankControl] = {}

    def rank(self, *, dp: int = 0, pp: int = 0, tp: int = 0) -> RankControl:
        """The switches of one rank. The rank need not exist yet."""
        rank = RankId(dp=dp, pp=pp, tp=tp)
        if rank not in self._ranks:
            self._ranks[rank] = RankControl(self.directory, rank)
        return self._ranks[rank]

    def installed_ranks(self) -> int:
        """How many ranks have reported that the testbed is in place."""
        return sum(bool(_map_words(path)[_INSTALLED]) for path in self.directory.glob("*.ctl"))

    def failures(self) -> Iterator[str]:
        """What the engine's processes reported by `report_failure`."""
        for path in sorted(self.directory.glob("failure-*.txt")):
            yield path.read_text()
