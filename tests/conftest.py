"""What the tests of more than one folder share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.sglang.testbed.warm import Warm


def pytest_addoption(parser: pytest.Parser) -> None:
    """For tests that take too long for each run."""
    parser.addoption("--workers-in-stages", action="store_true", help="start prefill and decode workers of two stages")


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Where the engines of the tests start from, so that SGLang is imported once."""
    # Not at the top: most tests need no engine, nor what it is made with.
    from engine_hooks.sglang.testbed import tinymodel  # noqa: PLC0415
    from engine_hooks.sglang.testbed.warm import Warm  # noqa: PLC0415

    with Warm(tinymodel.make(tmp_path_factory.mktemp("model"), seed=0), tmp_path_factory.mktemp("warm")) as one:
        yield one
