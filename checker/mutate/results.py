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
        """Survivors that take the same steps as the spec."""
        return [o for o in self.outcomes if not o.killed and o.reason]

    @property
    def survived(self) -> Sequence[Outcome]:
        """The other survivors: a property is missing, or is refuted already."""
        return [o for o in self.outcomes if not o.killed and not o.reason]


class _Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of equivalent.toml: the configurations and mutants that it speaks of, and why these are equivalent."""

    where: Sequence[str]
    reason: str
    mutants: Sequence[str]


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    equivalent: Sequence[_Judged]


def reasons(place: str, path: Path = EQUIVALENT) -> Mapping[str, str]:
    """Why mutants of one configuration (`loop mode storage`) are equivalent, by their names."""
    found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _List)
    return {mutant: judged.reason for judged in found.equivalent if place in judged.where for mutant in judged.mutants}
