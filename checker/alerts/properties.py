"""One alert for each property that the monitor watches."""

from __future__ import annotations

from collections.abc import Mapping

from checker.alerts import names
from checker.alerts.model import Alert, Case, Settings, event_step, recent_events, series
from engine_hooks.monitor_text import NEEDS
from spec.properties import Property

_SYMPTOMS: Mapping[str, tuple[str, str]] = {
    # While it lasts FlushCannotSucceed is critical; this one is also seen where it ended between two scrapes.
    "paused-flush-succeeds": ("warning", "a flush could never succeed in its pause"),
    "update-flushes": ("warning", "an update loaded its weights and did not flush"),
    "deferred-flush-agrees": ("warning", "a flush with a time-out waits where one without would succeed"),
    "no-new-lookup-while-paused": ("warning", "the storage is asked while it is paused"),
    "no-forward-while-paused": ("critical", "a batch was launched while it is paused"),
    "idle-is-true": ("warning", "idle or active is recorded wrongly while it is paused"),
    "flush-only-when-quiescent": ("critical", "caches were reset under work in flight"),
    "no-stale-kv": ("critical", "new weights answer from the old weights' cache"),
    "update-tells-truth": ("critical", "an update was answered as failed, and its weights answer"),
    "versions-agree": ("warning", "scheduler and tokenizer had different weight versions"),
    "requests-conserved": ("warning", "a pause turned away requests that had been admitted"),
    "ready-work-retired": ("warning", "work that is done is not picked up"),
    "ledgers-drain": ("warning", "work in flight does not end"),
    "requests-return": ("critical", "requests wait, and no batch is launched"),
    "control-answered": ("warning", "a flush with a time-out is not answered"),
    "paused-work-ends": ("warning", "the storage is asked long after a pause began"),
    "pages-conserved": ("critical", "pages of the KV pool are lost, or have two owners"),
}
"""Watched property to its severity and its symptom, which follows the engine's name."""


def watched() -> tuple[str, ...]:
    """The properties that the monitor watches, in its order."""
    return tuple(NEEDS)


def violated(prop: Property, settings: Settings) -> Alert:
    """The alert of one watched property."""
    severity, symptom = _SYMPTOMS[prop.id]
    return Alert(
        name=names.violated(prop.id),
        severity=severity,
        group="quiesce.violations",
        expr=recent_events(f'quiesce_violations_total{{property="{prop.id}"}}', settings.durations.recent),
        summary=f"{{{{ $labels.instance }}}}: {symptom}.",
        description=f"Property {prop.id} did not hold: {prop.statement}.",
        cases=_cases(prop.id),
        step=event_step(settings.durations.recent),
    )


def _cases(property_id: str) -> tuple[Case, ...]:
    mine = series("violations_total", property=property_id)
    second = series("violations_total", property=property_id, pp_rank="1", dp_rank="3")
    other = series("violations_total", property=next(p for p in NEEDS if p != property_id))
    fires = {"property": property_id}
    late = "a series that first appears at 1: engine start and violation between two scrapes"
    return (
        Case("the first violation of a series that was there at 0", {mine: "0x18 1x4"}, fires=fires),
        Case(late, {mine: "_x18 1x4"}, fires=fires),
        Case("ranks of two replicas are one alert", {mine: "0x18 1x4", second: "0x17 2x4"}, fires=fires),
        Case("a violation after a restart that set the counter back", {mine: "7x17 0 1x4"}, fires=fires),
        Case("a restart and a violation between two scrapes", {mine: "7x17 1x4"}, fires=fires),
        Case("a violation while the engine was not scraped", {mine: "0x5 stale _x11 1x4"}, fires=fires),
        Case("no violation", {mine: "0x22"}),
        Case("an old violation", {mine: "0 1x25"}),
        Case("a restart after old violations", {mine: "7x17 0x5"}),
        Case("a violation of another property", {mine: "0x22", other: "0x18 1x4"}),
    )
