"""Starts engines under the testbed and runs schedules on them."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from checker.reproduce.results import Outcome, Reproduction
from checker.reproduce.schedule import STAGES, Move, Schedule, Setup
from checker.results import Result

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.server import ServerOptions
    from engine_hooks.sglang.testbed.warm import Warm
    from engine_hooks.sglang.testbed.witness import Witness


@dataclass(frozen=True)
class Run:
    """One run of a schedule: where it departed (empty: nowhere, the violation was seen), and what was answered."""

    departure: str
    answers: Sequence[str]


@dataclass(frozen=True)
class Place:
    """What the engines of one command share: models, a process with SGLang imported, a folder."""

    folder: Path
    old: Path
    new: Path
    warm: Warm

    def options(self, setup: Setup) -> ServerOptions:
        """What to start for a setup, in a folder of its own."""
        from engine_hooks.sglang.testbed.server import ServerOptions  # noqa: PLC0415 - needs the extra `engine`

        folder = Path(tempfile.mkdtemp(prefix="engine-", dir=self.folder))
        return ServerOptions(
            self.old,
            folder,
            storage=setup.storage,
            ranks=setup.ranks,
            arguments=arguments_of(setup),
            environment=environment_of(setup),
            warm=self.warm,
        )


def arguments_of(setup: Setup) -> dict[str, object]:
    """The server's arguments."""
    policy = {"hicache_storage_prefetch_policy": "wait_complete"} if setup.storage else {}
    normal = setup.loop.removeprefix(f"{setup.role}-") == "normal"
    loop = {"pp_size": STAGES} if setup.loop == "pp" else {"disable_overlap_schedule": normal}
    return {**loop, **policy, **dict(setup.arguments)}


def environment_of(setup: Setup) -> dict[str, str]:
    """The server's environment. Our own hooks are off, unless the engine runs with a remedy."""
    if not setup.remedies:
        return {"QUIESCE": "off", **dict(setup.environment)}
    return {"QUIESCE": "observe", "QUIESCE_REMEDIES": ",".join(setup.remedies), **dict(setup.environment)}


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """Two models and a process to start engines from, below an existing folder."""
    from engine_hooks.sglang.testbed import tinymodel  # noqa: PLC0415 - needs the extra `engine`
    from engine_hooks.sglang.testbed.warm import Warm  # noqa: PLC0415

    old, new, warm = (folder / name for name in ("old", "new", "warm"))
    for seed, model in enumerate((old, new), 1):
        model.mkdir()
        # Its writer shows progress.
        with redirect_stderr(io.StringIO()):
            tinymodel.make(model, seed=seed)
    warm.mkdir()
    with Warm(old, warm) as process:
        yield Place(folder, old, new, process)


def reproduce(schedules: Sequence[Schedule], runs: int, where: Place) -> Iterator[Reproduction]:
    """Run each schedule `runs` times, those with equal setups on one engine; results in the order of the setups."""
    for setup, group in groupby(sorted(schedules, key=lambda s: repr(s.setup)), key=lambda s: s.setup):
        with Engines(where, setup) as engines:
            for schedule in group:
                yield _judged(schedule, [engines.run(schedule.moves) for _ in range(runs)])


class Engines:
    """The engine of one setup, started when it is needed and again after its end."""

    def __init__(self, where: Place, setup: Setup) -> None:
        self._where, self._setup = where, setup
        self._stack = ExitStack()
        self._drive: Witness | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._stack.close()

    def run(self, moves: Sequence[Move]) -> Run:
        """One run, from an engine that is idle, with the first weights and empty caches."""
        from engine_hooks.sglang.testbed.drive import DepartedError  # noqa: PLC0415 - needs the extra `engine`

        drive = self._ready()
        for number, move in enumerate(moves, 1):
            try:
                getattr(drive, move.method)(*move.arguments, **move.keywords)
            except DepartedError as error:
                return Run(f"at move {number} of {len(moves)}, {move.call}: {error}", tuple(drive.seen))
        return Run("", tuple(drive.seen))

    def _ready(self) -> Witness:
        from engine_hooks.sglang.testbed.pair import begin  # noqa: PLC0415 - needs the extra `engine`

        if self._drive is not None and self._drive.server.alive and not self._setup.dies:
            self._drive.reset()
        else:
            self._stack.close()
            self._drive = begin(self._stack, self._where.options(self._setup), self._where.new, self._setup.role)
        return self._drive


def _judged(schedule: Schedule, runs: Sequence[Run]) -> Reproduction:
    departed = [run for run in runs if run.departure]
    shown = departed[0] if departed else runs[-1]
    return msgspec.structs.replace(
        reproduction(schedule.result, Outcome.NOT_REPRODUCED if departed else Outcome.CONFIRMED, shown.departure),
        runs=len(runs),
        confirmed=len(runs) - len(departed),
        answers=shown.answers,
        schedule=[move.call for move in schedule.moves],
    )


def reproduction(result: Result, outcome: Outcome, departure: str) -> Reproduction:
    """What is said of a counterexample before it was run, or where it is not."""
    return Reproduction(
        result.property,
        result.loop,
        result.configuration,
        result.reason,
        outcome,
        runs=0,
        confirmed=0,
        departure=departure,
        answers=(),
        schedule=(),
        trace=result.trace,
    )
