"""A prefill and a decode worker of two stages each: both honour a pause with `pp-honours-pause`, and drain in it.

Four schedulers, which take longer to start than all else here: run with `--workers-in-stages` only.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from harness import Engine, Models, Stream, prompt, wait_until
from test_disaggregation import Pair

from engine_hooks.sglang.testbed.server import Server, ServerOptions, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

REMEDIES = ("pp-honours-pause", "pd-drains-while-paused")
KINDS = {"bare": "", "repaired": ",".join(REMEDIES)}
TOKENS = 60
TIMES = 6
ROUNDS = 40
STAGES = (0, 1)
LAUNCHED = "no-forward-while-paused"


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if not request.config.getoption("--workers-in-stages"):
        pytest.skip("takes four minutes; asked for with --workers-in-stages")
    port = free_port()
    with ExitStack() as servers:

        def worker(mode: str, **more: object) -> Engine:
            arguments = {
                "enable_metrics": True,
                "pp_size": 2,
                "disaggregation_mode": mode,
                "disaggregation_transfer_backend": "mooncake_tcp",
                "disaggregation_bootstrap_port": port,
                "sleep_on_idle": True,
                **more,
            }
            environment = {"QUIESCE": "observe", "QUIESCE_REMEDIES": KINDS[request.param]}
            folder = tmp_path_factory.mktemp(mode)
            options = ServerOptions(
                models.old, folder, ranks=2, arguments=arguments, environment=environment, start_seconds=480
            )
            return Engine(servers.enter_context(Server(options)), models.old)

        yield Pair(worker("prefill"), worker("decode", disaggregation_decode_enable_radix_cache=True), port)


def repaired(engine: Engine) -> bool:
    active = engine.metrics().by("quiesce_remedy_active", "remedy")
    on = {bool(active[name]) for name in REMEDIES}
    assert len(on) == 1
    return on.pop()


def sees_stuck_states(engine: Engine) -> bool:
    """Whether a stuck region is compiled for a retract of this worker: with the remedies no state is stuck."""
    return engine.metrics().value("quiesce_hook_applied", hook="stuck_region") == len(STAGES)


def launched_while_paused(engine: Engine) -> float:
    return engine.metrics().violations.get(LAUNCHED, 0)


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_a_decode_worker_in_stages_stops(pair: Pair, mode: str) -> None:
    engine = pair.decode
    expected = pair.generate(prompt(200, 7), TOKENS)[1].result()
    before = launched_while_paused(engine)
    _, stream = pair.generate(prompt(200, 7), TOKENS)
    stream.wait_tokens(4)
    engine.pause(mode)
    if not repaired(engine):
        stream.result()  # while paused
        engine.continue_()
        wait_until(lambda: launched_while_paused(engine) > before, "the monitor has seen it")
        return
    time.sleep(1)  # what was under way is at its end
    seen = len(stream.output_ids)
    time.sleep(1)
    assert len(stream.output_ids) == seen < TOKENS
    if mode == "retract":
        engine.flush_until_done()
    else:
        assert not engine.flush().success
    engine.continue_()
    assert stream.result() == expected
    assert launched_while_paused(engine) == before


@pytest.mark.parametrize("paused", ["decode", "prefill"])
def test_kv_that_is_sent_at_the_pause_of_workers_in_stages(pair: Pair, paused: str) -> None:
    ids = prompt(300, 11 if paused == "decode" else 13)
    expected = pair.generate(ids, 12)[1].result()
    engine = getattr(pair, paused)
    before = launched_while_paused(engine)
    sends = [pair.prefill.server.control.rank(pp=stage).pd_send for stage in STAGES]
    for send in sends:
        send.hold()
    sent, stream = pair.generate(ids, 12)
    for send in sends:
        send.wait_in_flight()
    engine.pause("retract")
    assert not engine.flush().success
    wait_until(lambda: sees_stuck_states(engine) == repaired(engine), "the monitor has chosen its region")
    for send in sends:
        send.release()
    for send in sends:
        send.wait_idle()
    if paused == "prefill" or repaired(engine):
        engine.flush_until_done()
        assert launched_while_paused(engine) == before
    else:
        assert stream.result() == expected  # while paused
    engine.continue_()
    assert stream.result() == expected
    assert sent.thread is not None
    sent.thread.join(60)


def test_a_prefill_worker_in_stages_starts_no_prefill(pair: Pair) -> None:
    """Of a request that it has had since before the pause, and whose decode worker comes only now."""
    engine, ids = pair.prefill, prompt(1800, 17)
    before = launched_while_paused(engine)
    expected = pair.generate(ids, 8)[1].result()
    pair.next_room()
    sent = pair.send(pair.prefill, ids, 8)
    wait_until(lambda: not engine.flush().success, "the prefill worker has the request")
    engine.pause("retract")
    stream = pair.send(pair.decode, ids, 8)
    if repaired(engine):
        engine.flush_until_done()  # the two have met, and the request waits
        time.sleep(1)
        assert stream.running
        assert not stream.output_ids
        assert launched_while_paused(engine) == before
    else:
        assert stream.result() == expected  # while paused
        wait_until(lambda: launched_while_paused(engine) > before, "the monitor has seen it")
    engine.continue_()
    assert stream.result() == expected
    assert sent.thread is not None
    sent.thread.join(60)


def test_pauses_under_load(pair: Pair) -> None:
    """Requests come all the time, and both workers pause and go on. No retract of the decode worker: see below."""
    if not repaired(pair.decode):
        pytest.skip("of the pair with the remedies: without them nothing stops in a pause")
    prompts = [prompt(60 + 40 * n, 19 + n) for n in range(4)]
    expected = [pair.generate(ids, 20)[1].result() for ids in prompts]
    found: list[list[int]] = []
    lock = threading.Lock()

    def one(ids: list[int]) -> Stream:
        with lock:
            return pair.generate(ids, 20)[1]

    def client(ids: list[int]) -> None:
        found.extend([*ids[:1], *one(ids).result()] for _ in range(TIMES))

    clients = [threading.Thread(target=client, args=(ids,), daemon=True) for ids in prompts]
    for thread in clients:
        thread.start()
    turns = ((pair.prefill, "retract"), (pair.decode, "in_place"), (pair.prefill, "in_place"))
    rounds = 0
    while any(thread.is_alive() for thread in clients) and rounds < ROUNDS:
        engine, mode = turns[rounds % len(turns)]
        engine.pause(mode)
        engine.flush()
        time.sleep(0.2)
        engine.continue_()
        time.sleep(0.3)
        rounds += 1
    for thread in clients:
        thread.join(120)
    assert rounds > len(turns)
    right = [[*ids[:1], *answer] for ids, answer in zip(prompts, expected, strict=True)]
    assert sorted(found) == sorted(right * TIMES)
