"""The JSON of `checker diff --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from checker.diff.facts import Difference, Facts
from checker.results import Report, Result
from spec.profile import Profile

SCHEMA = 1
_NOWHERE = "(not there)"


class Change(msgspec.Struct, frozen=True):
    """A property whose verdict differs in one configuration."""

    property: str
    loop: str
    configuration: Mapping[str, str | int]
    a: str
    b: str
    reason: str
    """Why B decides as it does; for what is not there, why A did."""


class DiffReport(msgspec.Struct, frozen=True):
    """The whole answer. `verdicts` is null where no verdict was asked for, or no fact differs."""

    schema: int
    a: str
    b: str
    alike: bool
    facts: Sequence[Difference]
    places: Sequence[Difference]
    """Entries that name another function of the engine for the same fact. They make no difference."""
    verdicts: Sequence[Change] | None = None
    complete: bool = True


def changes(a: Report, b: Report) -> list[Change]:
    """What the two decide differently, in the order of A and then of B."""
    left, right = ({_key(r): r for r in report.results} for report in (a, b))
    found = []
    for key in dict.fromkeys([*left, *right]):
        one, other = left.get(key), right.get(key)
        verdicts = [r.verdict if r else _NOWHERE for r in (one, other)]
        if verdicts[0] != verdicts[1]:
            told = other or one
            if told:
                found.append(
                    Change(told.property, told.loop, told.configuration, verdicts[0], verdicts[1], told.reason)
                )
    return found


def _key(result: Result) -> tuple[object, ...]:
    return result.property, result.loop, tuple(sorted(result.configuration.items()))


def report(names: tuple[str, str], facts: Facts, verdicts: list[Change] | None, *, complete: bool) -> DiffReport:
    """The answer as data."""
    return DiffReport(SCHEMA, *names, not facts.facts, facts.facts, facts.places, verdicts, complete)


def title(name: str, profile: Profile) -> str:
    """One side, as it was named and as it calls itself."""
    return name if name == profile.name else f"{name} ({profile.name})"
