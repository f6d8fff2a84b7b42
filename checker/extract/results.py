"""The JSON of `checker extract --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from checker.extract.read import Extraction

SCHEMA = 1


class FactEntry(msgspec.Struct, frozen=True):
    """One entry of the profile, by its key, and where in the engine's package it was read."""

    key: str
    value: Any
    file: str
    function: str
    line: int


class UnknownEntry(msgspec.Struct, frozen=True):
    """One entry that the source does not decide; no verdict rests on what the profile has there."""

    key: str
    reason: str
    file: str | None = None
    function: str | None = None
    line: int | None = None


class ExtractReport(msgspec.Struct, frozen=True):
    """The whole answer. `profile` is what the file would hold; facts of `peers` are told beside it."""

    schema: int
    engine: str
    version: str
    facts: Sequence[FactEntry]
    unknown: Sequence[UnknownEntry]
    profile: Mapping[str, Any]


def report(extraction: Extraction) -> ExtractReport:
    """What was extracted, as data."""
    facts = [FactEntry(f.name, f.value, f.place.file, f.place.function, f.place.line) for f in extraction.facts]
    unknown = []
    for one in extraction.unknowns:
        place = (one.place.file, one.place.function, one.place.line) if one.place else (None, None, None)
        unknown.append(UnknownEntry(one.name, one.reason, *place))
    return ExtractReport(SCHEMA, "sglang", extraction.version, facts, unknown, extraction.raw)
