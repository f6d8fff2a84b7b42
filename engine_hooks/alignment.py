"""What a rank was made to do, as one number by which ranks can be compared from outside.

Ranks of one replica get the same control requests in the same passes, decide them alike, and so enter the same
collectives. That two of them no longer do shows here at the next request, without a collective of our own.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_hooks.monitor_board import Board


class Alignment:
    """The digest of all that was done on this rank, in its order, each with the number of its pass."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._digest = 0

    def did(self, what: str, number: int | None) -> None:
        """A control request was decided, in the pass after number `number`; None: when each rank's own clock says."""
        self._digest = zlib.crc32(f"{what} {number}".encode(), self._digest)
        self._board.show("protocol_digest", value=self._digest, urgent=True)
