"""What one monitor watches."""

from __future__ import annotations

from dataclasses import dataclass

from engine_hooks.monitor_overdue import PATIENCE_SECONDS
from engine_hooks.observation import NOWHERE, Rank


@dataclass(frozen=True)
class MonitorOptions:
    """What one monitor watches."""

    rank: Rank = NOWHERE
    loop: str = "normal"
    remedies: tuple[str, ...] = ()
    """The active remedies, sorted: a stuck region holds for exactly these."""
    enforce: bool = False
    """Raise ProtocolViolationError and LostSightError; for CI."""
    unasked: frozenset[str] = frozenset(("lineage",))
    """Hooks that are off because nobody asked for them, which is no loss."""
    patience: float = PATIENCE_SECONDS
    """How long (s) what must come at some time may take."""
