"""Remedies where they need an engine of their own: clocks, two ranks, ranks that differ, an engine repaired already."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
from harness import PROMPT, REMEDY, WAIT_SECONDS, Engine, Models, Stream, modules, prompt, wait_until
from msgspec.structs import replace

from checker.replay.align import alignments
from checker.replay.differences import WAITS
from checker.replay.reading import Reading, traces
from checker.replay.results import ACCEPTED, DIVERGES
from checker.replay.run import Judges, replay
from engine_hooks.sglang.testbed.server import Server, ServerOptions
from engine_hooks.trace import Step

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from record_traces import finish
from replay_traces import load, replayed, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_hooks.sglang.testbed.warm import Warm

    Start = Callable[..., Engine]

pytestmark = pytest.mark.engine

CLOCKS = "pause-stops-clocks"
GRAMMAR = "grammar-while-paused"
DEFERRED = "deferred-flush-ignores-waiting"
WATCHDOG_SECONDS = 8
WAITING_SECONDS = 4
"""Shorter than the pause below; the others of a request's life are milliseconds."""
RANKS = ("0", "1")
LONG = 200
"""Tokens of an answer that is not over when the pause comes."""
KINDS = {"bare": "", "repaired": CLOCKS}
"""An engine and its remedies."""


@pytest.fixture
def start(models: Models, warm: Warm, tmp_path: Path) -> Start:
    """Starts an engine that lives as long as the test; several of one test run beside each other."""
    with ExitStack() as engines:

        def one(name: str, remedies: str, environment: Mapping[str, str] | None = None, **arguments: object) -> Engine:
            folder = tmp_path / name
            folder.mkdir()
            ranks = arguments.get("tp_size", 1)
            options = ServerOptions(
                models.old,
                folder,
                ranks=ranks if isinstance(ranks, int) else 1,
                arguments={"enable_metrics": True, **arguments},
                environment={"QUIESCE": "observe", "QUIESCE_REMEDIES": remedies, **(environment or {})},
                start_seconds=480,
                warm=warm,
            )
            return Engine(engines.enter_context(Server(options)), models.old)

        yield one


def digests(engine: Engine) -> list[float]:
    """What each rank was made to do, as one number (`ranks-aligned`)."""
    return [engine.metrics().value("quiesce_protocol_digest", tp_rank=rank) for rank in RANKS]


def active(engine: Engine) -> set[str]:
    return {name for name, on in engine.metrics().by("quiesce_remedy_active", "remedy").items() if on}


def paused_long(engines: Mapping[str, Engine], mode: str, over: Callable[[Engine, Stream], bool], what: str) -> Stream:
    """Pause the bare engine and the repaired one while they answer, until the bare one shows that it was too long.

    Returns the bare one's answer. The repaired one's is whole in the end.
    """
    streams = {}
    for kind, engine in engines.items():
        streams[kind] = engine.generate(prompt(40), LONG)
        streams[kind].wait_tokens(4)
        engine.pause(mode)
    wait_until(lambda: over(engines["bare"], streams["bare"]), what)
    time.sleep(WAITING_SECONDS)  # the other was paused by the same clock, a little later
    assert active(engines["repaired"]) == {CLOCKS}
    assert streams["repaired"].running
    engines["repaired"].continue_()
    assert len(streams["repaired"].result()) == LONG
    return streams["bare"]


def test_a_long_pause_ends_no_request(start: Start) -> None:
    """A pause longer than the time-out of requests that wait (B17)."""
    timeout = {"SGLANG_REQ_WAITING_TIMEOUT": str(WAITING_SECONDS)}
    engines = {kind: start(kind, remedies, timeout) for kind, remedies in KINDS.items()}
    bare = paused_long(engines, "retract", lambda _, stream: not stream.running, "a request timed out by the pause")
    assert bare.error or len(bare.output_ids) < LONG


def test_a_long_pause_is_no_hang(start: Start) -> None:
    """A pause longer than the watchdog's limit (B06)."""
    engines = {kind: start(kind, remedies, watchdog_timeout=WATCHDOG_SECONDS) for kind, remedies in KINDS.items()}

    def ending(engine: Engine, _: Stream) -> bool:
        # It takes a minute over its dumps before it is gone.
        return "watchdog timeout" in engine.log() and "SIGQUIT received" in engine.log()

    bare = paused_long(engines, "in_place", ending, "a watchdog sees a hang, and ends the engine")
    assert bare.error or len(bare.output_ids) < LONG


@pytest.mark.parametrize("remedy", [REMEDY, GRAMMAR])
def test_a_grammar_that_is_compiled_in_a_pause(start: Start, tmp_path: Path, remedy: str) -> None:
    """Nothing polls its queue while paused (B13); with the remedy it leaves the queue, and the flush succeeds."""
    engine = start("grammar", remedy, modules("grammar", QUIESCE_TEST_GRAMMAR=str(tmp_path)))
    assert active(engine) == {REMEDY, remedy}
    body = {"input_ids": prompt(64), "sampling_params": {"max_new_tokens": 4, "regex": "a*"}}
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(requests.post, engine.server.url + "/generate", json=body, timeout=2 * WAIT_SECONDS)
        wait_until((tmp_path / "compiling").exists, "the grammar is being compiled")
        engine.pause("retract")
        assert not engine.flush().success
        (tmp_path / "compiled").touch()
        if remedy == GRAMMAR:
            engine.flush_until_done()
        else:
            engine.wait_passes(1000)
            assert not engine.flush().success
        assert not answer.done()
        engine.continue_()
        assert "Failed to compile regex grammar" in answer.result(WAIT_SECONDS).text
    engine.settle()


def test_two_ranks_wait_together(start: Start, models: Models) -> None:
    """Copies of one rank are in flight, of the other none: both hold the update, and take it in one pass."""
    engine = start("both", f"flush-waits,{REMEDY}", tp_size=2)
    assert active(engine) == {"flush-waits", REMEDY}
    first, second = (engine.server.control.rank(tp=tp) for tp in (0, 1))
    second.d2h.hold()
    stream = engine.generate(PROMPT, 100)
    second.d2h.wait_in_flight()
    stream.wait_tokens(1)
    engine.pause("retract")
    with ThreadPoolExecutor(1) as client:
        update = client.submit(engine.update_from_disk, models.new)
        engine.wait_metric(2, "quiesce_paused", process="scheduler")
        first.d2h.wait_idle()
        assert not update.done()
        second.d2h.release()
        assert update.result(WAIT_SECONDS).success
    engine.continue_()
    stream.result()
    assert not engine.metrics().by("quiesce_violations_total", "property").get("update-flushes")
    engine.settle()
    (one, other) = digests(engine)
    assert one == other != 0


def test_ranks_that_differ_have_no_remedy(start: Start, tmp_path: Path) -> None:
    """Rank 1 is asked for one remedy less: all are off on both, and both serve. Then it refuses a flush, alone."""
    refuse = str(tmp_path / "refuse")
    other = modules("differing", QUIESCE_TEST_RANK_1=REMEDY, QUIESCE_TEST_RANK_1_REFUSES=refuse)
    engine = start("differing", f"{REMEDY},{DEFERRED}", other | {"QUIESCE_TRACE": str(tmp_path / "trace")}, tp_size=2)
    assert active(engine) == set()
    assert engine.log().count("the ranks differ in version, spec or remedies; remedies are off") == 2
    second = engine.server.control.rank(tp=1)
    second.d2h.hold()
    engine.ask(PROMPT, 4)
    second.d2h.wait_in_flight()
    time.sleep(0.2)  # the copy has landed on the first rank, and is not counted, though nobody runs
    second.d2h.release()
    stream = engine.generate(prompt(64), 200)
    stream.wait_tokens(4)
    engine.pause("retract")
    assert not engine.flush(timeout=1).success  # as without it
    engine.continue_()
    stream.result()
    engine.settle()
    (one, other) = digests(engine)
    assert one == other != 0
    (tmp_path / "refuse").touch()
    assert engine.flush().success  # says the first rank, which answers
    wait_until(lambda: len(set(digests(engine))) == len(RANKS), "their digests differ")
    finish(engine.server)
    the_spec_tells_them_apart(tmp_path)


def the_spec_tells_them_apart(folder: Path) -> None:
    """The first rank may wait for the second, which the spec of one rank does not let it; and the second refused."""
    found = {trace.header.rank["tp"]: trace for trace in traces([folder / "trace"])}
    first, second = (replay(found[tp], Judges(load)) for tp in (0, 1))
    assert (first.verdict, first.reason, first.ended) == (ACCEPTED, "", True)
    assert first.differences[WAITS]
    alone = folder / "alone.trace.ndjson"
    steps = [line for line in Reading(found[0]) if isinstance(line, Step)]
    alone.write_bytes(text_of(replace(found[0].header, sizes={}), steps))
    assert replayed(alone).verdict == DIVERGES
    assert second.divergence is not None
    assert second.divergence.did == "flush refused"
    (alignment,) = alignments(list(found.values()))
    assert alignment.verdict == DIVERGES


def test_a_remedy_stays_out_of_an_engine_that_is_repaired(start: Start) -> None:
    """The engine's own deferred flush ignores waiting requests here: the remedy says that it is not needed."""
    engine = start("repaired", f"{DEFERRED},{REMEDY}", modules("repaired", QUIESCE_TEST_REPAIRED="1"))
    assert active(engine) == {REMEDY}
    (line,) = (line for line in engine.log().splitlines() if f"remedy {DEFERRED} cannot bind" in line)
    assert "either repaired already or another" in line
    stream = engine.generate(prompt(64), 200)
    stream.wait_tokens(4)
    engine.rank.wait_idle()
    engine.pause("retract")
    assert engine.flush(timeout=3).success
    engine.continue_()
    stream.result()
