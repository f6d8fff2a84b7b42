"""The facts in which two profiles differ, entry by entry. Where an entry was read from is no fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from checker.extract.read import extract, is_place, leaves
from spec.profile import Profile, load_profile

INSTALLED = "installed"
# What the profile is called, where it lies, and our own differences of it.
_NAMES = ("name", "version", "raw", "path", "applied", "remedies", "variants")
_ABSENT = "(not there)"


class Difference(msgspec.Struct, frozen=True):
    """One entry, by its key, and what the two say there."""

    key: str
    a: Any
    b: Any


class Facts(msgspec.Struct, frozen=True):
    """Where two profiles differ: in facts, and in the functions that they name for the same facts."""

    facts: list[Difference]
    places: list[Difference]


def side(name: str) -> Profile:
    """A profile by its name, its TOML file, the folder of an engine's package, or `installed`. Raises QuiesceError."""
    if name == INSTALLED:
        return extract().profile
    if Path(name).is_dir():
        return extract(name).profile
    return load_profile(name)


def facts_of(profile: Profile) -> dict[str, Any]:
    """Every entry by its key, defaults too. An entry that is unknown says so."""
    table = {key: value for key, value in asdict(profile).items() if key not in _NAMES and value is not None}
    unknown = table.pop("unknown")
    found: dict[str, Any] = {}
    for key in leaves(table):
        value: Any = table
        for part in key:
            value = value[part]
        found[".".join(key)] = value
    return found | {key: f"unknown: {reason}" for key, reason in unknown.items()}


def compare(a: Profile, b: Profile) -> Facts:
    """The differences, in the order of the keys."""
    left, right = facts_of(a), facts_of(b)
    facts: list[Difference] = []
    places: list[Difference] = []
    for key in dict.fromkeys([*left, *right]):
        one, other = left.get(key, _ABSENT), right.get(key, _ABSENT)
        if one == other:
            continue
        same = _without_places(one) == _without_places(other)
        (places if same else facts).append(Difference(key, _plain(one), _plain(other)))
    return Facts(facts, places)


def _without_places(value: Any) -> Any:  # noqa: ANN401 - any value of a profile
    if isinstance(value, Mapping):
        return {k: _without_places(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(v) for v in value]
    return "(a place)" if is_place(value) else value


def _plain(value: Any) -> Any:  # noqa: ANN401 - as above
    """Without defaults that say nothing, as the file would have it."""
    if isinstance(value, Mapping):
        return {k.rstrip("_"): _plain(v) for k, v in value.items() if v is not None and v is not False and v != "none"}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
