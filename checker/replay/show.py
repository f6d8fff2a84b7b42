"""What people read of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checker.clock import utc
from checker.replay.results import DIVERGES, Alignment, Coverage, Divergence, Replayed, Report, Way, Wrong


def lines(report: Report) -> Iterator[str]:
    """Each trace, then what the ranks say together."""
    for one in report.traces:
        yield from _trace(one)
    for alignment in report.alignment:
        yield from _alignment(alignment)


def _trace(one: Replayed) -> Iterator[str]:
    yield f"{one.trace}: {one.verdict}{f': {one.reason}' if one.reason else ''}"
    rank = " ".join(f"{name}{number}" for name, number in one.rank.items())
    remedies = ", ".join(one.remedies) or "none"
    yield f"  engine     {one.engine}, {rank}, loop {one.loop}, storage {one.storage}, remedies: {remedies}"
    recorded = "" if one.recorded_digest == one.spec_digest else f" (recorded under {one.recorded_digest})"
    if one.spec_digest:
        yield f"  spec       {one.profile}, {one.spec_digest}{recorded}"
    start = "" if one.from_start else "; its beginning is gone, so its first state is taken as it is"
    yield f"  accepted   {one.steps:,} steps in {one.lines:,} lines{start}"
    for name, count in one.differences.items():
        yield f"  allowed    {name}: in {count:,} {'line' if count == 1 else 'lines'}"
    if one.divergence is not None:
        yield from _divergence(one.divergence)
    if one.coverage is not None:
        yield from _coverage(one.coverage)


def _divergence(found: Divergence) -> Iterator[str]:
    yield f"  diverges   at line {found.line} of {found.file}, step {found.step:,}, {utc(found.at)}"
    yield f"    before   {_state(found.before)}"
    yield f"    did      {found.did}"
    yield f"    after    {_state(found.after)}"
    changes = [
        f"{name} {found.before.get(name, 0)} -> {found.after.get(name, 0)}"
        for name in dict.fromkeys((*found.before, *found.after))
        if found.before.get(name, 0) != found.after.get(name, 0)
    ]
    yield f"    changed  {', '.join(changes) or 'nothing'}"
    if not found.ways:
        yield "    allowed  nothing: the spec has no such step"
    for way in found.ways:
        yield f"    allowed  {_way(way)}"
    yield "    next     see whether it is a known difference: --allow all (docs/guide/replay.md)"


def _way(way: Way) -> str:
    what = f"{way.action}{f' ({way.engine})' if way.engine else ''}"
    if way.needs:
        return f"{what} needs {' and '.join(way.needs)}"
    return f"{what}, with {'; '.join(map(_wrong, way.wrong))}" if way.wrong else what


def _wrong(wrong: Wrong) -> str:
    if wrong.low is None and wrong.high is None:
        return f"{wrong.variable} other than {wrong.seen}"
    if wrong.low == wrong.high:
        return f"{wrong.variable} {wrong.low}"
    if wrong.high is None:
        return f"{wrong.variable} at least {wrong.low}"
    return f"{wrong.variable} from {wrong.low} to {wrong.high}"


def _state(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "nothing is under way"


def _coverage(found: Coverage) -> Iterator[str]:
    every = len(found.actions) + len(found.missing)
    yield f"  coverage   {len(found.actions)} of the {every} actions that a trace can show"
    yield from (f"    {name:<38} first at {place}" for name, place in found.actions.items())
    yield from (f"    {name:<38} not seen" for name in found.missing)
    more = "" if found.states_whole else " or more"
    unknown = "not known" if found.unreachable is None else f"{found.unreachable}"
    yield f"  states     {found.states:,}{more} different ones; that the spec does not reach: {unknown}"


def _alignment(one: Alignment) -> Iterator[str]:
    what = f"{len(one.ranks)} ranks, {one.controls:,} control requests in common"
    yield f"{', '.join(one.ranks)}: {'aligned' if one.verdict != DIVERGES else 'not aligned'}: {one.reason or what}"
