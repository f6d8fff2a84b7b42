"""What the subjects of one process share, so that it is worked out once; no verdict is among it."""

from __future__ import annotations

from dataclasses import dataclass, field

from checker.proof.interpreter import Compiler
from checker.proof.lemmas import Failed
from spec.interned import Interned


@dataclass
class Shared:
    """Actions, each kept once, and what depends on the action alone."""

    actions: Interned = field(default_factory=Interned)
    compiler: Compiler = field(default_factory=Compiler)
    failed: Failed = field(default_factory=Failed)
    """Candidates for lemmas that are better tried last."""
    falling: dict[int, frozenset[str]] = field(default_factory=dict)
    """By identity of the action: the counters that it may take below 0."""
