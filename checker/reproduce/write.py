"""A reproduction as a test file for pytest. It needs the testbed, and nothing else of this project."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from checker.explain import where
from checker.reproduce.chosen import Undriven
from checker.reproduce.run import arguments_of, environment_of
from checker.reproduce.schedule import Schedule, Setup, python
from checker.results import Result
from checker.story import tell

_WIDTH = 110

_HEAD = '''"""Written by `checker reproduce`. What a test does here broke a promise of the engine when it was written.

Run it with pytest where the engine and the package `quiesce` are installed: it uses its testbed, which runs the engine
on the CPU and holds its transfers and the passes of its event loop. A test passes where the promise is broken.
"""

from contextlib import ExitStack

import pytest

from engine_hooks.sglang.testbed import tinymodel
from engine_hooks.sglang.testbed.pair import begin
from engine_hooks.sglang.testbed.server import ServerOptions
from engine_hooks.sglang.testbed.warm import Warm


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models that differ in nothing but their weights: the one that is served, and the one to update to."""
    return [tinymodel.make(tmp_path_factory.mktemp(name), seed=seed) for seed, name in enumerate(("old", "new"), 1)]


@pytest.fixture(scope="module")
def warm(models, tmp_path_factory):
    """A process that has imported SGLang, from which each engine is forked."""
    with Warm(models[0], tmp_path_factory.mktemp("warm")) as one:
        yield one


@pytest.fixture
def start(models, warm, tmp_path):
    """Starts an engine, or a prefill and a decode worker; they end with the test."""
    with ExitStack() as engines:
        yield lambda role, **more: begin(
            engines, ServerOptions(models[0], tmp_path, warm=warm, **more), models[1], role
        )
'''


def module(schedules: Sequence[Schedule], undriven: Sequence[Undriven] = ()) -> str:
    """The text of the file: a test for each schedule. What cannot be driven is told in a comment."""
    parts = [_HEAD]
    names: list[str] = []
    for schedule in schedules:
        name = _name(schedule)
        names.append(name)
        suffix = f"_{names.count(name)}" if names.count(name) > 1 else ""
        parts.append("\n".join(_test(name + suffix, schedule)))
    parts += ["\n".join(_comment(result, why)) for result, why in undriven]
    return "\n\n".join(parts).rstrip("\n") + "\n"


def _name(schedule: Schedule) -> str:
    result = schedule.result
    words = [result.property, result.loop, result.configuration["mode"], result.configuration["storage"]]
    return "test_" + re.sub(r"\W+", "_", "_".join(map(str, words)))


def _test(name: str, schedule: Schedule) -> Iterator[str]:
    yield f"def {name}(start):"
    yield f'    """{_sentence(schedule.result.reason)}"""'
    yield from (f"    # {line}".rstrip() for line in tell(schedule.result))
    yield from _start(schedule.setup)
    for move in schedule.moves:
        yield f"    engine.{move.call}" + (f"  # {move.step}" if move.step else "")
    yield ""


def _start(setup: Setup) -> Iterator[str]:
    yield "    engine = start("
    yield f"        role={python(setup.role)},"
    yield f"        storage={setup.storage},"
    yield f"        ranks={setup.ranks},"
    yield f"        arguments={python(arguments_of(setup))},"
    yield f"        environment={python(environment_of(setup))},"
    yield "    )"


def _sentence(text: str) -> str:
    return "Because " + text.replace("\\", "/").replace('"', "'") + "."


def _comment(result: Result, why: str) -> Iterator[str]:
    text = f"{result.property} ({where(result.configuration, result.loop)}) has no test: {why}"
    yield from (f"# {line}" for line in wrap(text, _WIDTH))
