"""Starts engines from a process that has imported SGLang already, since that import is most of an engine's start.

Three kinds of process, each forked from the one before it, none of which has run anything of the engine yet:

- the *warm process* imports, and then forks one server for each line that it reads;
- a *server* forks its spares first, and then runs `sglang.launch_server` as `python -m` would;
- a *spare* is a child of its server that waits until the server starts a process (`multiprocessing`, start method
  `spawn`), and becomes that process: with what `spawn` hands over, and with the server's environment of that moment.

So each engine has the processes, the parents and the environments that it has otherwise, and each loads its plugins
itself. What differs: modules that read the environment while they are imported read the warm process's; `Warm.fits`
says for which engines that is the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self

import psutil

from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.control import VARIABLE
from engine_hooks.sglang.testbed.launch import BIND_VARIABLE, STORAGE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_READ_LATER = frozenset(
    {
        VARIABLE,
        STORAGE_VARIABLE,
        BIND_VARIABLE,
        "PROMETHEUS_MULTIPROC_DIR",
        "PYTEST_CURRENT_TEST",
        "PYTHONPATH",
        "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE",
        "SGLANG_PLUGINS",
        "SGLANG_REQ_WAITING_TIMEOUT",
    }
)
_READ_LATER_PREFIX = "QUIESCE"
_END_SECONDS = 20.0


@dataclass(frozen=True)
class Forked:
    """A process that the warm process forked, with the part of `subprocess.Popen` that a `Server` needs."""

    process: psutil.Process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def poll(self) -> int | None:
        """None while it runs. Its exit status is not known here: 0 after its end."""
        return None if self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE else 0

    def wait(self, timeout: float) -> int:
        """Until it has ended.

        Raises:
            psutil.TimeoutExpired: after `timeout` (s).
        """
        self.process.wait(timeout)
        return 0


class Warm:
    """A process with SGLang imported, as a context manager. It is started when the first engine is asked of it.

    Args:
        model: the folder of a model like those that its engines are to serve (`launch.other_models`).
        folder: existing folder for what the warm process prints itself.
    """

    def __init__(self, model: Path, folder: Path) -> None:
        ours = launch.environment(folder / "control") | launch.other_models(model)
        self._environment = dict(os.environ) | ours
        self._log = folder / "warm.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        if self._process is not None:
            _pipe(self._process.stdin).close()  # the end of its input is its end
            _pipe(self._process.stdout).close()
            self._process.wait(_END_SECONDS)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether an engine with this environment would import what the warm process has imported.

        The variables that are read only later may differ: the control folder, the storage's, the metrics', the
        plugins', a time-out, the check of an idle pool, the cores of each rank, and quiesce's own. So may PYTHONPATH,
        for folders with another `sitecustomize` that does not mind to run after SGLang was imported.
        """
        return _read_early(environment) == _read_early(self._environment)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, spares: int) -> Forked:
        """Fork a server.

        Args:
            arguments: of `sglang.launch_server`.
            environment: the server's, whole; `fits`.
            log: existing file that gets all that the engine prints.
            spares: how many processes it is going to start.

        Raises:
            OSError: where the warm process is gone.
        """
        if self._process is None:
            self._process = self._begin()
        order = {"arguments": list(arguments), "environment": dict(environment), "log": str(log), "spares": spares}
        _pipe(self._process.stdin).write(json.dumps(order) + "\n")
        _pipe(self._process.stdin).flush()
        answer = _pipe(self._process.stdout).readline()
        if not answer:
            raise OSError(f"the warm process ended: {self._log.read_text(errors='replace')[-2000:]}")
        return Forked(psutil.Process(int(answer)))

    def _begin(self) -> subprocess.Popen[str]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "engine_hooks.sglang.testbed.warm_process"],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in _READ_LATER and not name.startswith(_READ_LATER_PREFIX)
    }


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise TypeError("the warm process has no pipes")
    return stream
