"""A trace of a real engine, recorded here and now, is accepted by the spec, and holds numbers only."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import PROMPT, Engine, Models, Setup

from checker.replay.reading import Reading, traces
from checker.replay.results import ACCEPTED
from checker.replay.run import Judges, Options, replay
from engine_hooks.sglang.testbed.control import SPIN_VARIABLE
from engine_hooks.sglang.testbed.server import Server, ServerOptions
from engine_hooks.trace import Step, TraceHeader
from spec.profile import Profile, load_profile

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.warm import Warm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from record_traces import finish, held_copy, in_place, serve

pytestmark = pytest.mark.engine

SETUP = Setup("overlap", "none")


def load(header: TraceHeader) -> Profile:
    return load_profile(header.profile)


def test_what_a_live_engine_does_is_accepted(models: Models, warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    options = ServerOptions(
        models.old,
        tmp_path / "engine",
        arguments=SETUP.arguments,
        environment=SETUP.environment | {"QUIESCE_TRACE": str(tmp_path / "trace"), SPIN_VARIABLE: "1"},
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        engine = Engine(server, models.old)
        serve(engine)
        held_copy(engine, "d2h")
        in_place(engine)
        assert engine.metrics().value("quiesce_trace_events_dropped_total") == 0
        finish(server)
    (trace,) = traces([tmp_path / "trace"])
    found = replay(trace, Judges(load), Options(coverage=True))
    assert (found.verdict, found.reason, found.ended, found.from_start) == (ACCEPTED, "", True, True)
    assert found.coverage is not None
    assert {"Pause(retract)", "Pause(in_place)", "FlushRefused", "Continue"} <= set(found.coverage.actions)
    asked = [(line.do, line.how) for line in Reading(trace) if isinstance(line, Step) and line.do in {"pause", "defer"}]
    assert asked == [("pause", "retract"), ("defer", ""), ("pause", "in_place")]
    text = b"".join(part.path.read_bytes() for part in trace.parts)
    assert str(PROMPT[:3]).strip("[]").encode() not in text
    # Small: a paused loop spins, and that is one line, not thousands.
    assert found.steps > 5 * found.lines
    assert len(gzip.compress(text)) < 200_000
