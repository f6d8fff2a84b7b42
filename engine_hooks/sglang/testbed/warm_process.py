"""The warm process of `warm`: imports what an engine needs, then forks a server for each line that it reads.

Nothing else imports this module: it is a program (`python -m engine_hooks.sglang.testbed.warm_process`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
from typing import Any

from engine_hooks.sglang.testbed.spares import Spares, adopt

_PRELOADED = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.managers.data_parallel_controller",
)
# It chooses between one process and several when it is imported, by a variable that each engine sets for itself.
_IMPORTED_BY_EACH = "prometheus_client"
_SERVER = "sglang.launch_server"


def serve() -> None:
    """Fork a server for each line of the standard input, and print its process id; until the input ends.

    What still runs then has lost whoever asked for it, and is killed.
    """
    _import()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here asks how a server ended
    servers: list[int] = []
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            for server in servers:
                os.close(server)
            _be_server(json.loads(line))
            return
        servers.append(os.pidfd_open(pid))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for server in servers:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, signal.SIGKILL)  # its schedulers and the rest die with it


def _import() -> None:
    for module in _PRELOADED:
        importlib.import_module(module)
    if _IMPORTED_BY_EACH in sys.modules:
        raise ImportError(f"{_IMPORTED_BY_EACH} was imported before the engine that it serves was known")
    # It finds its place in memory through the variables, at its first use, and not after they have been changed.
    importlib.import_module("setproctitle").getproctitle()
    gc.freeze()


def _be_server(order: dict[str, Any]) -> None:
    """Run the server as `python -m` does, in a session of its own."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _redirect(order["log"])
    spares = Spares.fork(order["spares"])
    if spares is None:
        return  # in a spare, which has been what it was to be
    adopt(order["environment"])
    spares.install()
    sys.argv = [_SERVER, *order["arguments"]]
    runpy.run_module(_SERVER, run_name="__main__", alter_sys=True)


def _redirect(log: str) -> None:
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(out)


if __name__ == "__main__":
    serve()
