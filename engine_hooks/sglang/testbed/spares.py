"""Forked children that wait to become the processes which their parent starts with `multiprocessing`'s `spawn`."""

from __future__ import annotations

import array
import fcntl
import io
import json
import os
import random
import runpy
import socket
import sys
from dataclasses import dataclass
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn, util
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.process import BaseProcess

_ORDER_BYTES = 1 << 20
_MOST_DESCRIPTORS = 64
# Above what a starting engine has open, so that no descriptor is in the way of one that keeps its number.
_HIGH = 400


@dataclass(frozen=True)
class Spare:
    """One child that waits."""

    pid: int
    line: socket.socket


class Spares:
    """The children of this process that wait, and the way in which `spawn` comes to use them."""

    def __init__(self, waiting: list[Spare]) -> None:
        self._waiting = waiting

    @classmethod
    def fork(cls, count: int) -> Self | None:
        """Fork `count` children. In a child: do what it is told to, once, and return None."""
        waiting: list[Spare] = []
        for _ in range(count):
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if not pid:
                ours.close()
                for spare in waiting:
                    spare.line.close()
                _become(theirs)
                return None
            theirs.close()
            waiting.append(Spare(pid, ours))
        return cls(waiting)

    def install(self) -> None:
        """Let `spawn` use them, in the order in which they were forked; after the last it starts interpreters again."""
        waiting = self._waiting

        class Popen(popen_spawn_posix.Popen):
            def _launch(self, process_obj: BaseProcess) -> None:
                if waiting:
                    _launch(self, process_obj, waiting.pop(0))
                else:
                    super()._launch(process_obj)  # type: ignore[misc] # typeshed leaves it out

        popen_spawn_posix.Popen = Popen  # type: ignore[misc] # spawn looks it up here for each process


def adopt(environment: Mapping[str, str]) -> None:
    """Be, in a forked process, as an interpreter that was started with these variables.

    A folder that PYTHONPATH names beyond those of the warm process comes first on the path, and its `sitecustomize`
    runs: now, after SGLang was imported, and not before.
    """
    os.environ.clear()
    os.environ.update(environment)
    numpy = sys.modules.get("numpy")
    if numpy is not None:  # the modules `random` and `secrets` see to it themselves
        numpy.random.seed(random.SystemRandom().getrandbits(32))
    named = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in named if entry not in sys.path]
    first = next((file for file in (Path(entry) / "sitecustomize.py" for entry in named) if file.is_file()), None)
    if first is not None and first != _ran():
        runpy.run_path(str(first), run_name="sitecustomize")


def _ran() -> Path | None:
    """The `sitecustomize` that this process's first ancestor ran as it started."""
    file = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    return Path(file) if file else None


def _launch(popen: Any, process_obj: BaseProcess, spare: Spare) -> None:  # noqa: ANN401 - typeshed lacks what it sets
    """What `popen_spawn_posix.Popen._launch` does, with a child that runs already."""
    tracker = resource_tracker.getfd()
    payload = io.BytesIO()
    set_spawning_popen(popen)
    try:
        reduction.dump(spawn.get_preparation_data(process_obj.name), payload)
        reduction.dump(process_obj, payload)
    finally:
        set_spawning_popen(None)
    parent_r, child_w = os.pipe()
    child_r, parent_w = os.pipe()
    popen.pid, popen.sentinel = spare.pid, parent_r
    popen.finalizer = util.Finalize(popen, _close, (parent_r, parent_w))
    # The payload names descriptors by their numbers here: they keep them there. The child never touches child_w: that
    # it closes is how this process learns of the child's end.
    descriptors = [*popen._fds, tracker, child_r, child_w]  # noqa: SLF001 - as spawn does
    _tell(spare.line, {"tracker": tracker, "payload": child_r, "environment": dict(os.environ)}, descriptors)
    os.close(child_r)
    os.close(child_w)
    with open(parent_w, "wb", closefd=False) as pipe:
        pipe.write(payload.getbuffer())


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _tell(line: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    with line:
        text = json.dumps(order | {"descriptors": descriptors}).encode()
        line.sendmsg(
            [len(text).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        )
        line.sendall(text)


def _become(line: socket.socket) -> None:
    """Wait for the order, and be the process that it describes. Without one, the parent is gone: so is this."""
    with line:
        head, received, *_ = socket.recv_fds(line, 8, _MOST_DESCRIPTORS)
        if not head:
            return
        with line.makefile("rb") as stream:
            order = json.loads(stream.read(int.from_bytes(head, "big")))
    _number(received, order["descriptors"])
    adopt(order["environment"])
    tracker: Any = resource_tracker._resource_tracker  # noqa: SLF001 - as spawn_main does
    tracker._fd = order["tracker"]  # noqa: SLF001 - the same
    sys.exit(spawn._main(order["payload"], os.dup(order["payload"])))  # noqa: SLF001 - the same


def _number(received: list[int], wanted: list[int]) -> None:
    """Give the descriptors the numbers that they have in the parent."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(high, wanted, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
