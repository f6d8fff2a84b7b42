"""What is decided once and read by many tests."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from proof_desk import PROFILE, REMEDY, Desk, place_of

from checker.results import Report, Result


@pytest.fixture(scope="session")
def desk() -> Desk:
    return Desk()


def _whole(*remedies: str) -> Report:
    """A whole search, in a process of its own: its workers are forked before Z3 has been used."""
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
            "--anew",
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
