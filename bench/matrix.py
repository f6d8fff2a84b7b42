"""The whole matrix: every bundled profile, all its loops, configurations and properties; one loop alone; growth.

Two workers, as on two cores. Each part tells wall clock, CPU time of all processes, and the load averages. The goals
are of a machine that does nothing else: on a busy one it is the CPU time that tells.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

from measure import load, table
from proofs import REFUTED, checker
from synthetic import synthetic

from spec.profile import bundled_profiles

WORKERS = "2"
GOAL_WHOLE = 120.0
GOAL_LOOP = 10.0
GOAL_CERTIFY = 60.0
SIZES = (5, 10, 20, 30, 50)
LINEAR = 1.5
"""A ledger costs at most this many times what it costs in any smaller profile: what `about linear` means here."""
UNKNOWN = 3
_ALLOWED = (0, REFUTED, UNKNOWN)


@dataclass(frozen=True)
class Run:
    """One run of `checker verify`."""

    seconds: float
    cpu_seconds: float
    verdicts: Counter[str]
    kept: int

    @property
    def row(self) -> list[str]:
        """For a table."""
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        return [f"{self.seconds:.1f}", f"{self.cpu_seconds:.1f}", str(self.kept), told]


def verify(profile: str, *more: str) -> Run:
    """Everything of one profile."""
    done = checker("verify", "--profile", profile, "--json", "--workers", WORKERS, *more, allowed=_ALLOWED)
    results = json.loads(done.value)["results"]
    kept = sum(bool(r["kept"]) for r in results)
    return Run(done.seconds, done.cpu_seconds, Counter(r["verdict"] for r in results), kept)


def matrix(profiles: Iterable[str], how: Sequence[str]) -> bool:
    """Every profile, one after another; whether the sum of the CPU time is within the goal on two cores."""
    runs = {name: verify(name, *how) for name in profiles}
    print(f"\nthe whole matrix {' '.join(how) or '(kept finds)'}, load {load()}")
    print(table(("profile", "wall s", "CPU s", "kept", "verdicts"), [[name, *run.row] for name, run in runs.items()]))
    seconds, cpu = (sum(getattr(run, key) for run in runs.values()) for key in ("seconds", "cpu_seconds"))
    open_ = sum(run.verdicts["unknown"] + run.verdicts["bounded"] for run in runs.values())
    print(
        f"all: {seconds:.1f} s wall, {cpu:.1f} s CPU, {sum(sum(r.verdicts.values()) for r in runs.values())} results,"
    )
    print(f"  {open_} unknown or bounded; goal {GOAL_WHOLE:g} s on two cores: {_met(min(seconds, cpu), GOAL_WHOLE)}")
    return min(seconds, cpu) < GOAL_WHOLE and not open_


def one_loop() -> bool:
    """One profile and one loop, searched anew."""
    run = verify("sglang-0.5.23", "--loop", "overlap", "--anew")
    print(f"\none profile and loop, --anew, load {load()}")
    print(f"  {run.seconds:.1f} s wall, {run.cpu_seconds:.1f} s CPU, {_met(run.cpu_seconds, GOAL_LOOP)}")
    return run.cpu_seconds < GOAL_LOOP


def growth(sizes: Sequence[int]) -> bool:
    """Synthetic profiles, searched anew by one worker."""
    rows, each, whole = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            run = verify(str(synthetic(Path(folder), size)), "--anew")
            whole.append(run.cpu_seconds)
            each.append(run.cpu_seconds / size)
            rows.append([str(size), *run.row, f"{each[-1]:.2f}"])
    print(f"\ngrowth with the number of ledgers, one configuration, --anew, load {load()}")
    print(table(("ledgers", "wall s", "CPU s", "kept", "verdicts", "CPU s a ledger"), rows))
    ratio = max(here / min(each[: place + 1]) for place, here in enumerate(each))
    told = "met" if ratio <= LINEAR else "MISSED"
    power = linear_regression([math.log(size) for size in sizes], [math.log(one) for one in whole]).slope
    print(f"  the time grows with the number of ledgers to the power of {power:.2f} (least squares over all of them)")
    print(f"  a ledger costs at most {ratio:.2f} times what it costs in a smaller profile, goal {LINEAR:g}: {told}")
    return ratio <= LINEAR


def certificates(profiles: Iterable[str]) -> bool:
    """Every certificate of the matrix, re-checked by cvc5."""
    with tempfile.TemporaryDirectory() as root:
        for name in profiles:
            options = ("--profile", name, "--json", "--workers", WORKERS, "--certificates", f"{root}/{name}")
            checker("verify", *options, allowed=_ALLOWED)
        # One command, as a person would: an obligation that several profiles have is asked once.
        done = checker("certify", *(f"{root}/{name}" for name in profiles))
    words = done.value.splitlines()[-1].split()
    told = f"{words[0]} of the whole matrix, {words[2]} obligations, each unsat by z3 and by cvc5"
    print(f"\ncertificates: {told}, load {load()}")
    cpu = done.cpu_seconds
    print(f"  re-checked in {done.seconds:.1f} s wall, {cpu:.1f} s CPU, {_met(cpu, GOAL_CERTIFY)}")
    return cpu < GOAL_CERTIFY


def _met(seconds: float, goal: float) -> str:
    return f"goal < {goal:g} s: {'met' if seconds < goal else 'MISSED'}"


def main() -> int:
    """Print the figures; 0 where the goals were met, 1 where one was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = ("kept", "anew", "loop", "growth", "certificates")
    parser.add_argument("--only", action="append", choices=parts, default=[])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="of the synthetic profiles")
    options = parser.parse_args()
    profiles = bundled_profiles()
    works: dict[str, Callable[[], bool]] = {
        "kept": lambda: matrix(profiles, ()),
        "anew": lambda: matrix(profiles, ("--anew",)),
        "loop": one_loop,
        "growth": lambda: growth(options.sizes),
        "certificates": lambda: certificates(profiles),
    }
    good = [works[part]() for part in options.only or parts]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
