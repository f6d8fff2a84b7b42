"""Starts a real `sglang.launch_server` under the testbed, in a process of its own since it may die, and ends it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import psutil
import requests

from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.control import Control
from engine_hooks.sglang.testbed.warm import Forked, Warm

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.1
_END_SECONDS = 20.0
_LOG_TAIL_CHARACTERS = 3000
# Below what Linux hands to outgoing connections. A port of that range may be theirs by the time that the engine, half a
# minute later, binds it; and whoever asks such a port whether the engine is up can be connected to itself.
_PORTS = range(20_000, 32_000)
_PORT_TRIES = 50
_START_TRIES = 3
_PORT_TAKEN = "address already in use"


class LaunchError(RuntimeError):
    """The engine did not come up under the testbed. The message says why and ends with the tail of its log."""


@dataclass(frozen=True)
class ServerOptions:
    """What to start."""

    model: Path
    """Folder of the model to serve."""
    folder: Path
    """Existing folder of this engine's own, for control files, storage, metrics files and the log."""
    storage: bool = False
    """Whether HiCache has a file storage (L3), in `folder / "storage"`."""
    ranks: int = 1
    """How many schedulers the engine starts (tp * pp * dp)."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the server beyond `launch.engine_args`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beyond `launch.environment`."""
    port: int = 0
    """0 takes a free one. A server that follows another on the same port is, to a scraper, the same one restarted."""
    start_seconds: float = 240.0
    """How long to wait for it to come up."""
    warm: Warm | None = None
    """Where to start it from, if it fits; a new interpreter otherwise."""


class Server:
    """A server under the testbed, as a context manager: up and under control inside the `with`, gone after it.

    Raises:
        LaunchError: on entry, where the process ended, did not come up in time, or came up without the testbed.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.control = Control(options.folder / "control")
        self.storage = options.folder / "storage"
        self.log_file = options.folder / "server.log"
        self.port = options.port or free_port()
        self.url = f"http://{_HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def __enter__(self) -> Self:
        for _ in range(_START_TRIES - 1):
            try:
                return self._begin()
            except LaunchError:
                # Somebody may have taken the port since it was found free.
                if self.options.port or _PORT_TAKEN not in self.log():
                    raise
            self._forget()
        return self._begin()

    def _begin(self) -> Self:
        metrics = self.options.folder / "metrics"
        for folder in (self.control.directory, self.storage, metrics):
            folder.mkdir()
        self._process = self._start(self._environment() | {"PROMETHEUS_MULTIPROC_DIR": str(metrics)})
        try:
            self._wait_until_up()
        except BaseException:
            self.end()
            raise
        return self

    def _forget(self) -> None:
        """What a start that failed has left."""
        for folder in (self.control.directory, self.storage, self.options.folder / "metrics"):
            shutil.rmtree(folder)
        self.port = free_port()
        self.url = f"http://{_HOST}:{self.port}"

    def __exit__(self, *_exc_info: object) -> None:
        self.end()

    @property
    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What all processes of the engine have printed so far."""
        return self.log_file.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """The server's process and every one that it started, as far as they live."""
        if self._process is None:
            return []
        try:
            root = psutil.Process(self._process.pid)
            return [*root.children(recursive=True), root]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """End the server and every process that it started, each by its id."""
        if self._process is None:
            return
        family = self.processes()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=_END_SECONDS)
        self._process.wait(_END_SECONDS)

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes] | Forked:
        with self.log_file.open("wb") as log:
            warm = self.options.warm
            if warm and warm.fits(environment):
                arguments = launch.server_arguments(self.options.model, self._arguments())
                # Each rank, and the detokenizer.
                return warm.start(arguments, environment, self.log_file, self.options.ranks + 1)
            return subprocess.Popen(  # noqa: S603 - our own command, no shell
                launch.server_command(self.options.model, self._arguments()),
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _arguments(self) -> dict[str, object]:
        storage = {"hicache_storage_backend": "file"} if self.options.storage else {}
        return {"host": _HOST, "port": self.port, **storage, **self.options.arguments}

    def _environment(self) -> dict[str, str]:
        storage = self.storage if self.options.storage else None
        ours = launch.environment(self.control.directory, storage=storage, ranks=self.options.ranks)
        ours |= launch.other_models(self.options.model)
        return dict(os.environ) | ours | dict(self.options.environment)

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + self.options.start_seconds
        while not self._answers():
            self._refuse_on_failure()
            if not self.alive:
                raise LaunchError(f"the engine ended while it started. {self._tail()}")
            if time.monotonic() > deadline:
                raise LaunchError(f"the engine did not come up in {self.options.start_seconds:g} s. {self._tail()}")
            time.sleep(_POLL_SECONDS)
        self._refuse_on_failure()
        # A server answers only after its schedulers are built, and they report while they are built.
        installed = self.control.installed_ranks()
        if installed < self.options.ranks:
            raise LaunchError(
                f"the engine is up, but the testbed is in place on {installed} of {self.options.ranks} ranks: SGLang "
                f"loaded no plugin 'quiesce_testbed' there (is quiesce installed in this environment, and does "
                f"SGLANG_PLUGINS allow it?). {self._tail()}"
            )

    def _refuse_on_failure(self) -> None:
        for failure in self.control.failures():
            raise LaunchError(f"the testbed could not be put in place:\n{failure}\n{self._tail()}")

    def _answers(self) -> bool:
        try:
            return requests.get(self.url + "/model_info", timeout=5).ok
        except requests.RequestException:
            return False

    def _tail(self) -> str:
        return f"Its log ({self.log_file}) ends:\n{self.log()[-_LOG_TAIL_CHARACTERS:]}"


def free_port() -> int:
    """A port of the loopback on which nobody listens now, of `_PORTS`.

    Raises:
        LaunchError: where none of `_PORT_TRIES` ports is free.
    """
    for port in random.sample(_PORTS, _PORT_TRIES):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((_HOST, port))
            return port
    raise LaunchError(f"{_PORT_TRIES} ports of {_PORTS[0]} to {_PORTS[-1]} were tried, and none is free")
