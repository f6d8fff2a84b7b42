"""`checker explain`: one property, told. The shortest counterexample for each reason, or how it is proved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from checker.results import EngineInfo, Report, Result
from checker.story import tell

SCHEMA = 1


class Story(msgspec.Struct, frozen=True):
    """One counterexample: the shortest for its reason, and in how many configurations that reason was given."""

    result: Result
    configurations: int
    lines: Sequence[str]


class Explanation(msgspec.Struct, frozen=True):
    """The answer of `checker explain --json`, schema 1."""

    schema: int
    engine: EngineInfo
    property: str
    statement: str
    verdict: str
    stories: Sequence[Story]
    results: Sequence[Result]


def explanation(report: Report) -> Explanation:
    """The explanation of a report on one property."""
    from spec.properties import catalogue  # noqa: PLC0415 - z3 is loaded by now

    name = report.results[0].property if report.results else ""
    statement = catalogue()[name].statement if name else ""
    return Explanation(
        SCHEMA, report.engine, name, statement, report.verdict, list(_stories(report.results)), report.results
    )


def _stories(results: Sequence[Result]) -> Iterator[Story]:
    refuted = [r for r in results if r.trace is not None]
    for reason in dict.fromkeys(r.reason for r in refuted):
        same = [r for r in refuted if r.reason == reason]
        shortest = min(same, key=lambda r: len(r.trace.steps) if r.trace else 0)
        yield Story(shortest, len(same), list(tell(shortest)))


def told(answer: Explanation) -> Iterator[str]:
    """What a person reads."""
    remedies = f" with {', '.join(answer.engine.remedies)}" if answer.engine.remedies else ""
    yield f"{answer.property}: {answer.verdict} on {answer.engine.profile}{remedies}"
    yield f"  must hold: {answer.statement}"
    for story in answer.stories:
        yield ""
        yield from story.lines
    rest = [r for r in answer.results if r.trace is None]
    if rest:
        yield ""
        yield from _table(rest)


def _table(results: Sequence[Result]) -> Iterator[str]:
    """The results without a counterexample: where, verdict, and how it is proved or why it does not apply."""
    places = [where(r.configuration, r.loop) for r in results]
    width = max(map(len, places))
    for place, result in zip(places, results, strict=True):
        yield f"  {place:<{width}}  {result.verdict}: {result.reason}"


def where(configuration: Mapping[str, str | int], loop: str) -> str:
    """A configuration in a few words: what differs between the configurations of one profile."""
    return f"loop {loop}, mode {configuration['mode']}, storage {configuration['storage']}"
