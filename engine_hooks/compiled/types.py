"""The shape of what `python -m checker.compile` generates from the spec, one module for each engine version.

A predicate reads an observation by attribute; the attributes are the names of the spec's state variables, so that the
Z3 term and the compiled function can be compared on the same state (tests/spec/test_compile.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
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


Region = tuple[tuple[str, ...], str, tuple[str, ...], Predicate | None, tuple[str, ...]]
"""Loops with one stuck region: the storage, the remedies, the region where there is one, the ledgers that make it."""


@dataclass(frozen=True)
class Repaired:
    """What a remedy makes of a profile's predicates: those that differ, by their names in the profile."""

    gates: Mapping[str, Predicate] = field(default_factory=dict)
    blockers: Mapping[str, Mapping[str, Predicate]] = field(default_factory=dict)
    always: Mapping[str, Predicate] = field(default_factory=dict)


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
    bearing: tuple[str, ...] | None = None
    """The remedies that change a stuck region, sorted: the others are no part of its key. None: each may."""
    repaired: Mapping[str, Repaired] = field(default_factory=dict)
    """Remedy to what it makes of the predicates above."""
    plain: Predicate | None = None
    """The gate that a paused pass records by, where a remedy has given `deferred_flush` another."""

    def under(self, remedies: Iterable[str]) -> CompiledProfile:
        """This profile with what these remedies make of its predicates."""
        profile = self
        for name in remedies:
            repaired = self.repaired.get(name, Repaired())
            profile = replace(
                profile,
                gates={**profile.gates, **repaired.gates},
                blockers={**profile.blockers, **repaired.blockers},
                always={**profile.always, **repaired.always},
                plain=profile.recorded_gate,
            )
        return profile

    @property
    def recorded_gate(self) -> Predicate:
        """The engine's plain gate: without an option, as the record and the attach of a storage ask it."""
        return self.plain or self.gates["deferred_flush"]

    def left_alone(self, key: StuckKey) -> tuple[str, ...]:
        """The ledgers that no pass of such a pause retires, of any mode; none where that is not known."""
        stuck = self.stuck_ledgers.get(replace(key, mode="retract"), {})
        return tuple(name for ledgers in stuck.values() for name in ledgers)

    def region_key(self, key: StuckKey) -> StuckKey:
        """The key of the region that holds with these remedies."""
        if self.bearing is None:
            return key
        return replace(key, remedies=tuple(name for name in key.remedies if name in self.bearing))
