"""Which scheduler a record or a trace comes from: the first fields of the header of either."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scheduler rank of one engine, and what watched it."""

    schema: int
    engine: str
    engine_version: str
    version: str
    """Of Quiesce."""
    profile: str
    spec_digest: str
    rank: Mapping[str, int]
    loop: str
    remedies: tuple[str, ...]
    """Active ones."""
