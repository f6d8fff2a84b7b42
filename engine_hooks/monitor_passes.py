"""Counts the checks of passes: one that says what the last one said is counted, and not judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine_hooks.monitor_board import Board

Said = tuple[Any, Any]
"""What the start (None where none was read) and the end of a pass say."""


class Passes:
    """The last pass, what was judged of it, and how often it was repeated."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._judged: list[str] = []
        self._last: Said | None = None
        self._repeated = 0

    def checked(self, property_id: str) -> None:
        """A property was judged of this pass."""
        self._judged.append(property_id)
        self._board.checked(property_id)

    @property
    def ended(self) -> Any:  # noqa: ANN401 - the values of an observation
        """What the end of the last pass said, where mostly a paused one begins; None where that is forgotten."""
        return None if self._last is None else self._last[1]

    def repeats(self, said: Said) -> bool:
        """Whether this pass says what the last one said. Predicates are functions of it, so its checks are too.

        A paused loop spins, so almost every pass is one.
        """
        if said == self._last:
            self._repeated += 1
            return True
        self.settle()
        self._last = said
        self._judged.clear()
        return False

    def settle(self) -> None:
        """Count what was judged of the last pass for each of its repetitions."""
        if self._repeated:
            for property_id in self._judged:
                self._board.checked(property_id, self._repeated)
            self._repeated = 0

    def forget(self) -> None:
        """The next pass is judged, whatever it says."""
        self._last = None
