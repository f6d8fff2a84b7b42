"""Engines for the tests: one at a time, each shared by all tests that need one like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import ASKED_TOKENS, PROMPT, SETUPS, Engine, Fresh, Models, Setup

from engine_hooks.sglang.testbed import tinymodel
from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of one engine next to each other, so that each engine is started once."""

    def place(item: pytest.Item) -> int:
        callspec = getattr(item, "callspec", None)
        return SETUPS.index(callspec.params["served"]) if callspec and "served" in callspec.params else -1

    items.sort(key=place)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    old, new = (tinymodel.make(tmp_path_factory.mktemp("model"), seed=seed) for seed in (1, 2))
    return Models(old, new)


@pytest.fixture(scope="session")
def fresh(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    folder = tmp_path_factory.mktemp("fresh")
    with Server(ServerOptions(models.new, folder, environment={"QUIESCE": "off"})) as server:
        engine = Engine(server, models.new)
        answer = engine.ask(PROMPT, ASKED_TOKENS).output_ids
        engine.rank.d2h.wait(lambda switch: switch.done > 0)
        listening = [c.laddr for p in server.processes() for c in p.net_connections() if c.status == "LISTEN"]
        return Fresh(
            answer=answer,
            copies=engine.rank.d2h.done,
            installed_ranks=server.control.installed_ranks(),
            address=next(address.ip for address in listening if address.port == server.port),
            family=[process.pid for process in server.processes()],
        )


@pytest.fixture(scope="session")
def fresh_answer(fresh: Fresh) -> list[int]:
    """What a fresh engine with the new weights answers to PROMPT."""
    return fresh.answer


@pytest.fixture(scope="session")
def served(
    request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory, fresh_answer: list[int]
) -> Iterator[Engine]:
    # `fresh_answer` is asked for here so that its engine is gone before this one starts.
    assert len(fresh_answer) == ASKED_TOKENS
    setup: Setup = request.param
    options = ServerOptions(
        models.old,
        tmp_path_factory.mktemp(str(setup)),
        storage=setup.storage == "file",
        arguments=setup.arguments,
        environment=setup.environment,
    )
    with Server(options) as server:
        yield Engine(server, models.old)


@pytest.fixture
def engine(served: Engine) -> Iterator[Engine]:
    yield served
    served.reset()
