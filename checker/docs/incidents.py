"""The public incidents that the catalogue was read from, retold in one sentence each."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from checker.docs.errors import DocsError
from spec.properties import catalogue


class Incident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One issue or pull request."""

    id: str
    url: str
    properties: Sequence[str]
    """What it would have broken, by id; the first is the one that speaks of it most directly."""
    told: str
    state: str
    """Whether SGLang 0.5.23 still has it, as far as reading its source tells."""


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    incident: Sequence[Incident]


@cache
def incidents() -> Sequence[Incident]:
    """All of them, in the order of the file. Raises DocsError for one of an unknown property."""
    text = (files("checker.docs") / "incidents.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), _List).incident
    for one in found:
        if not one.properties or not set(one.properties) <= set(catalogue()):
            raise DocsError(f"incidents.toml: {one.id}: properties must be ids of the catalogue, are {one.properties}")
    return found
