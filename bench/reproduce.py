"""`make reproduce-all`: every counterexample of some bundled profiles on the real engine, as a table.

Writes `bench/results/reproduce.md` after each counterexample: how often its violation was seen, of how many runs. Not a
test: exit code 0 whatever is found.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import click

from checker.explain import where
from checker.reproduce.chosen import counterexamples, drivable
from checker.reproduce.results import Outcome, Reproduction
from checker.reproduce.run import place, reproduce, reproduction
from checker.reproduce.schedule import Schedule
from checker.verify import Request, verify
from spec.profile import load_profile

_BLOCKED = ("paused-flush-succeeds", "update-flushes", "update-tells-truth")
PROFILES = {
    "sglang-0.5.23": (),
    "sglang-0.5.23-limits": ("requests-conserved",),
    "sglang-0.5.23-grammar": _BLOCKED,
    "sglang-0.5.23-no-flag": ("no-forward-while-paused", "no-stale-kv", "update-tells-truth"),
    "sglang-0.5.23-prefill": _BLOCKED,
    "sglang-0.5.23-decode": _BLOCKED,
}
"""Profile to the properties that are taken of it; none means all."""
OUTPUT = Path(__file__).parent / "results" / "reproduce.md"
CASES = (
    ("B01", ("paused-flush-succeeds", "ledgers-drain"), ""),
    ("B02", ("update-flushes",), ""),
    ("B02", ("no-stale-kv", "update-tells-truth"), "refused"),
    ("B04", ("update-tells-truth",), "storage"),
    ("B06", ("engine-survives",), "watchdog"),
    ("B12", ("deferred-flush-agrees",), ""),
    ("B16", ("versions-agree",), ""),
    ("B17", ("requests-conserved",), "time-out"),
)
"""Known defects of the engine: the properties that find one, and a word of the reason."""


def case_of(result: Reproduction) -> str:
    """The known defect that a counterexample is one of; a dash where it is none."""
    if result.loop == "overlap" and result.property == "paused-flush-succeeds" and "write_through" in result.reason:
        return "B01, B03"  # the write begins in the pause itself
    if result.loop == "pp":
        return "B21"
    steps = result.trace.steps if result.trace else ()
    counted = {name for step in steps for name, value in step.state.items() if value}
    for ledger, case in (("grammar_", "B13"), ("pd_", "B23")):
        if any(name.startswith(ledger) for name in counted):
            return case
    found = [case for case, names, word in CASES if result.property in names and word in result.reason]
    return ", ".join(dict.fromkeys(found)) or "-"


def found(properties: Sequence[str], loops: Sequence[str]) -> Iterator[Schedule | Reproduction]:
    """Every counterexample: its schedule, or why there is none."""
    for name, only in PROFILES.items():
        profile = load_profile(name)
        wanted = tuple(p for p in properties if not only or p in only) or (() if not properties and not only else only)
        if properties and only and not set(properties) & set(only):
            continue
        results = sorted(
            verify(Request(profile, properties=wanted, loops=tuple(loops))).results, key=lambda r: r.property
        )
        for _, group in groupby(results, key=lambda r: r.property):
            for same in counterexamples(group):
                one = drivable(same, profile, ())
                if isinstance(one, Schedule):
                    yield one
                else:
                    yield reproduction(one[0], Outcome.CANNOT_BE_DRIVEN, one[1])


def table(results: Sequence[Reproduction]) -> str:
    """The file."""
    lines = [
        "# Counterexamples on the real engine",
        "",
        f"Written by `make reproduce-all` on {datetime.now(UTC):%Y-%m-%d}: SGLang {version('sglang')} on a CPU.",
        "Each run is stepped by the testbed, from an idle engine with the first weights and empty caches.",
        "",
        "| property | case | where | because | outcome |",
        "| --- | --- | --- | --- | --- |",
    ]
    for r in sorted(results, key=lambda r: (r.property, r.loop, r.reason)):
        outcome = (
            f"{r.outcome.replace('-', ' ')}: {r.departure}" if r.departure else f"confirmed {r.confirmed} of {r.runs}"
        )
        if r.runs and r.departure:
            outcome = f"not reproduced, {r.confirmed} of {r.runs}: {r.departure}"
        lines.append(f"| `{r.property}` | {case_of(r)} | {where(r.configuration, r.loop)} | {r.reason} | {outcome} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=20, show_default=True, help="How often each is run.")
@click.option("--property", "properties", multiple=True, help="Only this property.")
@click.option("--loop", "loops", multiple=True, help="Only this event loop.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=OUTPUT, show_default=True)
def main(runs: int, properties: tuple[str, ...], loops: tuple[str, ...], output: Path) -> None:
    """Run them all."""
    every = list(found(properties, loops))
    done = [one for one in every if isinstance(one, Reproduction)]
    schedules = [one for one in every if isinstance(one, Schedule)]
    output.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, place(Path(folder)) as start:
        for result in reproduce(schedules, runs, start):
            done.append(result)
            output.write_text(table(done))
            sys.stderr.write(f"{result.property} {result.loop}: {result.confirmed} of {runs} {result.departure}\n")


if __name__ == "__main__":
    main()
