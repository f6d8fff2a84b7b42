"""What is decided once and read by many tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from checker.workbench import Workbench
from spec.profile import Profile, load_profile
from spec.properties import Property, catalogue

if TYPE_CHECKING:
    from checker.decide.decided import Decided
    from checker.results import Result

PROFILE, REMEDY = "sglang-0.5.23", "reap-while-paused"


@cache
def _profile(name: str, remedies: tuple[str, ...]) -> Profile:
    return load_profile(name).with_remedies(remedies)


@cache
def _decided(profile: str, remedies: tuple[str, ...], place: str, property_id: str, about: str) -> list[Decided]:
    chosen = _profile(profile, remedies)
    return Workbench(chosen, chosen.place(place)).decide(_about(catalogue()[property_id], about))


def _about(prop: Property, about: str) -> Property:
    if not about:
        return prop
    return replace(prop, claims=lambda p, s: [part for part in prop.claims(p, s) if part.about == about])


class Desk:
    """Decides a property of a bundled profile in one place, or its claim about one thing; each question once."""

    def __call__(
        self,
        property_id: str,
        place: str,
        *,
        profile: str = PROFILE,
        remedies: tuple[str, ...] = (),
        about: str = "",
    ) -> list[Decided]:
        return _decided(profile, remedies, place, property_id, about)


def place_of(result: Result) -> str:
    return f"{result.loop} {result.configuration['mode']} {result.configuration['storage']}"
