"""The cost of the hooks per pass of the real loop, against the same engine without them.

One engine; blocks of passes with the hooks alternate with blocks in which SGLang's own functions are in their place
(see `hook_cost_engine/sitecustomize.py`), so both see the same requests on the same machine at the same time. A round
compares the fastest of 40 blocks of each kind, by the scheduler thread's CPU time a pass; printed is the median of the
rounds' ratios of a whole pass with the hooks to one without.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import requests

from engine_hooks.sglang.testbed import launch, tinymodel
from engine_hooks.sglang.testbed.server import Server, ServerOptions

ROUNDS = 9
GOAL = 1.01
# Short, so that the cost of attention hardly grows within a request.
_TOKENS = 200
_WAIT_SECONDS = 300.0


def measured(results: Path, state: str) -> list[dict[str, Any]]:
    """The rounds in this state, in CPU seconds a pass.

    `bare` and `hooked`: without and with the hooks, less the model's forward; `model`: that forward.
    """
    rounds: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    return [r for r in rounds if r["state"] == state]


def wait(results: Path, state: str) -> None:
    """Until enough rounds in this state were timed."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while len(measured(results, state)) < ROUNDS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(measured(results, state))} of {ROUNDS} rounds {state}")
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
    wait(results, "decoding")
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
    ratios = sorted((r["hooked"] + r["model"]) / (r["bare"] + r["model"]) for r in rounds)
    ratio = statistics.median(ratios)
    model, bare, hooked = (statistics.median(r[name] for r in rounds) * 1e6 for name in ("model", "bare", "hooked"))
    met = goal is None or ratio < goal
    wanted = "" if goal is None else f"; goal < {goal}: {'met' if met else 'MISSED'}"
    print(
        f"{state:>10}: ratio {ratio:.4f} (median of {len(ratios)} rounds, {ratios[0]:.4f} to {ratios[-1]:.4f}); "
        f"a pass takes {model:.0f} us in the model and {bare:.1f} us outside it, with hooks {hooked:.1f} us{wanted}"
    )
    return met


def main() -> int:
    """Run the benchmark; 0 where the goal for a decode pass was met, 1 where it was missed."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        model = tinymodel.make(base / "model", seed=1)
        results = base / "results.json"
        meter = str(Path(__file__).parent / "hook_cost_engine")
        environment = {
            "QUIESCE": "observe",
            "QUIESCE_STATUS_DIR": str(base / "status"),
            "QUIESCE_BENCH_RESULTS": str(results),
            "PYTHONPATH": os.pathsep.join([meter, *launch.standin_paths()]),
        }
        (base / "engine").mkdir()
        options = ServerOptions(
            model, base / "engine", storage=True, arguments={"enable_metrics": True}, environment=environment
        )
        with Server(options) as server:
            drive(server, results)
        met = report(results, "decoding", GOAL)
        report(results, "idle")
        report(results, "paused")
        report(results, "stuck")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
