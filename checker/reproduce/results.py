"""What a reproduction says, as data: the JSON of `checker reproduce --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from checker.results import EngineInfo, Trace
from checker.verdict import EXIT_PROVED, EXIT_REFUTED, EXIT_UNKNOWN

SCHEMA = 1


class Outcome(StrEnum):
    """What became of a counterexample on the real engine."""

    CONFIRMED = "confirmed"
    NOT_REPRODUCED = "not-reproduced"
    CANNOT_BE_DRIVEN = "cannot-be-driven"


EXIT_CODES: Mapping[Outcome, int] = {
    Outcome.CONFIRMED: EXIT_PROVED,
    Outcome.NOT_REPRODUCED: EXIT_REFUTED,
    Outcome.CANNOT_BE_DRIVEN: EXIT_UNKNOWN,
}


class Reproduction(msgspec.Struct, frozen=True):
    """One counterexample on the real engine."""

    property: str
    loop: str
    configuration: Mapping[str, str | int]
    reason: str
    outcome: str
    runs: int
    """How often it was run; 0 where it cannot be driven."""
    confirmed: int
    """In how many of them the violation was seen."""
    departure: str
    """Where the engine departed from the model, in the first run that did; or why it cannot be driven."""
    answers: Sequence[str]
    """What the engine answered, in the first run that departed, else in the last."""
    schedule: Sequence[str]
    """The moves that were run, as calls of the testbed's driver."""
    trace: Trace | None


class Reproductions(msgspec.Struct, frozen=True):
    """The whole answer. `remedies` are those that the engine ran with."""

    schema: int
    engine: EngineInfo
    remedies: Sequence[str]
    results: Sequence[Reproduction]
    outcome: str


def worst(outcomes: Sequence[str]) -> Outcome:
    """The one that counts: not reproduced before cannot be driven before confirmed. Nothing at all cannot be driven."""
    order = (Outcome.NOT_REPRODUCED, Outcome.CANNOT_BE_DRIVEN, Outcome.CONFIRMED)
    return next((o for o in order if o in outcomes), Outcome.CANNOT_BE_DRIVEN)
