"""Whether verdicts depend on the solver's seed: everything of the bundled profile, searched anew under twenty seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from measure import load, package, table
from proofs import PROFILE, REFUTED, checker

SEEDS = 20
_ALLOWED = (0, REFUTED, 3)
Place = tuple[str, ...]


def verdicts(seed: int) -> tuple[dict[Place, str], float]:
    """The verdict of each property in each configuration, and the CPU seconds of the search."""
    done = checker("verify", "--profile", PROFILE, "--json", "--anew", "--seed", str(seed), allowed=_ALLOWED)
    report = json.loads(done.value)
    if report["seed"] != seed or not report["complete"]:
        raise RuntimeError(f"seed {seed}: the report is of seed {report['seed']}, complete {report['complete']}")
    found: dict[Place, str] = {
        (r["property"], r["loop"], r["configuration"]["mode"], r["configuration"]["storage"]): r["verdict"]
        for r in report["results"]
    }
    return found, done.cpu_seconds


def main() -> int:
    """Print a line for each seed; 0 where all agree on every verdict, 1 where two differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    print(f"checker verify --profile {PROFILE} --anew --seed N, z3 {package('z3-solver')}", flush=True)
    first, differ, done = dict[Place, str](), Counter[Place](), 0
    print(table(_HEAD, []), flush=True)
    try:
        for seed in range(options.seeds):
            found, seconds = verdicts(seed)
            first = first or found
            other = [place for place in first if found.get(place) != first[place]]
            differ.update(other)
            counts = Counter(found.values())
            row = [str(seed), *(str(counts[v]) for v in _VERDICTS), str(len(other)), f"{seconds:.1f}", load()]
            # A line at a time: an interrupt keeps what is known.
            print("  ".join(cell.rjust(len(head)) for cell, head in zip(row, _HEAD, strict=True)), flush=True)
            done += 1
    except KeyboardInterrupt:
        print("interrupted")
    for place, count in differ.items():
        print(f"  {' '.join(place)}: another verdict under {count} seeds than under seed 0")
    told = "the same under all" if not differ else f"{len(differ)} differ"
    print(f"{len(first)} verdicts, {done} of {options.seeds} seeds: {told}")
    return 1 if differ or done < options.seeds else 0


_VERDICTS = ("proved", "refuted", "bounded", "unknown", "not-applicable")
_HEAD = ("seed", *_VERDICTS, "differ", "CPU s", "load")


if __name__ == "__main__":
    sys.exit(main())
