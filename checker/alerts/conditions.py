"""The alerts on what is wrong now: a flush, a pause or an update that does not end, ranks that disagree."""

from __future__ import annotations

from collections.abc import Iterator

from checker.alerts import names
from checker.alerts.model import WITHOUT_RANKS, Alert, Case, Recording, Settings, recent_events, series

PAUSED = "instance:quiesce_paused_seconds:max"
UPDATING = "instance:quiesce_update_seconds:max"
OLDEST = "instance:quiesce_ledger_oldest_seconds:max"
PROCESSES = ("scheduler", "tokenizer")
CHECK = "instance:quiesce_check_duration_seconds:p99_rate10m"
_GROUP = "quiesce.protocol"


def recordings() -> tuple[Recording, ...]:
    """Ages (s), from the start that the engine exports; 0 where nothing is under way. And what a check costs (s)."""
    start = "quiesce_update_start_timestamp_seconds"
    oldest = "quiesce_ledger_oldest_timestamp_seconds"
    buckets = "rate(quiesce_check_duration_seconds_bucket[10m])"
    return (
        Recording(PAUSED, f"max {WITHOUT_RANKS} ((time() - quiesce_pause_start_timestamp_seconds) * quiesce_paused)"),
        Recording(UPDATING, f"max {WITHOUT_RANKS} ((time() - {start}) * ({start} > bool 0))"),
        Recording(OLDEST, f"max {WITHOUT_RANKS} ((time() - {oldest}) * ({oldest} > bool 0))"),
        Recording(CHECK, f"histogram_quantile(0.99, sum {WITHOUT_RANKS} ({buckets}))"),
    )


def conditions(settings: Settings) -> Iterator[Alert]:
    """These alerts, the most urgent first."""
    yield _cannot_succeed()
    yield _blocked(settings)
    yield _paused(settings)
    yield _pending(settings)
    yield _failed(settings)
    yield _ranks_differ(settings)
    yield _versions(settings)


def _cannot_succeed() -> Alert:
    mine, second = (series("stuck", rank, property="paused-flush-succeeds") for rank in (0, 1))
    fires = {"property": "paused-flush-succeeds"}
    return Alert(
        name=names.STUCK,
        severity="critical",
        group=_GROUP,
        expr=f"max {WITHOUT_RANKS} (quiesce_stuck) == 1",
        summary="{{ $labels.instance }}: no flush can succeed until it is resumed.",
        description="The engine is paused, a flush is wanted, and {{ $labels.property }} can no longer come true in"
        " this pause: what holds the flush back is retired by no paused pass. This is proved for the engine's version,"
        " not guessed from a time-out.",
        cases=(
            Case("stuck now", {mine: "0x19 1x2"}, fires=fires),
            Case("one of two ranks", {mine: "0x22", second: "0x19 1x2"}, fires=fires),
            Case("no longer stuck", {mine: "0x5 1x10 0x10"}),
            Case("paused, and not stuck", {mine: "0x22", series("paused", process="scheduler"): "1x22"}),
        ),
    )


def _blocked(settings: Settings) -> Alert:
    mine = series("flush_blocked", ledger="write_through")
    return Alert(
        name=names.BLOCKED,
        severity="warning",
        group=_GROUP,
        wait=settings.settle,
        expr=f"max {WITHOUT_RANKS} (quiesce_flush_blocked) == 1",
        summary="{{ $labels.instance }}: {{ $labels.ledger }} holds a flush back.",
        description="A flush is wanted and {{ $labels.ledger }} has held it back"
        f" for longer than {settings.settle}.",
        cases=(
            Case("blocked for 3 min", {mine: "0x13 1x10"}, fires={"ledger": "write_through"}),
            Case("blocked for 1 min", {mine: "0x17 1x6"}),
            Case("blocked, granted, blocked again", {mine: "1x15 0 1x6"}),
        ),
    )  # fmt: skip


def _paused(settings: Settings) -> Alert:
    paused, start = series("paused", process="scheduler"), series("pause_start_timestamp_seconds", process="scheduler")
    front = series("paused", process="tokenizer"), series("pause_start_timestamp_seconds", process="tokenizer")
    limit = settings.paused_seconds // 60
    fires = {"process": "scheduler"}
    scheduler, tokenizer = (f'{PAUSED}{{process="{name}"}} > {settings.paused_seconds}' for name in PROCESSES)
    return Alert(
        name=names.PAUSED,
        severity="warning",
        group=_GROUP,
        wait="1m",
        # A pause of both processes is one; in mode abort the scheduler is told nothing.
        expr=f"{scheduler}\nor\n({tokenizer} unless on (job, instance) {scheduler})",
        summary=f"{{{{ $labels.instance }}}}: paused for more than {limit} min.",
        description=f"Its {{{{ $labels.process }}}} has been paused for longer than {limit} min; nobody sent"
        " continue_generation.",
        cases=(
            Case("paused since 1 s, at 20 min", {paused: "1x50", start: "1x50"}, at="20m", fires=fires),
            Case(
                "paused in both processes",
                {paused: "1x50", start: "2x50", front[0]: "1x50", front[1]: "1x50"},
                at="20m",
                fires=fires,
            ),
            Case(
                "paused in the tokenizer alone, by mode abort",
                {paused: "0x50", start: "0x50", front[0]: "1x50", front[1]: "1x50"},
                at="20m",
                fires={"process": "tokenizer"},
            ),
            Case("paused for 10 min", {paused: "1x50", start: "600x50"}, at="20m"),
            Case("resumed", {paused: "1x38 0x10", start: "1x38 0x10"}, at="22m"),
            Case("running since the start", {paused: "0x50", start: "0x50"}, at="22m"),
            Case("paused now, its start not written yet", {paused: "0x43 1x3", start: "0x44 1320x3"}, at="22m"),
        ),
    )


def _pending(settings: Settings) -> Alert:
    start, second = (series("update_start_timestamp_seconds", rank) for rank in (0, 1))
    limit = settings.update_seconds // 60
    return Alert(
        name=names.PENDING,
        severity="critical",
        group=_GROUP,
        wait="1m",
        expr=f"{UPDATING} > {settings.update_seconds}",
        summary=f"{{{{ $labels.instance }}}}: a weight update has not ended for more than {limit} min.",
        description="A scheduler is inside the handler of a weight update, and does nothing else until it returns.",
        cases=(
            Case("in progress since 1 s, at 15 min", {start: "1x40"}, at="15m", fires={}),
            Case("one of two ranks", {start: "0x40", second: "1x40"}, at="15m", fires={}),
            Case("in progress for 5 min", {start: "600x40"}, at="15m"),
            Case("over the limit for half a minute", {start: "1x40"}, at="10m30s"),
            Case("ended", {start: "1x22 0x20"}, at="15m"),
        ),
    )


def _failed(settings: Settings) -> Alert:
    failed = series("updates_total", kind="disk", result="failed")
    unflushed = series("updates_total", kind="distributed", result="unflushed")
    fine = series("updates_total", kind="disk", result="ok")
    first = {"kind": "disk", "result": "failed"}
    late = {"kind": "distributed", "result": "unflushed"}
    return Alert(
        name=names.FAILED,
        severity="warning",
        group=_GROUP,
        expr=recent_events('quiesce_updates_total{result=~"failed|unflushed"}', settings.recent),
        summary="{{ $labels.instance }}: a weight update ({{ $labels.kind }}) was answered {{ $labels.result }}.",
        description="failed: the weights were not loaded, or not wholly. unflushed: they were loaded, and the cache of"
        " the old ones was not dropped.",
        cases=(
            Case("the first failed update", {failed: "0x18 1x4"}, fires=first),
            Case("a series that first appears at 1", {unflushed: "_x18 1x4"}, fires=late),
            Case("updates that succeed", {failed: "0x22", fine: "0+1x22"}),
            Case("a failure long ago", {failed: "0 1x25"}),
        ),
    )


def _ranks_differ(settings: Settings) -> Alert:
    one, two = (series("weight_epoch", rank) for rank in (0, 1))
    return Alert(
        name=names.RANKS_DIFFER,
        severity="critical",
        group=_GROUP,
        wait=settings.settle,
        expr=f"max {WITHOUT_RANKS} (quiesce_weight_epoch) != min {WITHOUT_RANKS} (quiesce_weight_epoch)",
        summary="{{ $labels.instance }}: its ranks have loaded different weights.",
        description="The ranks have counted different numbers of weight loads since the engine started.",
        cases=(
            Case("one rank is behind for 3 min", {one: "1x13 2x10", two: "1x23"}, fires={}),
            Case("one rank is behind for 1 min", {one: "1x17 2x6", two: "1x23"}),
            Case("all ranks alike", {one: "1x13 2x10", two: "1x13 2x10"}),
            Case("one rank only", {one: "1x13 2x10"}),
        ),
    )


def _versions(settings: Settings) -> Alert:
    mine = series("version_mismatch")
    return Alert(
        name=names.VERSIONS,
        severity="warning",
        group=_GROUP,
        wait=settings.settle,
        expr=f"max {WITHOUT_RANKS} (quiesce_version_mismatch) == 1",
        summary="{{ $labels.instance }}: scheduler and tokenizer report different weight versions.",
        description="A scheduler took the version of an update that it answered as failed; the tokenizer did not.",
        cases=(
            Case("for 3 min", {mine: "0x13 1x10"}, fires={}),
            Case("for 1 min, until the update was sent again", {mine: "0x17 1x6"}),
            Case("never", {mine: "0x22"}),
        ),
    )
