"""What earlier configurations taught: tried first in the next one, never trusted.

A run of one configuration is replayed step by step in another, and counts only if it breaks the claim there. A rank is
checked like any other. A proof is carried over only where its obligations hold. So a hint can save time, and cannot
change a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from checker.kept.model import Kept
from checker.proof.interpreter import Step
from checker.shared import Shared

Parts = tuple[tuple[int, str], ...]
Known = TypeVar("Known")


@dataclass
class Hints(Generic[Known]):
    """By claim: the runs that broke it, the rank that proved it, and how it was decided last."""

    runs: dict[str, list[tuple[Step, ...]]] = field(default_factory=dict)
    ranks: dict[str, list[Parts]] = field(default_factory=dict)
    decided: dict[str, Known] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    kept: Kept | None = None
    """What an earlier search found."""

    def refuted(self, claim: str, steps: Sequence[Step]) -> None:
        """Remember a run."""
        self.runs.setdefault(claim, []).insert(0, tuple(steps))

    def proved(self, claim: str, rank: Sequence[Parts]) -> None:
        """Remember a rank."""
        self.ranks[claim] = list(rank)
