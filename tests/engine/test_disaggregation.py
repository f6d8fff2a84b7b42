"""A prefill and a decode worker on the real engine: KV under way at a pause blocks every flush (B23), or is drained.

What both did is a run of the spec, each by the profile of its own kind.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import Engine, Metrics, Models, Stream, prompt, wait_until

from checker.replay.differences import ARRIVES, LANDS
from checker.replay.profiles import profile_name
from checker.replay.reading import traces
from checker.replay.results import ACCEPTED
from checker.replay.run import Judges, Options, replay
from engine_hooks.sglang.testbed.server import Server, ServerOptions, free_port
from spec.profile import Profile, load_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_hooks.sglang.testbed.warm import Warm
    from engine_hooks.trace import TraceHeader

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from record_traces import finish

pytestmark = pytest.mark.engine

REMEDY = "pd-drains-while-paused"
KINDS = {"bare": "", "repaired": REMEDY}
LOOPS = {"bare": "normal", "repaired": "overlap"}
TOKENS = 12


class Pair:
    """A prefill worker, and the decode worker that gets its KV."""

    def __init__(self, prefill: Engine, decode: Engine, port: int) -> None:
        self.prefill, self.decode, self._port = prefill, decode, port
        self._room = 0

    @property
    def workers(self) -> tuple[Engine, Engine]:
        """Both."""
        return self.prefill, self.decode

    def generate(self, input_ids: list[int], tokens: int) -> tuple[Stream, Stream]:
        """A request as a router sends it, to both; the streams of the two."""
        self.next_room()
        return self.send(self.prefill, input_ids, tokens), self.send(self.decode, input_ids, tokens)

    def next_room(self) -> None:
        """What is sent from here on is another request."""
        self._room += 1

    def send(self, engine: Engine, input_ids: list[int], tokens: int) -> Stream:
        """The request, to one of them."""
        stream = Stream(tokens)
        body = {
            "input_ids": input_ids,
            "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
            "stream": True,
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self._port,
            "bootstrap_room": self._room,
        }
        stream.thread = threading.Thread(target=stream.read, args=(engine.server.url + "/generate", body), daemon=True)
        stream.thread.start()
        return stream


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    port = free_port()
    with ExitStack() as servers:

        def worker(mode: str, **more: object) -> Engine:
            arguments = {
                "enable_metrics": True,
                "disaggregation_mode": mode,
                "disaggregation_transfer_backend": "mooncake_tcp",
                "disaggregation_bootstrap_port": port,
                "disable_overlap_schedule": LOOPS[request.param] == "normal",
                "sleep_on_idle": True,
                **more,
            }
            folder: Path = tmp_path_factory.mktemp(mode)
            environment = {
                "QUIESCE": "observe",
                "QUIESCE_REMEDIES": KINDS[request.param],
                "QUIESCE_TRACE": str(folder / "trace"),
            }
            options = ServerOptions(
                models.old, folder, arguments=arguments, environment=environment, start_seconds=480, warm=warm
            )
            return Engine(servers.enter_context(Server(options)), models.old)

        yield Pair(worker("prefill"), worker("decode", disaggregation_decode_enable_radix_cache=True), port)


PROPERTY = "paused-flush-succeeds"
QUEUES = {"prefill": "pd_inflight (1 sending)", "decode": "pd_transfer (1 receiving)"}
"""What the line of a violation names."""


def stuck(engine: Engine, before: Metrics) -> bool:
    """Whether the monitor says that the flush cannot succeed, and has counted it once since."""
    now = engine.metrics()
    assert now.value("quiesce_hook_applied", hook="stuck_region") == 1
    assert now.violations_since(before) == ({PROPERTY: 1} if now.stuck else {})
    return now.stuck


def repaired(engine: Engine) -> bool:
    return bool(engine.metrics().by("quiesce_remedy_active", "remedy")[REMEDY])


@pytest.mark.parametrize("paused", ["decode", "prefill"])
def test_kv_that_is_sent_at_the_pause(pair: Pair, paused: str) -> None:
    """The same worker is asked before and after the KV has arrived; the answer is whole in the end."""
    ids = prompt(300, 7 if paused == "decode" else 11)
    _, stream = pair.generate(ids, TOKENS)
    expected = stream.result()
    pair.prefill.settle()
    pair.decode.settle()
    engine = getattr(pair, paused)
    before = engine.metrics()
    engine.pause("retract")
    assert engine.flush().success
    assert not stuck(engine, before)  # nothing is in flight
    engine.continue_()
    send = pair.prefill.rank.pd_send
    send.hold()
    sent, stream = pair.generate(ids, TOKENS)
    send.wait_in_flight()
    engine.pause("retract")
    assert not engine.flush().success
    wait_until(lambda: stuck(engine, before) != repaired(engine), "the monitor has looked")
    assert (QUEUES[paused] in engine.log()) != repaired(engine)
    send.release()
    send.wait_idle()
    if repaired(engine):
        engine.flush_until_done()
    else:
        time.sleep(1)  # a hundred passes, and more
        assert not engine.flush().success
    assert stuck(engine, before) != repaired(engine)
    assert paused == "prefill" or stream.running
    engine.continue_()
    assert stream.result() == expected
    assert sent.thread is not None
    sent.thread.join(60)
    pair.prefill.settle()
    pair.decode.settle()


def everything(pair: Pair, models: Models) -> None:
    """Pauses of each mode while requests run, with flushes and updates in them; several requests; a deferred flush."""
    for stream in [pair.generate(prompt(200, seed), TOKENS)[1] for seed in (13, 17, 19)]:
        stream.result()
    for mode in ("retract", "in_place", "abort"):
        _, stream = pair.generate(prompt(200, 29), 60)
        stream.wait_tokens(5)
        pair.decode.pause(mode)
        pair.decode.flush()
        pair.decode.flush(timeout=0.1)
        if mode == "retract":
            pair.decode.update_from_disk(models.new)
        pair.decode.continue_()
        assert stream.thread is not None
        stream.thread.join(60)
        pair.decode.settle()
    for mode in ("retract", "in_place"):
        pair.prefill.pause(mode)
        pair.prefill.update_from_disk(models.new)
        pair.prefill.continue_()
    _, stream = pair.generate(prompt(200, 37), 40)
    stream.wait_tokens(3)
    assert pair.decode.flush(timeout=60).success
    stream.result()


def test_what_both_workers_did_is_a_run_of_the_spec(
    pair: Pair, models: Models, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last test: it ends the workers. Their traces begin where they did, with what the tests above ask for."""
    everything(pair, models)
    kind = request.node.callspec.params["pair"]
    for worker, mode in zip(pair.workers, ("prefill", "decode"), strict=True):
        assert worker.metrics().value("quiesce_trace_events_dropped_total") == 0
        finish(worker.server)
        (trace,) = traces([worker.server.options.folder / "trace"])
        assert trace.header.loop == f"{mode}-{LOOPS[kind]}"
        found = replay(trace, Judges(load, frozenset((LANDS, ARRIVES))), Options(coverage=True))
        assert (found.verdict, found.reason, found.divergence) == (ACCEPTED, "", None)
        assert (found.ended, found.from_start) == (True, True)
        assert found.coverage is not None
        with capsys.disabled():
            sys.stdout.write(
                f"\n{trace.header.loop}, {kind}: {found.steps} steps in {found.lines} lines, {found.coverage.states} "
                f"states, {len(found.coverage.actions)} actions; not seen: {', '.join(found.coverage.missing)}"
            )
        seen = {"Arrive", "RunningPass", "PausedPass", "Pause(retract)", "Pause(in_place)", "FlushRefused"}
        assert seen <= found.coverage.actions.keys()


def load(header: TraceHeader) -> Profile:
    profile = load_profile(profile_name(header))
    return profile.with_remedies(header.remedies) if header.remedies else profile
