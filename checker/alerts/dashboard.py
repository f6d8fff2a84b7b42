"""The Grafana dashboard, through grafana-foundation-sdk: fleet, pauses and updates, ledgers, violations."""

from __future__ import annotations

import json
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh, VariableSort

from checker.alerts.conditions import CHECK, OLDEST, PAUSED, UPDATING
from checker.alerts.model import WITHOUT_RANKS
from checker.alerts.monitoring import ENGINE_SERIES

_ON = '{job=~"$job", instance=~"$instance"}'
"""Each selector is narrowed by the two variables; a recording rule keeps both labels."""
_NOT_CURRENT = 'lineage!="current"'
_HEIGHT = 7
_STAT_HEIGHT = 4


@dataclass(frozen=True)
class Query:
    """One query and how its lines are called."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel. A `stat` shows one number, else lines over time."""

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: str = "none"
    stat: bool = False
    width: int = 12


@dataclass(frozen=True)
class Row:
    """One row of the dashboard."""

    title: str
    panels: tuple[Panel, ...]


def _on(name: str, more: str = "") -> str:
    return f"{name}{_ON[:-1]}{f', {more}' if more else ''}}}"


def _rate(name: str, labels: str) -> str:
    return f"sum by ({labels}) (increase({_on(name)}[$__rate_interval]))"


def rows() -> tuple[Row, ...]:
    """What the dashboard shows."""
    return (
        Row("Fleet", _fleet()),
        Row("Pauses and updates", _pauses()),
        Row("Ledgers", _ledgers()),
        Row("Violations", _violations()),
    )


def _number(title: str, text: str, expr: str) -> Panel:
    return Panel(title, text, (Query(expr, title),), stat=True, width=4)


def _fleet() -> tuple[Panel, ...]:
    engines = f"count by (job, instance) ({_on('quiesce_info')})"
    engines_ = _on("", ENGINE_SERIES)
    unwatched = f"count by (job, instance) ({engines_}) unless on (job, instance) quiesce_info"
    lost = f"min by (job, instance) ({_on('quiesce_hook_applied')}) == 0"
    stuck = f"max by (job, instance) ({_on('quiesce_stuck')}) == 1"
    paused = f"max by (job, instance) ({_on('quiesce_paused')}) == 1"
    return (
        _number("Engines watched", "Engines with our series.", f"count({engines}) or vector(0)"),
        _number("Engines unwatched", "Engines without our series.", f"count({unwatched}) or vector(0)"),
        _number("Hooks lost", "Engines with a hook that does not work.", f"count({lost}) or vector(0)"),
        _number("Paused", "Engines that are paused.", f"count({paused}) or vector(0)"),
        _number("Stuck", "Engines on which no flush can succeed in this pause.", f"count({stuck}) or vector(0)"),
        _number(
            "Remedies active",
            "Engines with a remedy on.",
            f"count(max by (job, instance) ({_on('quiesce_remedy_active')}) == 1) or vector(0)",
        ),
        Panel(
            "Versions",
            "Ranks by engine version, version of Quiesce and spec digest.",
            (
                Query(
                    f"count by (engine, engine_version, version, spec_digest) ({_on('quiesce_info')})",
                    "{{engine}} {{engine_version}}, quiesce {{version}}, spec {{spec_digest}}",
                ),
            ),
        ),
        Panel(
            "Hooks that do not work",
            "What depends on them is not checked.",
            (Query(f"min by (instance, hook) ({_on('quiesce_hook_applied')}) == 0", "{{instance}} {{hook}}"),),
        ),
    )


def _pauses() -> tuple[Panel, ...]:
    return (
        Panel("Paused for", "Age of the current pause.", (Query(_on(PAUSED), "{{instance}} {{process}}"),), "s"),
        Panel("Update in progress for", "Age of the update.", (Query(_on(UPDATING), "{{instance}}"),), "s"),
        Panel(
            "Updates answered",
            "failed: not loaded, or in part. unflushed: loaded over the old cache.",
            (Query(_rate("quiesce_updates_total", "kind, result") + " > 0", "{{kind}} {{result}}"),),
        ),
        Panel(
            "Flushes decided",
            "A flush that is refused again and again keeps an engine paused.",
            (Query(_rate("quiesce_flushes_total", "kind, result") + " > 0", "{{kind}} {{result}}"),),
        ),
        Panel(
            "Weight loads",
            "Since the start of each engine; its ranks must agree.",
            (
                Query(
                    f"max by (instance, tp_rank, pp_rank, dp_rank) ({_on('quiesce_weight_epoch')})",
                    "{{instance}} tp{{tp_rank}} pp{{pp_rank}} dp{{dp_rank}}",
                ),
            ),
        ),
        Panel(
            "Versions disagree",
            "1: scheduler and tokenizer report different weight versions.",
            (Query(f"max by (instance) ({_on('quiesce_version_mismatch')})", "{{instance}}"),),
        ),
    )  # fmt: skip


def _ledgers() -> tuple[Panel, ...]:
    return (
        Panel(
            "Entries in flight",
            "All ranks together.",
            (
                Query(
                    f"sum by (instance, ledger, stage) ({_on('quiesce_ledger_entries')}) > 0",
                    "{{instance}} {{ledger}} {{stage}}",
                ),
            ),
        ),
        Panel("Oldest entry", "Its age.", (Query(f"{_on(OLDEST)} > 0", "{{instance}} {{ledger}}"),), "s"),
        Panel(
            "What holds a flush back",
            "1 while a flush is wanted and this holds it back.",
            (Query(f"max by (instance, ledger) ({_on('quiesce_flush_blocked')}) == 1", "{{instance}} {{ledger}}"),),
        ),
        Panel(
            "KV pages",
            "By who holds them, at the last census; unaccounted is nobody.",
            (Query(f"sum by (instance, state) ({_on('quiesce_kv_pages')})", "{{instance}} {{state}}"),),
        ),
        Panel(
            "KV of other weights",
            "Tokens that requests read, by what brought them in. Only with QUIESCE_LINEAGE.",
            (
                Query(
                    "sum by (instance, tier, lineage) (increase("
                    f"{_on('quiesce_kv_tokens_read_total', _NOT_CURRENT)}[$__rate_interval])) > 0",
                    "{{instance}} {{tier}} {{lineage}}",
                ),
            ),
        ),
    )  # fmt: skip


def _violations() -> tuple[Panel, ...]:
    return (
        Panel(
            "Violations",
            "Episodes, not passes.",
            (Query(_rate("quiesce_violations_total", "instance, property") + " > 0", "{{instance}} {{property}}"),),
        ),
        Panel(
            "Stuck",
            "1: nothing but resume, abort or a reset helps.",
            (Query(f"max by (instance, property) ({_on('quiesce_stuck')}) == 1", "{{instance}} {{property}}"),),
        ),
        Panel(
            "Checks",
            "A property that is not checked cannot be violated.",
            (Query(f"sum by (property) (rate({_on('quiesce_checks_total')}[$__rate_interval]))", "{{property}}"),),
            "ops",
        ),
        Panel("Cost of a check", "99 of 100 take less.", (Query(_on(CHECK), "{{instance}}"),), "s"),
        Panel(
            "Mean cost of a check",
            "One pass in 64 is timed.",
            (
                Query(
                    f"sum {WITHOUT_RANKS} (rate({_on('quiesce_check_duration_seconds_sum')}[$__rate_interval]))"
                    f" / sum {WITHOUT_RANKS} (rate({_on('quiesce_check_duration_seconds_count')}[$__rate_interval]))",
                    "{{instance}}",
                ),
            ),
            "s",
        ),
    )


def dashboard() -> str:
    """The text of the dashboard, as Grafana imports it."""
    made = (
        board.Dashboard("Quiesce")
        .uid("quiesce")
        .description("Pause, update weights, flush, continue. Generated by `checker rules`.")
        .tags(["quiesce"])
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(board.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("job", "label_values(quiesce_info, job)"))
        .with_variable(_variable("instance", 'label_values(quiesce_info{job=~"$job"}, instance)'))
    )  # fmt: skip
    for row in rows():
        made = made.with_row(board.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_stat(panel) if panel.stat else _lines(panel))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(name: str, query: str) -> board.QueryVariable:
    return (
        board.QueryVariable(name)
        .label(name)
        .query(query)
        .datasource(_source())
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
    )  # fmt: skip


def _source() -> DataSourceRef:
    return DataSourceRef(type_val="prometheus", uid="${datasource}")


def _targets(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(ord("A") + number))
        for number, query in enumerate(panel.queries)
    ]


def _stat(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(_source())
        .unit(panel.unit)
        .color_mode(BigValueColorMode.NONE)
        .height(_STAT_HEIGHT)
        .span(panel.width)
        .targets(list(_targets(panel)))
    )


def _lines(panel: Panel) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(_source())
        .unit(panel.unit)
        .min(0)
        .legend(common.VizLegendOptions().placement(LegendPlacement.BOTTOM))
        .height(_HEIGHT)
        .span(panel.width)
        .targets(list(_targets(panel)))
    )
