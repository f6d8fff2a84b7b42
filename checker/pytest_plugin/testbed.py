"""--quiesce-testbed: whatever starts an engine in this session, starts it on the CPU, with its transfers under control.

A suite written for a GPU runs unchanged: the engine's processes inherit the environment that is set here. All engines
of a session share one switchboard, so the counters of transfers go on from one engine to the next.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.control import Control


class Testbed:
    """The switchboard of a session, and the environment of its engines."""

    __test__ = False

    def __init__(self, config: pytest.Config) -> None:
        """Set this process up, before it imports SGLang."""
        del config
        self._temporary = TemporaryDirectory(prefix="quiesce-testbed-", ignore_cleanup_errors=True)
        folder = Path(self._temporary.name)
        self.control = Control(folder / "control")
        self._before = dict(os.environ)
        launch.prepare_this_process(self.control.directory, storage=folder / "storage")
        sys.path.extend(launch.standin_paths(packages=launch.TEST_PACKAGES))

    def pytest_unconfigure(self) -> None:
        """Leave the environment as it was."""
        changed = {name for name in os.environ if os.environ[name] != self._before.get(name)}
        for name in changed & set(launch.environment(self.control.directory, storage=Path())):
            if name in self._before:
                os.environ[name] = self._before[name]
            else:
                del os.environ[name]
        self._temporary.cleanup()
