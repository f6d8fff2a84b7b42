"""Engines that quiesce does not know: they serve on, and metric and log say what is no longer watched."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from harness import PROMPT, REMEDY, Engine, Models, Setup, prompt, renamed, rewritten, wait_until

from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

SETUP = Setup("overlap", "none", REMEDY)


@contextmanager
def engine_with(models: Models, folder: Path, changed: dict[str, str], warm: Warm | None = None) -> Iterator[Engine]:
    environment = SETUP.environment | changed
    options = ServerOptions(models.old, folder, arguments=SETUP.arguments, environment=environment, warm=warm)
    with Server(options) as server:
        yield Engine(server, models.old)


def serve_on(engine: Engine, models: Models) -> None:
    """Requests, a pause, an update and what comes after, as if nothing were lost."""
    stream = engine.generate(PROMPT, 100)
    stream.wait_tokens(1)
    engine.rank.d2h.wait_idle()
    engine.pause("retract")
    engine.continue_()
    stream.result()
    engine.settle()
    assert engine.update_from_disk(models.new).success
    engine.ask(prompt(300, seed=71))


def hooks(engine: Engine) -> dict[str, float]:
    return engine.metrics().by("quiesce_hook_applied", "hook")


def test_an_exception_inside_a_probe(models: Models, tmp_path: Path) -> None:
    """An attribute of a transfer is renamed; a probe reads it, and raises, when the first transfer is in flight."""
    with engine_with(models, tmp_path, rewritten("finish_event", "landed_event")) as engine:
        assert set(hooks(engine).values()) == {1}
        # The remedy does not depend on the probe, which is lost on the way: a copy is held, so it is seen in flight.
        drains_while_paused(engine)
        lost = {hook for hook, applied in hooks(engine).items() if not applied}
        assert lost == {"state"}
        (line,) = (line for line in engine.log().splitlines() if "hook state is lost" in line)
        assert "AttributeError" in line
        assert "finish_event" in line
        assert "paused-flush-succeeds" in line.partition("no longer checked")[2]
        assert engine.metrics().value("quiesce_remedy_active", remedy=REMEDY) == 1
        serve_on(engine, models)
        drains_while_paused(engine)


def drains_while_paused(engine: Engine) -> None:
    engine.settle()  # so that what is in flight below is this request's copy
    engine.rank.d2h.hold()
    stream = engine.generate(prompt(400, seed=73), 50)
    engine.rank.d2h.wait_in_flight()
    engine.pause("retract")
    assert not engine.flush().success
    engine.rank.d2h.release()
    engine.flush_until_done()
    engine.continue_()
    stream.result()


def test_a_renamed_method(models: Models, warm: Warm, tmp_path: Path) -> None:
    changed = renamed("_record_scheduler_state_for_paused_engine", "_note_paused_pass")
    with engine_with(models, tmp_path, changed, warm) as engine:
        lost = {hook for hook, applied in hooks(engine).items() if not applied}
        assert lost == {"paused_pass"}
        (line,) = (line for line in engine.log().splitlines() if "hook paused_pass is lost" in line)
        assert "_record_scheduler_state_for_paused_engine" in line
        assert "paused-flush-succeeds" in line.partition("no longer checked")[2]
        # The remedy has lost its place, and says so.
        assert engine.metrics().value("quiesce_remedy_active", remedy=REMEDY) == 0
        serve_on(engine, models)
        # What does not need that hook is still watched.
        wait_until(
            lambda: engine.metrics().value("quiesce_checks_total", property="no-forward-while-paused"),
            "forwards are checked",
        )
        assert engine.metrics().value("quiesce_checks_total", property="paused-flush-succeeds") == 0


def test_an_unknown_version(models: Models, warm: Warm, tmp_path: Path) -> None:
    with engine_with(models, tmp_path, renamed("0.5.23", "0.99.0"), warm) as engine:
        assert set(hooks(engine).values()) == {0}
        assert engine.metrics().value("quiesce_info", engine_version="0.99.0") == 1
        (line,) = (line for line in engine.log().splitlines() if "no profile of sglang" in line)
        assert "0.99.0" in line
        assert line.endswith("no remedy is active; there is one of: 0.5.23")
        serve_on(engine, models)
