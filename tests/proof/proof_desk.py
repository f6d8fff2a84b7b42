"""What is decided once and read by many tests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from checker.workbench import Workbench
from spec.profile import Configuration, Profile, load_profile
from spec.properties import catalogue

if TYPE_CHECKING:
    from checker.decide.decided import Decided
    from checker.results import Result

PROFILE, REMEDY = "sglang-0.5.23", "reap-while-paused"


@cache
def _profile(name: str, remedies: tuple[str, ...]) -> Profile:
    return load_profile(name).with_remedies(remedies)


@cache
def _decided(profile: str, remedies: tuple[str, ...], place: tuple[str, str, str], property_id: str) -> list[Decided]:
    loop, mode, storage = place
    return Workbench(_profile(profile, remedies), Configuration(loop, mode, storage)).decide(catalogue()[property_id])


class Desk:
    """Decides a property of a bundled profile in one place; each question is asked of the solver once."""

    def __call__(
        self,
        property_id: str,
        place: str,
        *,
        profile: str = PROFILE,
        remedies: tuple[str, ...] = (),
    ) -> list[Decided]:
        loop, mode, storage = place.split()
        return _decided(profile, remedies, (loop, mode, storage), property_id)


def place_of(result: Result) -> str:
    return f"{result.loop} {result.configuration['mode']} {result.configuration['storage']}"
