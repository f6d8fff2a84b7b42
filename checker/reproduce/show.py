"""What `checker reproduce` tells people."""

from __future__ import annotations

from collections.abc import Iterator

from checker.explain import where
from checker.reproduce.results import Outcome, Reproduction, Reproductions
from checker.reproduce.schedule import Schedule

_WORDS = {
    Outcome.CONFIRMED: "confirmed",
    Outcome.NOT_REPRODUCED: "not reproduced",
    Outcome.CANNOT_BE_DRIVEN: "cannot be driven here",
}


def told(result: Reproduction) -> Iterator[str]:
    """One counterexample."""
    outcome = Outcome(result.outcome)
    count = f", {result.confirmed} of {result.runs}" if result.runs else ""
    yield f"{result.property}: {_WORDS[outcome]}{count}"
    yield f"  because {result.reason}"
    yield f"  ({where(result.configuration, result.loop)})"
    if result.departure:
        yield f"  {'departed' if outcome is Outcome.NOT_REPRODUCED else 'why'}: {result.departure}"
    yield from (f"  the engine: {answer}" for answer in result.answers)


def nothing(answer: Reproductions, verdict: str) -> str:
    """Where there is no counterexample."""
    return f"nothing to reproduce: no counterexample on {answer.engine.profile}, the property is {verdict} there"


def scheduled(schedule: Schedule) -> Iterator[str]:
    """What would be run."""
    result = schedule.result
    yield f"{result.property}: {result.reason}"
    yield f"  ({where(result.configuration, result.loop)})"
    for number, move in enumerate(schedule.moves, 1):
        yield f"  {number:>2}  {move.call}" + (f"  # {move.step}" if move.step else "")
