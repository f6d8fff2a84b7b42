"""What earlier configurations taught: tried first in the next one, never trusted.

A run of one configuration is replayed step by step in another, and counts only if it breaks the claim there. A rank is
checked like any other. So a hint can save time, and cannot change a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from checker.proof.interpreter import Step

Parts = tuple[tuple[int, str], ...]


@dataclass
class Hints:
    """By claim: the runs that broke it, and the rank that proved it."""

    runs: dict[str, list[tuple[Step, ...]]] = field(default_factory=dict)
    ranks: dict[str, list[Parts]] = field(default_factory=dict)

    def refuted(self, claim: str, steps: Sequence[Step]) -> None:
        """Remember a run."""
        self.runs.setdefault(claim, []).insert(0, tuple(steps))

    def proved(self, claim: str, rank: Sequence[Parts]) -> None:
        """Remember a rank."""
        self.ranks[claim] = list(rank)
