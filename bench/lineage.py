"""The cost of the lineage for a decode pass of the real loop: one engine, blocks of passes with and without its hooks.

As `hook_cost.py` does it; here both kinds of blocks have the other hooks. Decoding 1 request and 8 at once, each
against GOAL. Then, without an engine and without a goal, what the lineage itself takes for larger batches on this CPU.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

import hook_cost
import requests
import torch
from lineage_work import Load, Work, microseconds
from measure import facts, table

from engine_hooks.sglang.testbed import launch, tinymodel
from engine_hooks.sglang.testbed.control import SPIN_VARIABLE
from engine_hooks.sglang.testbed.server import Server, ServerOptions

GOAL = 1.01
BATCHES = (1, 8)
_TOKENS = 200
_LOADS = (Load(1, 600, 16), Load(256, 4096, 1), Load(64, 4096, 16), Load(256, 4096, 64))


def decode(server: Server, results: Path, batch: int) -> None:
    """Decode so many requests at once until enough rounds were timed."""
    enough = threading.Event()

    def keep_decoding() -> None:
        sampling = {"max_new_tokens": _TOKENS, "temperature": 0, "ignore_eos": True}
        prompts = [list(range(5 + i, 69 + i)) for i in range(batch)]
        while not enough.is_set():
            requests.post(
                server.url + "/generate", json={"input_ids": prompts, "sampling_params": sampling}, timeout=600
            )

    client = threading.Thread(target=keep_decoding, daemon=True)
    client.start()
    hook_cost.wait(results, f"decoding {batch}")
    enough.set()
    client.join(600)


def alone() -> str:
    """A table of what the lineage takes by itself: a decode step, on average over a page; all rows read."""
    torch.set_num_threads(1)
    rows = []
    for load in _LOADS:
        work = Work(load, "cpu")
        step, again = microseconds(work.decode_a_page) / load.page_size, microseconds(work.read_again)
        rows.append([str(load.requests), str(load.tokens), str(load.page_size), f"{step:.1f}", f"{again:.0f}"])
    return table(["requests", "tokens each", "page", "a decode step, us", "all read again, us"], rows)


def main() -> int:
    """Run the benchmark; 0 where the goal was met for each batch."""
    print(*facts(), sep="\n")
    met = True
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        model = tinymodel.make(base / "model", seed=1)
        results = base / "results.json"
        meter = str(Path(__file__).parent / "hook_cost_engine")
        environment = {
            "QUIESCE": "observe",
            "QUIESCE_LINEAGE": "on",
            "QUIESCE_STATUS_DIR": str(base / "status"),
            "QUIESCE_BENCH_RESULTS": str(results),
            SPIN_VARIABLE: "1",
            "QUIESCE_BENCH_TARGETS": "lineage",
            "PYTHONPATH": os.pathsep.join([meter, *launch.standin_paths()]),
        }
        (base / "engine").mkdir()
        options = ServerOptions(
            model, base / "engine", storage=True, arguments={"enable_metrics": True}, environment=environment
        )
        with Server(options) as server:
            for batch in BATCHES:
                decode(server, results, batch)
        for batch in BATCHES:
            met &= hook_cost.report(results, f"decoding {batch}", GOAL)
    print("\nthe lineage alone, without an engine, CPU time of one thread:", alone(), sep="\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
