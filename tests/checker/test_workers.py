"""Workers hand over what they have when they have it, and none is left, however it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from checker.workers import WorkerLostError, results


def _count(task: int) -> Iterator[tuple[int, int]]:
    for number in range(task):
        yield task, number


def _dies(task: str) -> Iterator[tuple[str, int]]:
    yield task, os.getpid()
    if task == "raises":
        raise ValueError(task)
    if task == "exits":
        os._exit(7)
    time.sleep(60)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_every_result_once_and_each_task_in_order(workers: int) -> None:
    found = list(results(_count, [3, 0, 2, 4], workers))
    assert sorted(found) == sorted((task, n) for task in (3, 0, 2, 4) for n in range(task))
    for task in (3, 2, 4):
        assert [n for t, n in found if t == task] == list(range(task))


def test_results_come_before_the_end() -> None:
    running = results(_dies, ["sleeps"], 1)
    _, pid = next(running)
    assert _alive(pid)
    running.close()
    assert not _alive(pid)


def test_what_a_worker_raises_is_raised_and_ends_the_others() -> None:
    started: dict[str, int] = {}
    with pytest.raises(ValueError, match="raises") as raised:
        started.update(results(_dies, ["sleeps", "raises"], 2))
    assert "raise ValueError(task)" in "".join(raised.value.__notes__)
    running = results(_dies, ["sleeps", "raises"], 2)
    pids = [next(running)[1], next(running)[1]]
    with pytest.raises(ValueError, match="raises"):
        next(running)
    assert not any(map(_alive, pids))


def test_a_lost_worker_is_no_end() -> None:
    running = results(_dies, ["exits"], 1)
    next(running)
    with pytest.raises(WorkerLostError, match="exit code 7"):
        next(running)
