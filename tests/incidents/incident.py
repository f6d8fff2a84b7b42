"""One public incident as data: what brings the defect back in the model, what that refutes, and what is proved."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from checker.decide.decided import Decided
from checker.reasons import Case, why
from checker.workbench import Workbench
from spec.profile import Configuration, Profile, load_profile
from spec.properties import Property, catalogue

FOLDER = Path(__file__).parent
OUTSIDE = FOLDER / "outside.toml"


class Difference(msgspec.Struct, forbid_unknown_fields=True):
    """What is laid over the base: remedies and variants by name, then a table in the form of a profile's."""

    summary: str
    remedies: list[str] = []
    set: dict[str, Any] = {}


class Base(msgspec.Struct, forbid_unknown_fields=True):
    """The profile, the remedies that keep other defects out of the picture, the configuration."""

    profile: str
    place: str
    """Loop, pause mode, storage."""
    remedies: list[str] = []
    set: dict[str, Any] = {}


class Refuted(msgspec.Struct, forbid_unknown_fields=True):
    """The property that the defect breaks, and what the re-run counterexample must show."""

    property: str
    reason: str
    """What the reason begins with."""
    about: str = ""
    """The only claim of the property that is decided: that about this ledger or field; empty: all."""
    actions: list[str] = []
    """These actions, in this order, with others between."""
    last: str = ""
    """The last action."""
    before: dict[str, int | bool] = {}
    """What some variables are before the last action."""
    end: dict[str, int | bool] = {}
    """What some variables are at the end."""


class Incident(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of the suite."""

    id: str
    title: str
    link: str
    engine: str
    versions: str
    """In which versions the defect is, and what the bundled version has of it."""
    in_bundled: bool
    """Whether the bundled profile, without this difference, has the defect."""
    extension: str
    """What of the vocabulary it needs: `core`, or the name of an extension."""
    base: Base
    defect: Difference
    refuted: Refuted
    repaired: Difference
    claims: int
    """How many claims are proved on the repaired side."""
    shares: str = ""
    """The incident whose mechanism this is too."""


class Outside(msgspec.Struct, forbid_unknown_fields=True):
    """One incident, or a part of one, that the model does not speak of, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class Found:
    """What was decided for one side of an incident."""

    protocol: Any
    decided: list[Decided] = field(default_factory=list)

    @property
    def verdicts(self) -> list[str]:
        """One verdict for each claim."""
        return [d.verdict.value for d in self.decided]

    def reason(self, property_id: str) -> str:
        """Why it is refuted, in the words of the report."""
        last = self.decided[-1]
        assert last.confirmed is not None, self.verdicts
        return why(property_id, Case(self.protocol, last.confirmed, last.part.about, last.method)).text


def incidents() -> list[Incident]:
    """Every entry, in the order of its id. Raises msgspec.ValidationError."""
    paths = sorted(path for path in FOLDER.glob("*.toml") if path != OUTSIDE)
    found = [msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Incident) for path in paths]
    assert [incident.id for incident in found] == [path.stem for path in paths]
    return found


def outside() -> list[Outside]:
    """What the suite does not express."""
    return msgspec.convert(tomllib.loads(OUTSIDE.read_text(encoding="utf-8"))["outside"], list[Outside])


def parts() -> list[Outside]:
    """What of the incidents in the suite it does not express."""
    return msgspec.convert(tomllib.loads(OUTSIDE.read_text(encoding="utf-8"))["parts"], list[Outside])


def defective(incident: Incident) -> Profile:
    """The base with the defect."""
    return _laid_over(incident, incident.defect)


def repaired(incident: Incident) -> Profile:
    """The base with what repairs it."""
    return _laid_over(incident, incident.repaired)


def _laid_over(incident: Incident, difference: Difference) -> Profile:
    name = incident.base.profile
    profile = load_profile(str(FOLDER / name) if name.endswith(".toml") else name).with_remedies(
        [*incident.base.remedies, *difference.remedies]
    )
    path = str(FOLDER / f"{incident.id}.toml")
    return profile.with_difference(incident.base.set, path).with_difference(difference.set, path)


def decide(incident: Incident, profile: Profile) -> Found:
    """Only the named claims of the named property, in the one named place."""
    loop, mode, storage = incident.base.place.split()
    matrix = profile.configuration
    place = Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks)
    prop = _about(catalogue()[incident.refuted.property], incident.refuted.about)
    bench = Workbench(profile, place)
    protocol = bench.subject(follow_request=prop.needs_request).protocol
    assert bench.not_applicable(prop) is None
    return Found(protocol, bench.decide(prop))


def _about(prop: Property, name: str) -> Property:
    if not name:
        return prop
    return replace(prop, claims=lambda p, s: [part for part in prop.claims(p, s) if part.about == name])
