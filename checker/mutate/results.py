"""What a mutation run says, as data: the JSON of `checker mutate --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

SCHEMA = 1
EQUIVALENT = Path(__file__).parent / "equivalent.toml"


class Outcome(msgspec.Struct, frozen=True):
    """One mutant. `how` and `property` say what killed it; for a survivor they are empty, and `reason` may say why."""

    mutant: str
    kind: str
    killed: bool
    how: str = ""
    property: str = ""
    reason: str = ""
    seconds: float = 0.0


class Report(msgspec.Struct, frozen=True):
    """The whole answer. `mutants` is how many there are, of which `outcomes` holds the sample that was tried."""

    schema: int
    profile: str
    remedies: Sequence[str]
    configuration: Mapping[str, str | int]
    seed: int
    mutants: int
    outcomes: Sequence[Outcome]
    complete: bool = True

    @property
    def killed(self) -> Sequence[Outcome]:
        """Those that some property noticed."""
        return [o for o in self.outcomes if o.killed]

    @property
    def equivalent(self) -> Sequence[Outcome]:
        """Survivors that are judged to be no other spec, or none that a property of the catalogue speaks of."""
        return [o for o in self.outcomes if not o.killed and o.reason]

    @property
    def survived(self) -> Sequence[Outcome]:
        """Survivors that nobody has judged."""
        return [o for o in self.outcomes if not o.killed and not o.reason]


class _Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of equivalent.toml: the mutants it speaks of, by their names, and why each is equivalent."""

    reason: str
    mutants: Sequence[str]


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    equivalent: Sequence[_Judged]


def reasons(path: Path = EQUIVALENT) -> Mapping[str, str]:
    """Why mutants are judged equivalent, by their names."""
    found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _List)
    return {mutant: judged.reason for judged in found.equivalent for mutant in judged.mutants}
