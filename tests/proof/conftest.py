"""What is decided once and read by many tests."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import msgspec
import pytest

from checker.results import Report, Result
from checker.decide.decided import Decided
from checker.workbench import Workbench
from spec.profile import Configuration, Profile, load_profile
from spec.properties import catalogue

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


@pytest.fixture(scope="session")
def desk() -> Desk:
    return Desk()


def _whole(*remedies: str) -> Report:
    """A whole run of the command, in a process of its own: its workers are forked before Z3 has been used."""
    options = [word for name in remedies for word in ("--remedy", name)]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from checker.cli import main; main()",
            "verify",
            "--profile",
            PROFILE,
            "--json",
            *options,
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Report)


@pytest.fixture(scope="session")
def whole_runs() -> dict[str, Report]:
    """The whole of `checker verify`, without and with the remedy."""
    return {"no-remedy": _whole(), REMEDY: _whole(REMEDY)}


@pytest.fixture(scope="session")
def without_remedy(whole_runs: dict[str, Report]) -> dict[tuple[str, str], Result]:
    """The results of the plain profile, by property and place."""
    return {(r.property, place_of(r)): r for r in whole_runs["no-remedy"].results}


def place_of(result: Result) -> str:
    return f"{result.loop} {result.configuration['mode']} {result.configuration['storage']}"
