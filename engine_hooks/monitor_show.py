"""What the monitor shows of an observation: entries in flight, and what holds a flush back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine_hooks.compiled import CompiledProfile
    from engine_hooks.monitor_board import Board
    from engine_hooks.observation import Observation


def show_blockers(
    board: Board, profile: CompiledProfile, names: Iterable[str], seen: Observation | None, gate: str = "flush"
) -> None:
    """Which of `names` close the gate in `seen`; none where it is None."""
    relevant = profile.blockers[gate]
    for name in names:
        value = seen is not None and name in relevant and relevant[name](seen)
        board.show("flush_blocked", name, value=int(value), urgent=True)


def show_ledgers(board: Board, profile: CompiledProfile, seen: Observation) -> None:
    """The entries of each ledger by stage, and since when its oldest has been seen."""
    for name, ledger in profile.ledgers.items():
        for stage, attributes in ledger.stages.items():
            number = sum(getattr(seen, attribute) for attribute in attributes)
            board.show("ledger_entries", name, stage, value=number)
        board.show("ledger_oldest_timestamp_seconds", name, value=seen.oldest.get(name, 0))
