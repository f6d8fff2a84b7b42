"""Steps a scheduler's event loop one pass at a time, and holds back what is on its way to it.

The engine's own ingest, `Scheduler.ingest_requests`, is what a held pass repeats: messages are received and handled as
ever, only more than once before the pass goes on. So what comes while a pass is held is handled as if it had come in
one poll, and everything that the engine does in each ingest (a deferred flush, the time-outs of requests) goes on.

For an engine of one rank: the receiver broadcasts to the other ranks, which would have to be held and stepped alike.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine_hooks.sglang.testbed.control import Gate, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_SECONDS = 0.0005
# What the tokenizer sends for clients, by the names of its classes (sglang/srt/managers/io_struct.py).
_REQUESTS = ("TokenizedGenerate", "BatchTokenizedGenerate", "TokenizedEmbedding", "BatchTokenizedEmbedding")


class Intake:
    """The hooks around one scheduler's receiving and ingest."""

    def __init__(self, gates: Callable[[Kind], Gate]) -> None:
        self._gates = gates
        self._on_the_way: list[tuple[Gate, int, object]] = []
        self._passing = False

    def receive(
        self, recv_requests: Callable[..., list[object]], receiver: object, *args: object, **kwargs: object
    ) -> list[object]:
        """Number what has come, and hand over what is not held."""
        for message in recv_requests(receiver, *args, **kwargs):
            gate = self._gates(kind_of(message))
            self._on_the_way.append((gate, gate.submit(), message))
        arrived, self._on_the_way = (
            [entry for entry in self._on_the_way if entry[0].holds(entry[1]) is held] for held in (False, True)
        )
        for gate, number, _ in arrived:
            gate.enter(number)
        return [message for _, _, message in arrived]

    def ingest(
        self, ingest_requests: Callable[..., list[object]], scheduler: object, *args: object, **kwargs: object
    ) -> list[object]:
        """Ingest; and again, as long as the pass that would follow is held."""
        passes = self._gates(Kind.LOOP_PASS)
        if self._passing:
            passes.leave()
        handled = self._once(ingest_requests, scheduler, *args, **kwargs)
        number = passes.submit()
        while passes.holds(number):
            time.sleep(_POLL_SECONDS)
            handled = handled + self._once(ingest_requests, scheduler, *args, **kwargs)
        passes.enter(number)
        self._passing = True
        return handled

    def _once(self, ingest_requests: Callable[..., list[object]], *args: object, **kwargs: object) -> list[object]:
        """One ingest; a message counts as done when its handler has returned."""
        handled = ingest_requests(*args, **kwargs)
        for message in handled:
            self._gates(kind_of(message)).leave()
        return handled


def kind_of(message: object) -> Kind:
    """Whether a message is a request or something else."""
    return Kind.REQUEST if type(message).__name__.startswith(_REQUESTS) else Kind.MESSAGE
