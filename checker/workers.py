"""Work in processes of its own, forked, whose results are handed over one by one as they come.

The executors of the standard library hand over what a task returns, at its end: an interrupt would lose all of it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import TypeVar, cast

Task = TypeVar("Task")
Result = TypeVar("Result")


_LOOKS_SECONDS = 0.5
"""How often a worker looks whether its parent is there."""


class WorkerLostError(Exception):
    """A worker ended before its work did: killed, or out of memory. Exit code 4."""


def results(work: Callable[[Task], Iterable[Result]], tasks: Sequence[Task], workers: int) -> Iterator[Result]:
    """What `work` yields for each task, in the order in which it comes; at most `workers` processes at a time.

    Raises what a worker raises, or WorkerLostError. However it ends, an interrupt included, no worker is left.
    """
    context = get_context("fork")
    waiting, running = list(tasks), dict[Connection, ForkProcess]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_serve, args=(theirs, os.getpid(), work, waiting.pop(0)), daemon=True)
                running[ours] = process
                process.start()
                theirs.close()
            for connection in cast("list[Connection]", wait(list(running))):
                yield from _received(connection, running)
    finally:
        # Now, not at the end of their work: a solver in the middle of a query does not look at anything else.
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _received(connection: Connection, running: dict[Connection, ForkProcess]) -> Iterator[Result]:
    try:
        message = connection.recv()
    except EOFError:
        process = running.pop(connection)
        process.join()
        if process.exitcode:
            raise WorkerLostError(f"a worker ended with exit code {process.exitcode} before its work did") from None
        return
    if isinstance(message, BaseException):
        raise message
    yield message


def _serve(connection: Connection, parent: int, work: Callable[[Task], Iterable[Result]], task: Task) -> None:
    """The parent answers the interrupt and ends its workers; a worker whose parent was killed ends itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    try:
        for result in work(task):
            connection.send(result)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
        error.add_note(f"in a worker:\n{traceback.format_exc()}")  # a traceback does not travel, a note does
        connection.send(error)
    connection.close()
    # At once: there is nothing to save, and freeing every term takes a while.
    os._exit(0)


def end_with(parent: int) -> None:
    """From here on this process ends, a second later at most, when its parent has ended, however that came."""
    threading.Thread(target=_wait_for_end, args=(parent,), daemon=True).start()


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOKS_SECONDS)
    os._exit(1)
