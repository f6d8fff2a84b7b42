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
    rows, first, differ = list[list[str]](), dict[Place, str](), Counter[Place]()
    for seed in range(options.seeds):
        found, seconds = verdicts(seed)
        first = first or found
        other = [place for place in first if found.get(place) != first[place]]
        differ.update(other)
        counts = Counter(found.values())
        rows.append([str(seed), *(str(counts[v]) for v in _VERDICTS), str(len(other)), f"{seconds:.1f}", load()])
    print(table(("seed", *_VERDICTS, "differ", "CPU s", "load"), rows))
    for place, count in differ.items():
        print(f"  {' '.join(place)}: another verdict under {count} seeds than under seed 0")
    told = "the same under all" if not differ else f"{len(differ)} differ"
    print(f"{len(first)} verdicts, {options.seeds} seeds: {told}")
    return 1 if differ else 0


_VERDICTS = ("proved", "refuted", "bounded", "unknown", "not-applicable")


if __name__ == "__main__":
    sys.exit(main())
