"""Engines for the tests: one at a time, each shared by all tests that need one like it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import (
    ASKED_TOKENS,
    ASKING_SCORES,
    PROMPT,
    SETUPS,
    Engine,
    Fresh,
    Models,
    Scores,
    Setup,
    records_of,
)

from engine_hooks.sglang.testbed import tinymodel
from engine_hooks.sglang.testbed.server import Server, ServerOptions
from engine_hooks.sglang.testbed.warm import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of one engine next to each other, so that each engine is started once.

    They come last: a shared engine lives until another takes its place, and its idle loop keeps a core busy.
    """

    def place(item: pytest.Item) -> int:
        callspec = getattr(item, "callspec", None)
        return SETUPS.index(callspec.params["served"]) if callspec and "served" in callspec.params else -1

    items.sort(key=place)
    for item in items:
        if item.get_closest_marker("engine"):
            # The first test of an engine pays for its start, the very first for two.
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    old, new = (tinymodel.make(tmp_path_factory.mktemp("model"), seed=seed) for seed in (1, 2))
    return Models(old, new)


FRESH_ENGINE = """
import json
import sys
from pathlib import Path
from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.control import Control

if __name__ == "__main__":
    model, folder = map(Path, sys.argv[1:3])
    control = Control(folder / "control")
    launch.prepare_this_process(control.directory)
    import sglang
    engine = sglang.Engine(**launch.engine_args(model))
    sampling = {"max_new_tokens": int(sys.argv[3]), "temperature": 0, "ignore_eos": True}
    prompt = [int(token) for token in sys.stdin.read().split()]
    answer = engine.generate(input_ids=prompt, sampling_params=sampling, **json.loads(sys.argv[4]))
    assert control.rank().installed
    control.rank().d2h.wait(lambda switch: switch.done > 0)
    engine.shutdown()
    (folder / "answer.json").write_text(json.dumps(answer))
"""


@pytest.fixture(scope="session")
def fresh(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """What a fresh engine with the new weights answers to PROMPT: an engine inside a process of its own, for once."""
    folder = tmp_path_factory.mktemp("fresh")
    program = folder / "fresh.py"
    program.write_text(FRESH_ENGINE)
    done = subprocess.run(
        [sys.executable, str(program), str(models.new), str(folder), str(ASKED_TOKENS), json.dumps(ASKING_SCORES)],
        check=False,
        input=" ".join(map(str, PROMPT)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads((folder / "answer.json").read_text())
    return Fresh(answer["output_ids"], Scores.of(answer["meta_info"]))


@pytest.fixture(scope="session")
def fresh_answer(fresh: Fresh) -> list[int]:
    """Its tokens."""
    return fresh.answer


@pytest.fixture(scope="session")
def served(
    request: pytest.FixtureRequest,
    models: Models,
    warm: Warm,
    tmp_path_factory: pytest.TempPathFactory,
    fresh_answer: list[int],
) -> Iterator[Engine]:
    # `fresh_answer` is asked for here so that its engine is gone before this one starts.
    assert len(fresh_answer) == ASKED_TOKENS
    setup: Setup = request.param
    folder = tmp_path_factory.mktemp(str(setup))
    options = ServerOptions(
        models.old,
        folder,
        storage=setup.storage == "file",
        arguments=setup.arguments,
        environment=setup.environment | {"QUIESCE_RECORD": str(records_of(folder))},
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        yield Engine(server, models.old)


@pytest.fixture
def engine(served: Engine) -> Iterator[Engine]:
    yield served
    served.reset()
