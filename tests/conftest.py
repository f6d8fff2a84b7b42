"""What shares something dear runs in one worker: the engines, and what is verified once for all tests of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its group; with `--dist loadgroup` a group is not split between workers."""
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0]
        group = "engine" if item.get_closest_marker("engine") else folder
        item.add_marker(pytest.mark.xdist_group(group))
