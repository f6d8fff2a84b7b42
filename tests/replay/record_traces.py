"""Records the traces in tests/replay/traces on the CPU testbed.

    python tests/replay/record_traces.py [NAME]...     NAME: normal-none, overlap-file-repaired, tp2, … (all by default)

One engine for each; where it has several ranks, a folder with a trace of each.
It goes through everything that a trainer may do, with transfers held on their way.
"""

from __future__ import annotations

import gzip
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

import psutil
from harness import Engine, Setup, prompt

from checker.replay.reading import traces
from engine_hooks.sglang.testbed import tinymodel
from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_hooks.sglang.testbed.control import Switch

END_SECONDS = 60.0
"""How long a scheduler may take to end, on a machine shared with others."""
TRACES = Path(__file__).parent / "traces"
REMEDY = "reap-while-paused"
SETUPS = {
    f"{loop}-{storage}{'-repaired' if remedy else ''}": Setup(loop, storage, remedy)
    for loop in ("normal", "overlap")
    for storage in ("none", "file")
    for remedy in ("", REMEDY)
}


WIDE = {
    "tp2": {"tp_size": 2},
    "dp2": {"dp_size": 2},
    "dp2-attention": {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True},
    "pp2": {"pp_size": 2},
    "pp2-repaired": {"pp_size": 2},
}
"""Engines with two ranks: the loop normal, or pp, without storage."""
WIDE_REMEDIES = {"pp2-repaired": "pp-honours-pause"}


def main(names: list[str]) -> None:
    """Record these, or all."""
    for name in names or [*SETUPS, *WIDE]:
        wide = WIDE.get(name, {})
        texts = record(SETUPS.get(name, Setup("normal", "none", WIDE_REMEDIES.get(name, ""))), wide)
        folder = TRACES / name if wide else TRACES
        folder.mkdir(parents=True, exist_ok=True)
        for rank, text in enumerate(texts):
            path = folder / f"rank{rank}.trace.ndjson.gz" if wide else folder / f"{name}.trace.ndjson.gz"
            path.write_bytes(gzip.compress(text, mtime=0))
            print(name, rank, len(text), "bytes")  # noqa: T201 - a script


def record(setup: Setup, wide: Mapping[str, object]) -> list[bytes]:
    """The traces of the ranks of one engine with this setup."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = (tinymodel.make(_made(folder / f"model{seed}"), seed=seed) for seed in (1, 2))
        home = _made(folder / "engine")
        options = ServerOptions(
            old,
            home,
            storage=setup.storage == "file",
            # The spec's lookups are those of the policy `timeout`, which is the engine's default.
            arguments=setup.arguments | {"hicache_storage_prefetch_policy": "timeout"} | dict(wide),
            ranks=2 if wide else 1,
            environment=setup.environment | {"QUIESCE_TRACE": str(folder / "trace")},
            start_seconds=400,
        )
        with Server(options) as server:
            engine = Engine(server, old)
            scenario(engine, new, storage=options.storage)
            if "pp_size" in wide:
                turns(engine)
            if wide.get("tp_size") and len(wide) == 1:
                skewed(engine)
            finish(server)
        found = sorted(traces([folder / "trace"]), key=lambda trace: sorted(trace.header.rank.items()))
        return [b"".join(part.path.read_bytes() for part in trace.parts) for trace in found]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def finish(server: Server) -> None:
    """End the scheduler so that it writes the end of its trace."""
    schedulers = [process for process in server.processes() if "scheduler" in "".join(process.cmdline())]
    for process in schedulers:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + END_SECONDS
    while any(_runs(process) for process in schedulers) and time.monotonic() < deadline:
        time.sleep(0.1)


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def scenario(engine: Engine, new: Path, *, storage: bool) -> None:
    """Requests, pauses in each mode, flushes and updates of each kind, with transfers held at the pause."""
    serve(engine)
    for lane in ("d2h", *(("storage_write",) if storage else ())):
        held_copy(engine, lane)
    for lane in ("storage_query", "storage_read") if storage else ():
        held_lookup(engine, lane)
    deferred(engine)
    updates(engine, new)
    in_place(engine)
    aborted(engine, storage=storage)
    serve(engine)
    engine.settle()


def serve(engine: Engine) -> None:
    """Requests one by one and several at once; the first prompts again when others have evicted them."""
    for seed in (7, 11, 13):
        engine.ask(prompt(600, seed), 4)
    streams = [engine.generate(prompt(500, seed), 12) for seed in (17, 19, 23, 29, 31)]
    for stream in streams:
        stream.result()
    for seed in (7, 11):
        engine.ask(prompt(600, seed), 4)


def held_copy(engine: Engine, lane: str) -> None:
    """A retract with a copy of this lane in flight; a flush is refused until it lands, and perhaps after."""
    engine.settle()
    switch = getattr(engine.rank, lane)
    switch.hold()
    stream = engine.generate(prompt(700, 41), 60)
    stream.wait_tokens(10)
    retract(engine, switch)
    stream.result()
    engine.settle()


def held_lookup(engine: Engine, lane: str) -> None:
    """A retract while a waiting request is looked up in the storage, or read from it."""
    engine.ask(prompt(700, 41), 4)
    engine.settle()
    switch = getattr(engine.rank, lane)
    switch.hold()
    stream = engine.generate(prompt(700, 41), 20)
    # Before the engine gives up, after a second: else the next flush would wait for its thread, and end the engine.
    switch.wait_in_flight()
    retract(engine, switch)
    stream.result()
    engine.settle()


def retract(engine: Engine, switch: Switch) -> None:
    """A pause; flushes of each kind before and after what is held lands."""
    engine.pause("retract")
    engine.flush()
    switch.release()
    engine.rank.wait_idle()
    time.sleep(0.1)
    engine.flush()
    engine.flush(timeout=0.3)
    engine.continue_()


def deferred(engine: Engine) -> None:
    """A deferred flush that is granted once the request has ended, and one that times out."""
    stream = engine.generate(prompt(300, 43), 30)
    stream.wait_tokens(5)
    engine.flush(timeout=60)
    stream.result()
    stream = engine.generate(prompt(300, 47), 200)
    stream.wait_tokens(5)
    engine.flush(timeout=0.1)
    stream.result()


def updates(engine: Engine, new: Path) -> None:
    """An update whose flush is refused, and one whose flush is granted."""
    engine.settle()
    engine.rank.d2h.hold()
    stream = engine.generate(prompt(600, 53), 40)
    stream.wait_tokens(10)
    engine.pause("retract")
    engine.update_from_disk(new)
    engine.rank.d2h.release()
    engine.rank.wait_idle()
    engine.continue_()
    stream.result()
    engine.settle()
    engine.pause("retract")
    engine.update_from_disk(new)
    engine.continue_()


def in_place(engine: Engine) -> None:
    """A pause that keeps the running work."""
    stream = engine.generate(prompt(300, 59), 40)
    stream.wait_tokens(10)
    engine.pause("in_place")
    engine.flush()
    time.sleep(0.2)
    engine.continue_()
    stream.result()


def skewed(engine: Engine) -> None:
    """A copy that has landed on one rank, and not on the other for many idle passes, whichever it is."""
    for tp in (0, 1):
        slow = engine.server.control.rank(tp=tp).d2h
        slow.hold()
        engine.ask(prompt(600, 89 + 8 * tp), 4)
        slow.wait_in_flight()
        time.sleep(0.2)
        slow.release()
        slow.wait_idle()
        engine.flush_until_done()


def turns(engine: Engine) -> None:
    """Pauses of each kind while several micro-batches of a pipeline have requests."""
    for mode in ("retract", "in_place", "abort"):
        streams = [engine.generate(prompt(100, seed), 40) for seed in (73, 79, 83)]
        for stream in streams:
            stream.wait_tokens(4)
        engine.pause(mode)
        engine.flush()
        engine.flush(timeout=0.1)
        time.sleep(0.2)
        engine.continue_()
        for stream in streams if mode != "abort" else ():
            stream.result()
        engine.flush_until_done()


def aborted(engine: Engine, *, storage: bool) -> None:
    """A pause of mode abort, of which the scheduler is not told: with a running request, and with a waiting one."""
    engine.generate(prompt(300, 61), 200).wait_tokens(5)
    engine.pause("abort")
    engine.continue_()
    if storage:
        engine.settle()
        engine.rank.storage_query.hold()
        # Two wait: an abort of one would do the same to one.
        engine.generate(prompt(700, 67), 8)
        engine.generate(prompt(700, 71), 8)
        engine.rank.storage_query.wait_in_flight()
        engine.wait_metric(2, "quiesce_ledger_entries", ledger="prefetch", stage="queued")
        engine.pause("abort")
        engine.rank.storage_query.release()
        engine.rank.wait_idle()
        engine.continue_()


if __name__ == "__main__":
    main(sys.argv[1:])
