"""`checker explain`: one property, told. The shortest counterexample as a story, or how it is proved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from checker.results import EngineInfo, Report, Result
from checker.story import tell

SCHEMA = 1


class Explanation(msgspec.Struct, frozen=True):
    """The answer of `checker explain --json`, schema 1. `shortest` is the counterexample that is told, if any."""

    schema: int
    engine: EngineInfo
    property: str
    statement: str
    verdict: str
    shortest: Result | None
    story: Sequence[str]
    results: Sequence[Result]


def explanation(report: Report) -> Explanation:
    """The explanation of a report on one property."""
    from spec.properties import catalogue  # noqa: PLC0415 - z3 is loaded by now

    name = report.results[0].property if report.results else ""
    statement = catalogue()[name].statement if name else ""
    refuted = [r for r in report.results if r.trace is not None]
    shortest = min(refuted, key=lambda r: len(r.trace.steps) if r.trace else 0, default=None)
    story = list(tell(shortest, statement)) if shortest else []
    return Explanation(SCHEMA, report.engine, name, statement, report.verdict, shortest, story, report.results)


def told(answer: Explanation) -> Iterator[str]:
    """What a person reads."""
    if answer.shortest is not None:
        yield from answer.story
        others = sum(r.verdict == "refuted" for r in answer.results) - 1
        if others:
            yield f"\n  refuted in {others} other configuration{'s' if others > 1 else ''} too"
        return
    remedies = f" with {', '.join(answer.engine.remedies)}" if answer.engine.remedies else ""
    yield f"{answer.property}: {answer.verdict}{remedies}"
    yield f"  must hold: {answer.statement}"
    for result in answer.results:
        where = ", ".join(f"{k} {v}" for k, v in result.configuration.items())
        yield f"  {result.verdict:<14}  loop {result.loop}, {where}: {result.reason}"
