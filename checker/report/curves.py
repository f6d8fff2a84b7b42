"""The ledgers over a counterexample as curves: entries by stage, drawn as steps, since nothing moves between steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from checker.report.words import STAGES

LEDGERS = ("write_through", "load_back", "backup", "prefetch")
"""Those of every profile with host and storage, in the order in which they are shown; others follow."""
_COUNTER = re.compile(rf"(?!mark_|mine_|has_|stale_)(\w+)_(?:{STAGES})")
_WIDTH, _HEIGHT, _PAD = 320.0, 44.0, 4.0
State = Mapping[str, int | bool]


@dataclass(frozen=True)
class Curve:
    """One stage of a ledger: how many entries after each step."""

    stage: str
    number: int
    points: str
    values: Sequence[int]


@dataclass(frozen=True)
class Chart:
    """One ledger. `ticks` are the places of the states, from before the first step on."""

    ledger: str
    curves: Sequence[Curve]
    top: int
    ticks: Sequence[float]
    stuck: bool

    @property
    def described(self) -> str:
        """For those who do not see it."""
        return "; ".join(f"{c.stage} {', '.join(map(str, c.values))}" for c in self.curves)


def charts(states: Sequence[State], stuck: str | None) -> list[Chart]:
    """A chart for each ledger that is ever in use; `stuck` names the one to mark."""
    others = [found[1] for state in states for name in state if (found := _COUNTER.fullmatch(name))]
    return [chart for name in dict.fromkeys([*LEDGERS, *others]) for chart in _chart(name, states, stuck=name == stuck)]


def _chart(ledger: str, states: Sequence[State], *, stuck: bool) -> Iterator[Chart]:
    names = dict.fromkeys(name for state in states for name in state if name.startswith(f"{ledger}_"))
    stages = {name.removeprefix(f"{ledger}_"): [int(state.get(name, 0)) for state in states] for name in names}
    stages = {stage: values for stage, values in stages.items() if stage not in ("budget", "retry")}
    if not stages:
        return
    top = max(1, *(max(values) for values in stages.values()))
    step = (_WIDTH - 2 * _PAD) / len(states)
    ticks = [round(_PAD + step * i, 1) for i in range(len(states) + 1)]
    # Curves at the same height are drawn beside each other, not over each other.
    curves = [Curve(s, i, _line(v, ticks, top, shift=2.0 * i), v) for i, (s, v) in enumerate(stages.items())]
    yield Chart(ledger, curves, top, ticks, stuck)


def _line(values: Sequence[int], ticks: Sequence[float], top: int, *, shift: float) -> str:
    points = []
    for value, left, right in zip(values, ticks, ticks[1:], strict=False):
        y = round(_HEIGHT - _PAD - (_HEIGHT - 4 * _PAD) * value / top - shift, 1)
        points += [f"{left},{y}", f"{right},{y}"]
    return " ".join(points)
