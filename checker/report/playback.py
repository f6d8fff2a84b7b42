"""What happened, line by line, as the page of a flight record or of a trace shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from checker.report.curves import Chart
from checker.report.page import Step, Value
from checker.report.places import Place
from checker.report.words import meaning

SHOWN = 120
"""So many lines are shown, the last ones: the page stays small, and what explains a violation is near it."""
State = Mapping[str, int | bool]


@dataclass(frozen=True)
class Known:
    """One thing that is known: what, said how, and where in the engine's source, if that is known."""

    name: str
    value: str
    place: Place | None = None


@dataclass(frozen=True)
class Playback:
    """The page. `id`, `lanes`, `steps`, `charts`, `stays`, `mark` and `ending` are what a counterexample has too."""

    kind: str
    title: str
    property: str
    statement: str
    reason: str
    facts: Sequence[Known]
    known: Sequence[Known]
    left_out: str
    lanes: Sequence[str]
    steps: Sequence[Step]
    charts: Sequence[Chart]
    stays: bool
    mark: str
    ending: Sequence[str]
    id: str = "c1"


def values(before: State, after: State, stuck: Sequence[str] = ()) -> list[Value]:
    """A state as it is shown: what is not 0 or false, and what has just become so; words for what changed."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        value, changed = after.get(name, 0), after.get(name, 0) != before.get(name, 0)
        if value or changed:
            shown = ("yes" if value else "no") if isinstance(value, bool) else str(value)
            held = bool(value) and any(name.startswith(f"{ledger}_") for ledger in stuck)
            found.append(Value(name, shown, meaning(name) if changed else "", changed, held))
    return found


def numbered(steps: Sequence[Step]) -> list[Step]:
    """The steps that are shown, numbered from 1."""
    return [replace(step, number=number) for number, step in enumerate(steps, 1)]


def words(text: str) -> list[str]:
    """The parts of a name, at which a line may break."""
    return re.findall(r"[A-Z]?[^A-Z_ -]+[_ -]?|[A-Z]", text)


def left_out(number: int, forgotten: int) -> str:
    """What the page does not show, in words."""
    told = [f"the first {number} lines are not shown"] if number else []
    told += [f"{forgotten} earlier ones the record no longer held"] if forgotten else []
    return "; ".join(told)
