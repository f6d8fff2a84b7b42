"""Random control of the real engine, every pause mode, transfers held at random: its trace is a run of the spec.

Nothing is stepped: the loop runs as it does, and what it did is judged afterwards, line for line.
An episode is what happens around one pause. QUIESCE_RANDOM_EPISODES=200 takes more than CI does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import REMEDY, Engine, Models, Setup, Stream, modules, prompt, wait_until
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from checker.replay.reading import traces
from checker.replay.results import ACCEPTED, DIVERGES, Replayed
from checker.replay.run import Judges, replay
from engine_hooks.sglang.testbed.server import Server, ServerOptions
from engine_hooks.trace import TraceHeader
from spec.profile import Profile, load_profile

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.control import Switch
    from engine_hooks.sglang.testbed.warm import Warm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from record_traces import finish

pytestmark = pytest.mark.engine

EPISODES = int(os.environ.get("QUIESCE_RANDOM_EPISODES", "20"))
PER_EXAMPLE = 10
STREAMS = 4
MODES = ("retract", "in_place", "abort")
LANES = ("d2h", "storage_query", "storage_read", "storage_write")
PROMPTS = st.tuples(st.sampled_from([24, 300, 700]), st.sampled_from([3, 5, 7]), st.sampled_from([1, 8, 60]))
INSIDE = ("flush", "flush", "flush_later", "update", "release", "abort", "request", "wait")


class Trainer(RuleBasedStateMachine):
    """A trainer and clients that do anything, and devices that are slow at times; what is held may outlast a pause."""

    def __init__(self, engine: Engine, models: Models, done: list[str]) -> None:
        super().__init__()
        self.engine, self.models, self.done = engine, models, done
        self.streams: list[Stream] = []
        lanes = LANES if engine.server.options.storage else LANES[:1]
        self.lanes: dict[str, Switch] = {name: getattr(engine.rank, name) for name in lanes}

    def teardown(self) -> None:
        """To the next example: everything ends."""
        self.engine.rank.restore()
        wait_until(lambda: not self.running, "all requests have ended")
        self.engine.settle()

    @property
    def running(self) -> list[Stream]:
        return [stream for stream in self.streams if stream.running]

    @rule(
        prompts=st.lists(PROMPTS, min_size=1, max_size=3),
        held=st.sets(st.sampled_from(LANES), max_size=2),
        mode=st.sampled_from(MODES),
        inside=st.lists(st.sampled_from(INSIDE), min_size=3, max_size=7),
        resumed=st.sampled_from(["release", "flush", "update", "abort"]),
    )
    def episode(
        self, prompts: list[tuple[int, int, int]], held: set[str], mode: str, inside: list[str], resumed: str
    ) -> None:
        """Requests, transfers held, a pause of any mode, anything inside it, and something after it."""
        for name in held & self.lanes.keys():
            self.lanes[name].hold()
        for length, seed, tokens in prompts:
            self.request(length, seed, tokens)
        time.sleep(0.05)
        if mode == "abort":
            self.free_lookups()
        self.engine.pause(mode)
        self.done.append(f"pause {mode}")
        for name in inside:
            getattr(self, name)()
        self.engine.continue_()
        self.done.append("continue")
        getattr(self, resumed)()

    def request(self, length: int = 300, seed: int = 3, tokens: int = 8) -> None:
        if len(self.running) < STREAMS:
            self.streams.append(self.engine.generate(prompt(length, seed), tokens))
            time.sleep(0.02)
            self.done.append("request")

    def wait(self) -> None:
        time.sleep(0.05)

    def release(self) -> None:
        for switch in self.lanes.values():
            switch.release()

    def free_lookups(self) -> None:
        """A lookup whose request is gone stays in the storage's call: a flush would wait for it, and end the engine."""
        for name in LANES[1:3]:
            if name in self.lanes:
                self.lanes[name].release()
                self.lanes[name].wait_idle()

    def abort(self) -> None:
        known = [stream for stream in self.running if stream.meta]
        if known:
            self.free_lookups()
            self.engine._post("/abort_request", rid=known[0].meta["id"]).raise_for_status()
            self.done.append("abort")

    def flush(self) -> None:
        self.done.append(f"flush {self.engine.flush().success}")

    def flush_later(self) -> None:
        self.done.append(f"flush later {self.engine.flush(timeout=0.1).success}")

    def update(self) -> None:
        """While resumed it waits for the requests that run, so that nothing may keep them."""
        self.free_lookups()
        model = self.models.new if len(self.done) % 2 else self.models.old
        self.done.append(f"update {self.engine.update_from_disk(model).success}")


def at_random(engine: Engine, models: Models, episodes: int) -> list[str]:
    """So many episodes, the same each time. Returns what was asked for, and what was answered."""
    done: list[str] = []
    chosen = settings(
        max_examples=max(1, episodes // PER_EXAMPLE),
        stateful_step_count=min(episodes, PER_EXAMPLE),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Trainer(engine, models, done), settings=chosen)
    return done


def load(header: TraceHeader) -> Profile:
    profile = load_profile(header.profile)
    return profile.with_remedies(header.remedies) if header.remedies else profile


def options_of(setup: Setup, models: Models, warm: Warm, folder: Path, **environment: str) -> ServerOptions:
    (folder / "engine").mkdir()
    return ServerOptions(
        models.old,
        folder / "engine",
        storage=setup.storage == "file",
        arguments=setup.arguments,
        environment=setup.environment | {"QUIESCE_TRACE": str(folder / "trace")} | environment,
        start_seconds=480,
        warm=warm,
    )


def judged(folder: Path) -> Replayed:
    (trace,) = traces([folder / "trace"])
    return replay(trace, Judges(load))


@pytest.mark.parametrize(
    "setup",
    [Setup("overlap", "file"), Setup("normal", "file", REMEDY)],
    ids=str,
)
def test_what_an_engine_does_at_random_is_a_run_of_the_spec(
    setup: Setup, models: Models, warm: Warm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server(options_of(setup, models, warm, tmp_path)) as server:
        engine = Engine(server, models.old)
        done = at_random(engine, models, EPISODES)
        assert engine.metrics().value("quiesce_trace_events_dropped_total") == 0
        finish(server)
    found = judged(tmp_path)
    with capsys.disabled():
        kinds = {kind: done.count(kind) for kind in sorted(set(done))}
        sys.stdout.write(f"\n{setup}: {found.verdict}, {found.steps} steps in {found.lines} lines; {kinds}")
    assert (found.verdict, found.reason, found.divergence, found.ended) == (ACCEPTED, "", None, True)
    assert {f"pause {mode}" for mode in MODES} <= set(done)
    assert {"flush True", "flush False"} <= set(done)


def test_a_planted_defect_is_no_run_of_the_spec(models: Models, warm: Warm, tmp_path: Path) -> None:
    """The negative control: each paused pass looks up the first request that waits."""
    setup = Setup("normal", "file", REMEDY)
    defects = modules("defects", QUIESCE_TEST_DEFECTS=str(tmp_path))
    options = options_of(setup, models, warm, tmp_path, **defects)
    (tmp_path / "defects").write_text("requeue_looks_up")
    with Server(options) as server:
        at_random(Engine(server, models.old), models, EPISODES)
        finish(server)
    assert (tmp_path / "requeue_looks_up.done").exists()
    found = judged(tmp_path)
    assert found.verdict == DIVERGES
    assert found.divergence is not None
    assert [way.action for way in found.divergence.ways] == ["PausedPass"]
