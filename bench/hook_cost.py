"""The cost of the hooks per pass of the real loop, against the same engine without them and with its own busy check.

One engine; blocks of passes with the hooks take turns with blocks in which SGLang's own functions are in their place,
and with blocks in which these run SGLang's own check (`SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY=1`), by the
scheduler thread's CPU time (see `hook_cost_engine/meter.py`). Printed is the median of the rounds' ratios of a whole
pass.
Then the memory of the scheduler's process, against that of an engine without hooks.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import requests

from engine_hooks.sglang.testbed import launch, tinymodel
from engine_hooks.sglang.testbed.control import SPIN_VARIABLE
from engine_hooks.sglang.testbed.server import Server, ServerOptions

ROUNDS = 9
GOAL = 1.01
VARIANTS = ("hooked", "checked", "timed")
_PROBES_GOAL_MICROSECONDS = 10
_SHARE_GOAL = 0.1
_MEMORY_GOAL_MIB = 20
# Short, so that the cost of attention hardly grows within a request.
_TOKENS = 200
_WAIT_SECONDS = 600.0
_MEMORY_CYCLES = 20


def measured(results: Path, state: str, variant: str = "hooked") -> list[dict[str, Any]]:
    """The rounds of this variant in this state, in CPU seconds a pass.

    `bare`: without hooks and less the model's forward; `added`: what the variant adds to it; `model`: that forward;
    `probes`: of each pass timed, the time inside the probes.
    """
    rounds: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    return [r for r in rounds if r["state"] == state and r["variant"] == variant]


def wait(results: Path, state: str, variants: Iterable[str] = ("hooked",)) -> None:
    """Until enough rounds in this state were timed."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while (least := min(len(measured(results, state, variant)) for variant in variants)) < ROUNDS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{least} of {ROUNDS} rounds {state}")
        time.sleep(0.2)


def drive(server: Server, results: Path) -> None:
    """Decode, then idle, then pause, then pause with a flush that can never be granted."""

    def generate(tokens: int) -> None:
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": list(range(5, 69)), "sampling_params": sampling}
        requests.post(server.url + "/generate", json=body, timeout=_WAIT_SECONDS)

    def post(path: str, **body: object) -> None:
        requests.post(server.url + path, json=body, timeout=_WAIT_SECONDS)

    enough = threading.Event()

    def keep_decoding() -> None:
        while not enough.is_set():
            generate(_TOKENS)

    client = threading.Thread(target=keep_decoding, daemon=True)
    client.start()
    wait(results, "decoding", VARIANTS)
    enough.set()
    client.join(_WAIT_SECONDS)
    wait(results, "idle")
    server.control.rank().wait_idle()
    time.sleep(1)
    post("/pause_generation", mode="retract")
    wait(results, "paused")
    post("/continue_generation")
    post("/flush_cache")
    server.control.rank().d2h.hold()
    generate(4)
    post("/pause_generation", mode="retract")
    post("/flush_cache")
    wait(results, "stuck")
    server.control.rank().restore()


def report(results: Path, state: str, goal: float | None = None) -> bool:
    """Print one line; whether the goal was met."""
    rounds = measured(results, state)
    ratios = sorted(1 + r["added"] / (r["bare"] + r["model"]) for r in rounds)
    ratio = statistics.median(ratios)
    model, bare, added = (statistics.median(r[name] for r in rounds) * 1e6 for name in ("model", "bare", "added"))
    met = goal is None or ratio < goal
    print(
        f"{state:>10}: ratio {ratio:.4f} (median of {len(ratios)} rounds, {ratios[0]:.4f} to {ratios[-1]:.4f}); a pass "
        f"takes {model:.0f} us in the model and {bare:.1f} us outside it, hooks add {added:.1f} us{_said(goal, met)}"
    )
    return met


def report_beside_own_check(results: Path) -> bool:
    """What SGLang's own check adds to a decode pass, and the share of the hooks; whether the goal was met."""
    own, ours = (
        statistics.median(r["added"] for r in measured(results, "decoding", variant)) * 1e6
        for variant in ("checked", "hooked")
    )
    met = ours < own * _SHARE_GOAL
    print(f" own check: adds {own:.1f} us to a decode pass, of which the hooks are {ours / own:.0%}{_said('10%', met)}")
    return met


def report_probes(results: Path) -> bool:
    """The time inside the probes in decode passes; whether its median met the goal."""
    rounds = measured(results, "decoding", "timed")
    times = sorted(seconds * 1e6 for r in rounds for seconds in r["probes"])
    middle, mean = statistics.median(times), statistics.fmean(times)
    met = middle < _PROBES_GOAL_MICROSECONDS
    print(
        f"    probes: in {len(times)} decode passes median {middle:.1f} us, mean {mean:.1f} us, "
        f"p99 {times[len(times) * 99 // 100]:.1f} us{_said(f'{_PROBES_GOAL_MICROSECONDS} us', met)}"
    )
    return met


def report_memory(hooked: int, bare: int) -> bool:
    """Of two schedulers (bytes, unshared) after the same work; whether the goal was met."""
    more = (hooked - bare) / 2**20
    met = more < _MEMORY_GOAL_MIB
    print(f"    memory: {more:.1f} MiB more than the {bare / 2**20:.0f} MiB without hooks{_said('20 MiB', met)}")
    return met


def _said(goal: object, met: bool) -> str:  # noqa: FBT001 - an answer, not an option
    return "" if goal is None else f"; goal < {goal}: {'met' if met else 'MISSED'}"


def memory(model: Path, folder: Path, mode: str) -> int:
    """The unshared memory (bytes) of a scheduler after some requests, pauses and flushes."""
    folder.mkdir()
    environment = {"QUIESCE": mode, "QUIESCE_STATUS_DIR": str(folder / "status")}
    options = ServerOptions(model, folder, storage=True, arguments={"enable_metrics": True}, environment=environment)
    with Server(options) as server:
        for _ in range(_MEMORY_CYCLES):
            body = {"input_ids": list(range(5, 69)), "sampling_params": {"max_new_tokens": 32, "ignore_eos": True}}
            requests.post(server.url + "/generate", json=body, timeout=_WAIT_SECONDS)
            for path, asked in (("/pause_generation", {"mode": "retract"}), ("/continue_generation", {})):
                requests.post(server.url + path, json=asked, timeout=_WAIT_SECONDS)
            server.control.rank().wait_idle()
            requests.post(server.url + "/flush_cache", timeout=_WAIT_SECONDS)
        [scheduler] = [process for process in server.processes() if "scheduler" in "".join(process.cmdline())]
        return int(scheduler.memory_full_info().uss)


def main() -> int:
    """Run the benchmark; 0 where every goal for a decode pass and for memory was met, else 1."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        model = tinymodel.make(base / "model", seed=1)
        results = base / "results.json"
        meter = str(Path(__file__).parent / "hook_cost_engine")
        environment = {
            "QUIESCE": "observe",
            "QUIESCE_STATUS_DIR": str(base / "status"),
            "QUIESCE_BENCH_RESULTS": str(results),
            SPIN_VARIABLE: "1",
            "PYTHONPATH": os.pathsep.join(
                [meter, *launch.standin_paths(), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        (base / "engine").mkdir()
        options = ServerOptions(
            model, base / "engine", storage=True, arguments={"enable_metrics": True}, environment=environment
        )
        with Server(options) as server:
            drive(server, results)
        met = [report(results, "decoding", GOAL), report_beside_own_check(results), report_probes(results)]
        for state in ("idle", "paused", "stuck"):
            report(results, state)
        met.append(report_memory(memory(model, base / "hooked", "observe"), memory(model, base / "bare", "off")))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
