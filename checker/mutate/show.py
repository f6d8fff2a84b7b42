"""What people read of a mutation run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from checker.mutate.results import DEFINITION, Report

ITSELF = ("bookkeeping", "reachability", DEFINITION)
"""The claims about the spec itself (spec.soundness)."""


def lines(report: Report) -> Iterator[str]:
    """Figures, then survivors with their place, then those proved equivalent with the reason."""
    c = report.configuration
    remedies = "".join(f", {name}" for name in report.remedies)
    tried = len(report.outcomes)
    if report.places:
        yield f"{len(report.places)} places, each mutant in those that have what it changes, until something notices it"
    else:
        yield f"{report.profile}{remedies}: loop {c['loop']}, mode {c['mode']}, storage {c['storage']}"
    which = (
        f"all {tried} mutants"
        if tried == report.mutants
        else f"{tried} of {report.mutants} mutants, seed {report.seed}"
    )
    yield f"{which}{'' if report.complete else ' (a worker was lost)' if report.lost else ' (interrupted)'}"
    killed = len(report.killed)
    hows = Counter(o.how for o in report.killed)
    ways = ", ".join(f"{how} {hows[how]}" for how in ("verdict", "vacuous", "refused", "counterexample") if hows[how])
    yield f"  killed     {killed:4} ({_percent(killed, tried)}){': ' + ways if ways else ''}"
    about = Counter(o.property for o in report.killed)
    itself = {name: about[name] for name in ITSELF if about[name]}
    if killed:
        others = "".join(f", by {name} {count}" for name, count in itself.items())
        yield f"    by a property {killed - sum(itself.values())}{others}"
    same = len(report.equivalent)
    others = f", so that {_percent(killed, tried - same)} of the others are killed" if same else ""
    yield f"  equivalent {same:4}{others}"
    yield f"  survived   {len(report.survived):4}"
    for kind in dict.fromkeys(o.kind for o in report.outcomes):
        some = [o for o in report.outcomes if o.kind == kind]
        yield f"    {kind:9} {sum(o.killed for o in some):4} of {len(some):4} killed"
    for number, place in enumerate(report.places, 1):
        if not number - 1:
            yield "places, and how many were first noticed there:"
        yield f"  {sum(o.place == place for o in report.killed):4} {place}"
    for title, found in (("survived", report.survived), ("equivalent", report.equivalent)):
        if found:
            yield f"{title}:"
            yield from (f"  {o.mutant}{f' ({o.reason})' if o.reason else ''}" for o in found)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"
