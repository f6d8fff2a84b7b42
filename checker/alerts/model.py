"""What an alert is: its rule, the cases that promtool tests it with, its runbook. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine_hooks.metrics import PREFIX, RANK_LABELS

WITHOUT_RANKS = f"without ({', '.join(RANK_LABELS)})"
"""Aggregation to one series for each engine; labels of the target (job, instance, cluster, …) stay."""


@dataclass(frozen=True)
class Settings:
    """What a site may set. Durations as Prometheus writes them."""

    runbooks: str = "deploy/runbooks"
    """Where the runbooks are to be read; `runbook_url` is this, a slash and the file's name."""
    recent: str = "5m"
    """For how long an event (a violation, a failed update) is shown."""
    settle: str = "2m"
    """How long a state that an update passes through may last."""
    unwatched: str = "5m"
    """How long something may be unwatched, which it is while an engine starts."""
    paused_seconds: int = 900
    update_seconds: int = 600
    check_seconds: float = 0.0005
    """Budget of one check: 1 % of a decode step of 50 ms."""


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
    """One test of a rule: the series as promtool reads them, every 30 s, and what fires at `at`."""

    name: str
    series: Mapping[str, str]
    at: str = "10m"
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
    wait: str = ""
    """`for`: how long the expression must hold; empty for what is certain at once."""


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


def recent_events(selector: str, window: str) -> str:
    """Expression: events that were counted within the window, for each engine.

    `increase` sees none where a child is first scraped at 1 (an engine that starts and violates between two scrapes),
    so a series that was not there a window ago counts as a whole. After a gap in scraping longer than the window an
    old event is shown once more.
    """
    new = f"{selector} unless {selector} offset {window}"
    return f"sum {WITHOUT_RANKS} (increase({selector}[{window}])) > 0\nor\nsum {WITHOUT_RANKS} ({new}) > 0"
