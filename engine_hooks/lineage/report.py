"""What is made of a reading: counters, a violation, and a line in the log for what is none, but not clean."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine_hooks.lineage.words import MIXED, STALE, UNKNOWN, Reading

if TYPE_CHECKING:
    from engine_hooks.monitor_board import Board

logger = logging.getLogger("quiesce")

_SAID = {
    MIXED: "mixed by choice: a batch read KV of older weights, and nobody asked for a flush since",
    UNKNOWN: "a batch read KV of which it is unknown which weights computed it",
}


class Report:
    """Takes the readings of one engine."""

    def __init__(self, board: Board, violated: Callable[[str], None], epoch: Callable[[], int]) -> None:
        """`violated` is told which requests read stale tokens; `epoch` says the epoch now."""
        self._board = board
        self._violated = violated
        self._epoch = epoch
        self._said: dict[int, int] = {}

    def __call__(self, reading: Reading) -> None:
        """Count a reading; what is mixed or unknown is logged once an epoch, what is stale is a violation."""
        total = reading.total()
        for (tier, lineage), number in total.items():
            self._board.count("kv_tokens_read_total", tier, lineage, by=number)
        for kind, text in _SAID.items():
            told = reading.told(kind)
            if told and self._said.get(kind) != self._epoch():
                self._said[kind] = self._epoch()
                logger.warning("quiesce: %s: %s", text, told)
        stale = reading.told(STALE)
        if stale:
            self._violated(stale)
