"""From a folder with an engine's source to its facts, and to a profile that can be verified."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from checker.extract.admission import admission
from checker.extract.collectives import collectives
from checker.extract.facts import Fact, Findings, Unknown, told
from checker.extract.flushes import flushes
from checker.extract.gates import gates
from checker.extract.intake import intake
from checker.extract.ledgers import ledgers
from checker.extract.loops import loops
from checker.extract.pauses import pauses
from checker.extract.settings import settings
from checker.extract.source import Source, SourceError
from checker.extract.updates import updates
from checker.extract.words import SCHEDULER
from spec.profile import DEFAULT_PROFILE, Profile, from_raw, load_profile

_READERS = (loops, intake, pauses, ledgers, gates, flushes, updates, settings, admission, collectives)
# What is no fact of the engine: what is asked of it, and our own differences of it.
_OURS = ("configuration", "remedies", "variants")
_PACKAGE = "sglang"
# Found, and told beside a profile of one rank.
BESIDE = "peers"


@dataclass(frozen=True)
class Extraction:
    """What the source of one engine says."""

    version: str
    folder: str
    facts: tuple[Fact, ...]
    unknowns: tuple[Unknown, ...]

    @property
    def name(self) -> str:
        """What its profile is called."""
        return f"{_PACKAGE}-{self.version or 'unknown'}"

    @cached_property
    def raw(self) -> dict[str, Any]:
        """The profile as its file holds it. Of what is unknown it has what was found, else what the bundled one has."""
        base = load_profile(DEFAULT_PROFILE).raw
        raw: dict[str, Any] = {"schema": 1, "engine": _PACKAGE, "version": self.version or "unknown"}
        raw["configuration"] = dict(base["configuration"])
        for fact in self.facts:
            if fact.key[0] == BESIDE:
                continue
            _put(raw, fact.key, fact.value)
        _fill(raw, {key: base[key] for key in base if key not in {*_OURS, "schema", "engine", "version"}})
        raw |= {key: base[key] for key in _OURS if key in base}
        unknowns = [one for one in self.unknowns if one.key[0] != BESIDE]
        if unknowns:
            unknown: dict[str, str] = {}
            for one in unknowns:
                reason = told(one)
                unknown[one.name] = f"{unknown[one.name]}; {reason}" if one.name in unknown else reason
            raw["unknown"] = unknown
        return raw

    @cached_property
    def profile(self) -> Profile:
        """The profile. Raises ProfileError where what was found makes none."""
        return from_raw(self.name, self.raw, self.folder)


def _put(table: dict[str, Any], key: tuple[str, ...], value: Any) -> None:  # noqa: ANN401 - any value of TOML
    for part in key[:-1]:
        table = table.setdefault(part, {})
    table[key[-1]] = value


def _fill(table: dict[str, Any], base: Mapping[str, Any], *, top: bool = True) -> None:
    """What the model needs and no fact says: only what is unknown anyway, which `complete` sees to."""
    for key, value in base.items():
        if isinstance(value, Mapping) and (top or key in table):
            _fill(table.setdefault(key, {}), value, top=False)
        elif key not in table:
            table[key] = value


def extract(folder: str | None = None) -> Extraction:
    """The facts of the engine in `folder`, the package's own; of the installed one by default. Raises SourceError."""
    source = Source(_folder(folder))
    if source.class_(*SCHEDULER) is None:
        raise SourceError(
            f"{source.folder}: no source of SGLang: it has no {SCHEDULER[1]} in {SCHEDULER[0]}\n"
            f"  name the folder of the package, e.g. .venv/lib/python3.11/site-packages/{_PACKAGE}"
        )
    return read_source(source)


def read_source(source: Source) -> Extraction:
    """What this source says."""
    found = Findings(source)
    for reader in _READERS:
        reader(found)
    complete(found)
    return Extraction(source.version, str(source.folder), tuple(found.facts.values()), tuple(found.unknowns))


def _folder(folder: str | None) -> Path:
    if folder is not None:
        inside = Path(folder) / _PACKAGE
        return inside if (inside / SCHEDULER[0]).is_file() else Path(folder)
    # Where it is installed; it is not imported.
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(f"no {_PACKAGE} is installed here; name its folder (extract: --source; diff: A or B)")
    return Path(next(iter(spec.submodule_search_locations)))


def complete(found: Findings) -> None:
    """Every entry that the bundled profile has must have been found, or be unknown."""
    base = load_profile(DEFAULT_PROFILE).raw
    doubted = {u.key for u in found.unknowns}
    for key in leaves({k: v for k, v in base.items() if k not in {*_OURS, "schema", "engine", "version"}}):
        covered = any(key[:n] in doubted for n in range(1, len(key) + 1))
        if key not in found.facts and not covered and key != ("primitives", "drain"):
            found.doubt(key, "nothing in the source says it")


def leaves(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The keys of a profile: tables in tables, but for `metric`, whose whole is one entry."""
    keys: list[tuple[str, ...]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) and key != "metric":
            keys += leaves(value, (*above, key))
        else:
            keys.append((*above, key))
    return keys


def is_place(text: object) -> bool:
    """Whether an entry is `file:function` of the engine, which says where and not what."""
    return isinstance(text, str) and re.fullmatch(r"[\w/.]+\.py(:\w+)?", text) is not None
