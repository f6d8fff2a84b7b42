"""The shape of what `python -m checker.compile` generates from the spec, one module for each engine version.

A predicate reads an observation by attribute; the attributes are the names of the spec's state variables, so that the
Z3 term and the compiled function can be compared on the same state (tests/spec/test_compile.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# An observation, or any object with the spec's variables as attributes.
State = Any
Predicate = Callable[[State], bool]
StepPredicate = Callable[[State, State], bool]


@dataclass(frozen=True)
class CompiledLedger:
    """One ledger: which observed counters make up its stages, and who retires its ready entries."""

    stages: Mapping[str, tuple[str, ...]]
    """Metric stage (queued, submitted, ready) to the observation's attributes that add up to it."""
    reaper: str
    """The engine's function that retires ready entries, as `file:function`."""
    needs_storage: bool = False
    """The ledger exists only where the engine has a storage backend."""


@dataclass(frozen=True)
class StuckKey:
    """What a stuck region was proved for."""

    loop: str
    mode: str
    storage: str
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompiledProfile:
    """Everything that the monitor needs of the spec, for one engine version."""

    engine: str
    engine_version: str
    profile: str
    spec_digest: str
    variables: tuple[str, ...]
    """Every attribute that some predicate below reads."""
    ledgers: Mapping[str, CompiledLedger]
    gates: Mapping[str, Predicate]
    """`flush` (immediate) and `deferred_flush`: whether the gate is open in this state."""
    blockers: Mapping[str, Mapping[str, Predicate]]
    """Gate to (ledger or engine term to: it blocks the gate in this state)."""
    stuck: Mapping[StuckKey, Mapping[str, Predicate]]
    """Property to its stuck region: while this holds, nothing but help can reach the goal."""
    stuck_ledgers: Mapping[StuckKey, Mapping[str, tuple[str, ...]]]
    """Property to the ledgers whose entries make the region."""
    always: Mapping[str, Predicate]
    """Safety property to the predicate that must hold of every observation."""
    steps: Mapping[str, StepPredicate] = field(default_factory=dict)
    """Safety property to the predicate that must hold of each pass (before, after)."""
    remedies: Mapping[str, str] = field(default_factory=dict)
    """Remedy to one line: what it changes."""
