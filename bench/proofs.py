"""The whole job and its parts: `checker verify` on the bundled profile, its refutations, and its certificates.

Everything is run as a user would: a process from start to exit, on all cores.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measure import RUNS, Timed, load, median, spread, timed

PROFILE = "sglang-0.5.23"
REMEDY = "reap-while-paused"
GOAL_WHOLE = 5.0
GOAL_REFUTATION = 1.0
REFUTED = 1

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Run:
    """One run of `checker verify --json`."""

    seconds: float
    cpu_seconds: float
    report: dict[str, Any]

    def refutations(self) -> dict[Key, float]:
        """Seconds of each refutation, by property, loop, mode and storage."""
        return {self._key(r): float(r["seconds"]) for r in self.report["results"] if r["verdict"] == "refuted"}

    def verdicts(self) -> dict[str, int]:
        """How many results have each verdict."""
        found = [str(r["verdict"]) for r in self.report["results"]]
        return {verdict: found.count(verdict) for verdict in sorted(set(found))}

    @staticmethod
    def _key(result: dict[str, Any]) -> Key:
        configuration = result["configuration"]
        return result["property"], result["loop"], configuration["mode"], configuration["storage"]


def checker(*arguments: str, allowed: Sequence[int] = (0,)) -> Timed[str]:
    """What the command prints, and its time. Raises RuntimeError at another exit code."""
    # What the entry point of the command does, with this interpreter.
    command = [sys.executable, "-c", "from checker.cli import main; main()", *arguments]

    def call() -> str:
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own command
        if done.returncode not in allowed:
            raise RuntimeError(f"checker {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    return timed(call)


def verify(remedies: Sequence[str], *more: str) -> Run:
    """One whole run; refutations are what it expects."""
    options = [part for name in remedies for part in ("--remedy", name)]
    done = checker("verify", "--profile", PROFILE, "--json", *options, *more, allowed=(0, REFUTED))
    return Run(done.seconds, done.cpu_seconds, json.loads(done.value))


def met(seconds: float, goal: float) -> str:
    """Whether a goal was met, in words."""
    return f"goal < {goal:g} s: {'met' if seconds < goal else 'MISSED'}"


def show(runs: Sequence[Run], remedies: Sequence[str], how: Sequence[str]) -> bool:
    """Print one profile's figures; whether both goals were met and the runs agree on what is refuted."""
    whole = [run.seconds for run in runs]
    told = ", ".join(f"{count} {verdict}" for verdict, count in runs[0].verdicts().items())
    options = [*(f"--remedy {name}" for name in remedies), *how]
    print(f"checker verify --profile {' '.join([PROFILE, *options])}: {told}")
    kept = sum(bool(r["kept"]) for r in runs[0].report["results"])
    print(f"  found by         an earlier search and checked in full: {kept}; a search now: the others")
    print(f"  whole process    {spread(whole)}, {met(median(whole), GOAL_WHOLE)}")
    print(f"  its CPU time     {spread([run.cpu_seconds for run in runs])}, all its processes together")
    found = [run.refutations() for run in runs]
    if any(run.verdicts() != runs[0].verdicts() for run in runs) or any(f.keys() != found[0].keys() for f in found):
        print("  THE RUNS DISAGREE on the verdicts", flush=True)
        return False
    medians = {key: median([other[key] for other in found]) for key in found[0]}
    slowest = show_refutations(medians) if medians else 0.0
    return median(whole) < GOAL_WHOLE and slowest < GOAL_REFUTATION


def show_refutations(medians: Mapping[Key, float]) -> float:
    """Print how long the refutations take; the seconds of the slowest."""
    dearest = sorted(medians, key=lambda key: -medians[key])
    slowest, middle = medians[dearest[0]], median(list(medians.values()))
    over = sum(1 for seconds in medians.values() if seconds >= GOAL_REFUTATION)
    print(f"  {len(medians)} refutations   median {middle:.3f} s, max {slowest:.2f} s, {met(slowest, GOAL_REFUTATION)}")
    if over:
        print(f"    {over} take {GOAL_REFUTATION:g} s or more")
    for key in dearest[:3]:
        print(f"    {medians[key]:6.2f} s  {' '.join(key)}", flush=True)
    return slowest


def certificates(runs: int, more: Sequence[str]) -> None:
    """Write the certificates of all proofs, and let cvc5 check them."""
    writing, checking, last = [], [], ""
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            writing.append(verify((), "--certificates", folder, *more).seconds)
            done = checker("certify", folder)
            checking.append(done.seconds)
            last = done.value.splitlines()[-1]
    found = re.fullmatch(r"(\d+) certificates, (\d+) obligations re-checked by cvc5", last)
    if found is None:
        raise RuntimeError(f"checker certify ended with {last!r}")
    print(f"certificates: {found[1]} with {found[2]} obligations, each unsat by cvc5")
    print(f"  checker verify --certificates   {spread(writing)}")
    print(f"  checker certify                 {spread(checking)}")


def main() -> int:
    """Print the figures; 0 where the goals were met, 1 where one was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument(
        "--property", action="append", default=[], metavar="ID", help="only this one: no figure to cite"
    )
    options = parser.parse_args()
    more = [part for name in options.property for part in ("--property", name)]
    print(f"load {load()}", flush=True)
    good = True
    # A search of everything is what a peer does; kept finds are what a user meets.
    for remedies, how in (((), ()), ((), ("--anew",)), ((REMEDY,), ())):
        good &= show([verify(remedies, *how, *more) for _ in range(options.runs)], remedies, how)
    certificates(options.runs, more)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
