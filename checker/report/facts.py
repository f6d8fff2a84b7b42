"""The facts of a profile, one line each, with the places in the engine's source that they were read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checker.digest import spec_digest
from checker.report.places import Place, Source
from checker.results import Report
from spec.errors import QuiesceError
from spec.profile import Profile, load_profile

_ABOUT = ("schema", "engine", "version", "remedies")
_PLACES = ("source", "reaper", "hook")


@dataclass(frozen=True)
class Fact:
    """What is known of one thing."""

    name: str
    value: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Section:
    """One table of the profile."""

    name: str
    facts: tuple[Fact, ...]


def profile_of(report: Report, given: Profile | None) -> Profile | str:
    """The profile that the report speaks of, or why its facts are not shown."""
    engine = report.engine
    if given is None and engine.source != "bundled":
        where = "extracted: write it with checker extract, and" if engine.source == "extracted" else "a file;"
        return f"the report speaks of the profile {engine.profile}, {where} name it with --profile to see its facts"
    try:
        profile = given or load_profile(engine.profile).with_remedies(engine.remedies)
    except QuiesceError as error:
        return str(error)
    if spec_digest(profile) != report.spec_digest:
        return f"the profile {profile.name} is another one now than the report speaks of (spec {report.spec_digest})"
    return profile


def sections(profile: Profile, source: Source) -> list[Section]:
    """The facts table by table, in the order of the file."""
    found = []
    for name, value in profile.raw.items():
        if name in _ABOUT or not isinstance(value, Mapping):
            continue
        tables = {key: part for key, part in value.items() if isinstance(part, Mapping)}
        nested = tables if len(tables) == len(value) else {"": value}
        facts = [fact for key, table in nested.items() for fact in _facts(key, table, source)]
        found.append(Section(name, tuple(facts)))
    return found


def _facts(name: str, table: Mapping[str, object], source: Source) -> Iterator[Fact]:
    """A table's own line, then one for each of its moves, or for each value that is itself a place."""
    plain = {k: v for k, v in table.items() if k not in _PLACES and not _tables(v) and not _place(v, source)}
    places = tuple(p for key in _PLACES if (p := _place(table.get(key), source)))
    if plain or places:
        yield Fact(name, "; ".join(f"{key}: {_text(value)}" for key, value in plain.items()), places)
    for key, value in table.items():
        if (place := _place(value, source)) and key not in _PLACES:
            yield Fact(key, "", (place,))
        for move in _tables(value):
            yield Fact(f"{name} move".strip(), _move(move), tuple(p for p in [_place(move.get("source"), source)] if p))


def _tables(value: object) -> list[Mapping[str, object]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def _place(value: object, source: Source) -> Place | None:
    return source.place(value) if isinstance(value, str) else None


def _move(move: Mapping[str, object]) -> str:
    rest = {k: v for k, v in move.items() if k not in ("from", "to", "by", "source", "or_to")}
    other = f" or {move['or_to']}" if "or_to" in move else ""
    more = "".join(f"; {key}: {_text(value)}" for key, value in rest.items())
    return f"{move['from']} → {move['to']}{other} by {move['by']}{more}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} is {v}" for k, v in value.items())
    return str(value)
