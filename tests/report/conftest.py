"""A report to write from: what is verified once for all tests here."""

import msgspec
import pytest

from checker.verify import Request
from checker.verify import verify as run
from spec.profile import load_profile


@pytest.fixture(scope="session")
def report():
    """The bundled profile, one loop of two, one pause mode of three."""
    return run(Request(load_profile("sglang-0.5.23"), loops=("normal",), modes=("retract",)))


@pytest.fixture(scope="session")
def result_file(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("result") / "RESULT.json"
    path.write_bytes(msgspec.json.encode(report))
    return path
