"""The plan: every alert and recording rule, in the order in which they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checker.alerts.conditions import conditions, recordings
from checker.alerts.model import Alert, Recording, Runbook, Settings
from checker.alerts.monitoring import monitoring
from checker.alerts.properties import violated, watched
from checker.alerts.texts import runbook_texts
from spec.properties import chosen


@dataclass(frozen=True)
class Plan:
    """Everything that is generated."""

    settings: Settings
    alerts: tuple[Alert, ...]
    recordings: tuple[Recording, ...]
    runbooks: Mapping[str, Runbook]
    """By the alert's name."""


def plan(settings: Settings | None = None) -> Plan:
    """Everything that is to be generated for these settings."""
    taken = settings or Settings()
    by_property = [violated(prop, taken) for prop in chosen(watched())]
    alerts = (*by_property, *conditions(taken.durations), *monitoring(taken.durations))
    return Plan(taken, alerts, recordings(), runbook_texts())
