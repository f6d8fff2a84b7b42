"""What an alert is: its rule, the cases that promtool tests it with, its runbook. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checker.alerts.durations import Durations, written
from engine_hooks.metrics import PREFIX, RANK_LABELS

WITHOUT_RANKS = f"without ({', '.join(RANK_LABELS)})"
"""Aggregation to one series for each engine; labels of the target (job, instance, cluster, …) stay."""


@dataclass(frozen=True)
class Settings:
    """What a site may set."""

    runbooks: str = "deploy/runbooks"
    """Where the runbooks are to be read; `runbook_url` is this, a slash and the file's name."""
    durations: Durations = field(default_factory=Durations)


@dataclass(frozen=True)
class Step:
    """One thing to do, with the commands for it. `$ENGINE` is the engine's base URL."""

    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runbook:
    """What a person at night reads."""

    means: str
    lost: str
    """What is lost if it is ignored."""
    confirm: tuple[Step, ...]
    now: tuple[Step, ...]
    good: tuple[Step, ...]
    """How to repair it for good."""
    ledgers: bool = False
    """Whether the table of ledgers belongs in it."""


@dataclass(frozen=True)
class Case:
    """One test of a rule: the series as promtool reads them, one sample a step, and what fires at step `at`.

    With the default durations most steps are 30 s, so that step 20 is 10 min.
    """

    name: str
    series: Mapping[str, str]
    at: int = 20
    fires: Mapping[str, str] | None = None
    """The alert's labels besides its name and severity; None where it must be silent."""


@dataclass(frozen=True)
class Alert:
    """One alerting rule."""

    name: str
    severity: str
    """critical: somebody gets up. warning: somebody looks in the morning."""
    group: str
    expr: str
    summary: str
    description: str
    cases: tuple[Case, ...]
    wait: int = 0
    """`for`: how long (s) the expression must hold; 0 for what is certain at once."""
    step: float = 30
    """Of its cases (s). It follows the rule's duration, so that they test the rule for every setting."""


@dataclass(frozen=True)
class Recording:
    """One recording rule, named `level:metric:operations`."""

    name: str
    expr: str


ENGINE = {"job": "sglang", "instance": "engine-1:30000"}
"""The target labels of the test cases."""


def series(name: str, rank: int = 0, **labels: str) -> str:
    """A series of the engine of the test cases, in promtool's notation."""
    own = {**ENGINE, **dict.fromkeys(RANK_LABELS, "0"), "tp_rank": str(rank), **labels}
    matchers = ", ".join(f'{key}="{value}"' for key, value in own.items())
    return f"{PREFIX}{name}{{{matchers}}}"


def recent_events(selector: str, seconds: int) -> str:
    """Expression: events that were counted within so many seconds, for each engine.

    `increase` sees none where a child is first scraped at 1 (an engine that starts and violates between two scrapes),
    so a series that was not there a window ago counts as a whole. After a gap in scraping longer than the window an
    old event is shown once more; where Prometheus itself was down, an event of that time may be shown later, by its
    look-back (5 min).
    """
    window = written(seconds)
    new = f"{selector} unless {selector} offset {window}"
    return f"sum {WITHOUT_RANKS} (increase({selector}[{window}])) > 0\nor\nsum {WITHOUT_RANKS} ({new}) > 0"


def event_step(seconds: int) -> float:
    """Length of a step (s) in the cases of events that are shown for so long: ten steps are the window."""
    return seconds / 10
