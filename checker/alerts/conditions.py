"""The alerts on what is wrong now: a flush, a pause or an update that does not end, ranks that disagree."""

from __future__ import annotations

import math
from collections.abc import Iterator

from checker.alerts import names
from checker.alerts.durations import Durations, spoken, written
from checker.alerts.model import WITHOUT_RANKS, Alert, Case, Recording, event_step, recent_events, series

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
        # The slowest rank, since all wait for it; summed, one slow rank of many would not be seen.
        Recording(CHECK, f"max {WITHOUT_RANKS} (histogram_quantile(0.99, {buckets}))"),
    )


def conditions(durations: Durations) -> Iterator[Alert]:
    """These alerts, the most urgent first."""
    yield _cannot_succeed()
    yield _blocked(durations)
    yield _paused(durations)
    yield _pending(durations)
    yield _failed(durations)
    yield _ranks_differ(durations)
    yield _misaligned(durations)
    yield _versions(durations)


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


def _blocked(durations: Durations) -> Alert:
    mine, second = (series("flush_blocked", rank, ledger="write_through") for rank in (0, 1))
    fires = {"ledger": "write_through"}
    return Alert(
        name=names.BLOCKED,
        severity="warning",
        group=_GROUP,
        wait=durations.settle,
        expr=f"max {WITHOUT_RANKS} (quiesce_flush_blocked) == 1",
        summary="{{ $labels.instance }}: {{ $labels.ledger }} holds a flush back.",
        description="A flush is wanted and {{ $labels.ledger }} has held it back"
        f" for longer than {written(durations.settle)}.",
        cases=(
            Case("blocked for longer", {mine: "0x13 1x10"}, fires=fires),
            Case("one of two ranks", {mine: "0x22", second: "0x13 1x10"}, fires=fires),
            Case("blocked for half of it", {mine: "0x17 1x6"}),
            Case("blocked, granted, blocked again", {mine: "1x15 0 1x6"}),
        ),
        step=_settle_step(durations),
    )


def _settle_step(durations: Durations) -> float:
    """Four steps are what may settle."""
    return durations.settle / 4


def _paused(durations: Durations) -> Alert:
    limit = f"> {durations.paused}"
    scheduler, tokenizer = (f'{PAUSED}{{process="{name}"}} {limit}' for name in PROCESSES)
    said = spoken(durations.paused)
    return Alert(
        name=names.PAUSED,
        severity="warning",
        group=_GROUP,
        wait=durations.slack,
        # A pause of both processes is one; in mode abort the scheduler is told nothing.
        expr=f"{scheduler}\nor\n({tokenizer} unless ignoring (process) {scheduler})",
        summary=f"{{{{ $labels.instance }}}}: paused for more than {said}.",
        description=f"Its {{{{ $labels.process }}}} has been paused for longer than {said}; nobody sent"
        " continue_generation.",
        cases=tuple(_paused_cases(_Steps(durations.paused, durations.slack))),
        step=_Steps(durations.paused, durations.slack).step,
    )


class _Steps:
    """The cases of an alert on an age: two steps are its slack."""

    def __init__(self, limit: int, slack: int) -> None:
        self.step = slack / 2
        self.over = math.ceil(limit / self.step)
        """The first step at which an age that began at 0 is at its limit."""
        self.at = self.over + 10
        """When both limit and slack are over."""
        self.late = f"{max(1.0, self.at * self.step - limit / 2):g}x{self.at + 10}"
        """A start of half the limit ago, seen at `at`."""


def _paused_cases(steps: _Steps) -> Iterator[Case]:
    scheduler = series("paused", process="scheduler"), series("pause_start_timestamp_seconds", process="scheduler")
    front = series("paused", process="tokenizer"), series("pause_start_timestamp_seconds", process="tokenizer")
    second = series("paused", 1, process="scheduler"), series("pause_start_timestamp_seconds", 1, process="scheduler")
    at, always, never = steps.at, f"1x{steps.at + 10}", f"0x{steps.at + 10}"
    fires = {"process": "scheduler"}
    long, not_at_all = (always, always), (never, never)
    yield Case("paused since the start", _both(scheduler, *long), at, fires)
    yield Case("paused in both processes", _both(scheduler, *long) | _both(front, *long), at, fires)
    yield Case("one of two ranks", _both(scheduler, *not_at_all) | _both(second, *long), at, fires)
    by_abort = _both(scheduler, *not_at_all) | _both(front, *long)
    yield Case("paused in the tokenizer alone, by mode abort", by_abort, at, {"process": "tokenizer"})
    yield Case("paused for half of it", _both(scheduler, always, steps.late), at)
    resumed = f"1x{at - 2} 0x10"
    yield Case("resumed", _both(scheduler, resumed, resumed), at + 4)
    yield Case("running since the start", _both(scheduler, *not_at_all), at + 4)
    # For one sample there is a pause without a start.
    unwritten = f"0x{at + 2} 1x3", f"0x{at + 3} {(at + 3) * steps.step:g}x3"
    yield Case("paused now, its start not written yet", _both(scheduler, *unwritten), at + 3)


def _both(names_: tuple[str, str], flag: str, start: str) -> dict[str, str]:
    return dict(zip(names_, (flag, start), strict=True))


def _pending(durations: Durations) -> Alert:
    start, second = (series("update_start_timestamp_seconds", rank) for rank in (0, 1))
    steps = _Steps(durations.update, durations.slack)
    always, never = f"1x{steps.at + 10}", f"0x{steps.at + 10}"
    return Alert(
        name=names.PENDING,
        severity="critical",
        group=_GROUP,
        wait=durations.slack,
        expr=f"{UPDATING} > {durations.update}",
        summary=f"{{{{ $labels.instance }}}}: a weight update has not ended for more than {spoken(durations.update)}.",
        description="A scheduler is inside the handler of a weight update, and does nothing else until it returns.",
        cases=(
            Case("in progress since the start", {start: always}, steps.at, {}),
            Case("one of two ranks", {start: never, second: always}, steps.at, {}),
            Case("in progress for half of it", {start: steps.late}, steps.at),
            Case("over the limit for half the slack", {start: always}, steps.over + 1),
            Case("ended", {start: f"1x{steps.at - 2} 0x20"}, steps.at),
        ),
        step=steps.step,
    )


def _failed(durations: Durations) -> Alert:
    failed, second = (series("updates_total", rank, kind="disk", result="failed") for rank in (0, 1))
    unflushed = series("updates_total", kind="distributed", result="unflushed")
    fine = series("updates_total", kind="disk", result="ok")
    first = {"kind": "disk", "result": "failed"}
    late = {"kind": "distributed", "result": "unflushed"}
    return Alert(
        name=names.FAILED,
        severity="warning",
        group=_GROUP,
        expr=recent_events('quiesce_updates_total{result=~"failed|unflushed"}', durations.recent),
        summary="{{ $labels.instance }}: a weight update ({{ $labels.kind }}) was answered {{ $labels.result }}.",
        description="failed: the weights were not loaded, or not wholly. unflushed: they were loaded, and the cache of"
        " the old ones was not dropped.",
        cases=(
            Case("the first failed update", {failed: "0x18 1x4"}, fires=first),
            Case("two ranks are one alert", {failed: "0x18 1x4", second: "0x18 1x4"}, fires=first),
            Case("a restart and a failure between two scrapes", {failed: "3x17 1x4"}, fires=first),
            Case("a series that first appears at 1", {unflushed: "_x18 1x4"}, fires=late),
            Case("updates that succeed", {failed: "0x22", fine: "0+1x22"}),
            Case("a failure long ago", {failed: "0 1x25"}),
        ),
        step=event_step(durations.recent),
    )


def _ranks_differ(durations: Durations) -> Alert:
    one, two = (series("weight_epoch", rank) for rank in (0, 1))
    replica = series("weight_epoch", dp_rank="1")
    return Alert(
        name=names.RANKS_DIFFER,
        severity="critical",
        group=_GROUP,
        wait=durations.settle,
        expr=f"max {WITHOUT_RANKS} (quiesce_weight_epoch) != min {WITHOUT_RANKS} (quiesce_weight_epoch)",
        summary="{{ $labels.instance }}: its ranks have loaded different weights.",
        description="The ranks have counted different numbers of weight loads since the engine started.",
        cases=(
            Case("one rank is behind for longer", {one: "1x13 2x10", two: "1x23"}, fires={}),
            Case("one replica is behind for longer", {one: "1x13 2x10", replica: "1x23"}, fires={}),
            Case("one rank is behind for half of it", {one: "1x17 2x6", two: "1x23"}),
            Case("all ranks alike", {one: "1x13 2x10", two: "1x13 2x10"}),
            Case("one rank only", {one: "1x13 2x10"}),
        ),
        step=_settle_step(durations),
    )


def _misaligned(durations: Durations) -> Alert:
    one, two = (series("protocol_digest", rank) for rank in (0, 1))
    replica, stage = series("protocol_digest", dp_rank="1"), series("protocol_digest", pp_rank="1")
    # Of the ranks that are made to do the same: replicas get other requests, and stages are at other passes.
    group = "without (tp_rank)"
    differ = f"max {group} (quiesce_protocol_digest) - min {group} (quiesce_protocol_digest)"
    return Alert(
        name=names.MISALIGNED,
        severity="critical",
        group=_GROUP,
        wait=durations.settle,
        expr=f"max {WITHOUT_RANKS} ({differ}) > 0",
        summary="{{ $labels.instance }}: its ranks no longer go in step.",
        description="Ranks of one replica decided the same pauses, updates or flushes differently, or in different"
        " passes; or one of them is behind.",
        cases=(
            Case("one rank decided otherwise, for longer", {one: "7x13 8x10", two: "7x13 9x10"}, fires={}),
            Case("one rank is behind for half of it", {one: "7x17 8x6", two: "7x23"}),
            Case("all ranks alike", {one: "7x13 8x10", two: "7x13 8x10"}),
            Case("a replica, and a stage, which do otherwise", {one: "7x23", replica: "8x23", stage: "9x23"}),
            Case("one rank only", {one: "7x13 8x10"}),
        ),
        step=_settle_step(durations),
    )


def _versions(durations: Durations) -> Alert:
    mine, second = (series("version_mismatch", rank) for rank in (0, 1))
    return Alert(
        name=names.VERSIONS,
        severity="warning",
        group=_GROUP,
        wait=durations.settle,
        expr=f"max {WITHOUT_RANKS} (quiesce_version_mismatch) == 1",
        summary="{{ $labels.instance }}: scheduler and tokenizer report different weight versions.",
        description="A scheduler took the version of an update that it answered as failed; the tokenizer did not.",
        cases=(
            Case("for longer", {mine: "0x13 1x10"}, fires={}),
            Case("on one of two ranks", {mine: "0x22", second: "0x13 1x10"}, fires={}),
            Case("for half of it, until the update was sent again", {mine: "0x17 1x6"}),
            Case("never", {mine: "0x22"}),
        ),
        step=_settle_step(durations),
    )
