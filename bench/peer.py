"""The founding property by an explicit-state peer (spin) and by our own proof, side by side in one run.

Spin needs a bound on what is in flight and its cost grows with it; our proof speaks of every number at once. The exit
code is 1 where the two disagree.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import founding
import spin
from founding import Ours
from measure import RUNS, load, median, spread, table
from spin import Answer, Case, Limits, Spin

BOUNDS = (2, 4, 8, 12)
HEADER = (
    *("remedy", "N", "spin says", "runs", "states", "transitions", "MB"),
    *("compile s", "spin s", "ours s", "spin/ours"),
)


@dataclass(frozen=True)
class Row:
    """One bound: what spin said, as often as it was asked, beside our own runs of the same minute."""

    case: Case
    answers: Sequence[Answer]
    ours: Sequence[Ours]

    @property
    def verdict(self) -> Spin:
        """Of the first run; the others were asked only if it was complete, and must say the same."""
        return self.answers[0].verdict

    @property
    def agrees(self) -> bool:
        """No complete search contradicts our proof, and no two runs contradict each other."""
        expected = {Spin.REFUTED: {"refuted"}, Spin.HOLDS: {"proved"}}.get(self.verdict, {"refuted", "proved"})
        same = len({a.verdict for a in self.answers}) == 1 and len({o.verdict for o in self.ours}) == 1
        return same and self.ours[0].verdict in expected

    def cells(self) -> list[str]:
        """One line of the table."""
        first, more = self.answers[0], "" if self.verdict.complete else ">"
        theirs, ours = median([a.seconds for a in self.answers]), median([o.seconds for o in self.ours])
        counts = [str(len(self.answers)), f"{first.stored:,}", f"{first.transitions:,}", f"{first.megabytes:,}"]
        compiling = median([a.compile_seconds for a in self.answers])
        times = [f"{compiling:.2f}", f"{more}{theirs:.2f}", f"{ours:.2f}", f"{more}{theirs / ours:.2f}"]
        return ["yes" if self.case.remedy else "no", str(self.case.entries), self.verdict.value, *counts, *times]


def measure(case: Case, limits: Limits, runs: int) -> Row:
    """Alternate the two, so that both meet the same load. Spin is asked again while its runs fit in its limit."""
    answers: list[Answer] = []
    ours: list[Ours] = []
    for _ in range(runs):
        spent = sum(a.seconds for a in answers)
        if not answers or (answers[0].verdict.complete and spent + answers[0].seconds <= limits.seconds):
            answers.append(spin.search(case, limits))
        ours.append(founding.decide_in_process(remedy=case.remedy))
    row = Row(case, answers, ours)
    # The whole takes minutes: 8 cases, each as often as fits into the limit of one search.
    print("done:", *row.cells(), file=sys.stderr, flush=True)
    return row


def remarks(rows: Sequence[Row]) -> list[str]:
    """What the table cannot say."""
    said = []
    for remedy in (False, True):
        ours = [o for row in rows if row.case.remedy is remedy for o in row.ours]
        if ours:
            what = f"{'with' if remedy else 'without'} {founding.REMEDY}: {ours[0].verdict} ({ours[0].methods})"
            whole = spread([o.process_seconds for o in ours])
            said.append(f"ours {what} for every N: {spread([o.seconds for o in ours])}; whole process {whole}")
    for row in rows:
        if not row.verdict.complete:
            a = row.answers[0]
            spent = f"{a.stored:,} states, {a.seconds:.0f} s, {a.megabytes:,} MB"
            said.append(f"spin is {row.verdict.value} at N={row.case.entries} after {spent}")
    return said


def main() -> int:
    """Print the table; 0 where the verdicts agree, 1 where they do not, 2 where spin is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bounds", type=int, nargs="+", default=BOUNDS, metavar="N", help="entries in flight")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="limit of one search")
    parser.add_argument("--megabytes", type=int, default=Limits.megabytes, help="limit of one search")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    if hint := spin.install_hint():
        print(f"peer: {hint}", file=sys.stderr)
        return 2
    limits = Limits(options.seconds, options.megabytes)
    print(
        f"{founding.PROPERTY}, {founding.PROFILE}, loop normal, mode retract, storage file; load {load()}", flush=True
    )
    cases = [Case(n, remedy=remedy) for remedy in (False, True) for n in options.bounds]
    rows = [measure(case, limits, options.runs) for case in cases]
    print(table(HEADER, [row.cells() for row in rows]))
    print(*remarks(rows), sep="\n")
    wrong = [row for row in rows if not row.agrees]
    for row in wrong:
        print(f"DISAGREE at {row.case}: spin {[a.verdict.value for a in row.answers]}, ours {row.ours[0].verdict}")
    if not wrong:
        print("verdicts agree wherever spin came to an end")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
