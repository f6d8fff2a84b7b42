"""All benchmarks, one after another, each in a process of its own: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from measure import facts

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    "proofs.py",
    "peer_model.py",
    "peer.py",
    "recorder_cost.py",
    "replay.py",
    "census.py",
    "lineage.py",
    "hook_cost.py",
)
NEEDS_ENGINE = frozenset({"census.py", "lineage.py", "hook_cost.py"})


def run(script: str) -> str:
    """Run one benchmark, its output as it comes; how it ended, in words."""
    print(f"\n=== bench/{script}", flush=True)
    if script in NEEDS_ENGINE and find_spec("sglang") is None:
        print("not run: no SGLang here; install it with: make test")
        return "not run"
    done = subprocess.run([sys.executable, str(HERE / script)], check=False)  # noqa: S603 - our own scripts
    return {0: "ok", 1: "a goal missed, or verdicts that differ"}.get(done.returncode, f"FAILED ({done.returncode})")


def main() -> int:
    """Run all; 0 where every benchmark that could be run met its goals."""
    print(*facts(), sep="\n")
    ends = {script: run(script) for script in SCRIPTS}
    print()
    for script, end in ends.items():
        print(f"bench/{script}: {end}")
    return 0 if set(ends.values()) <= {"ok", "not run"} else 1


if __name__ == "__main__":
    sys.exit(main())
