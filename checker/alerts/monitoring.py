"""The alerts on the monitor itself: what is not watched, and what watching costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checker.alerts import names
from checker.alerts.conditions import CHECK
from checker.alerts.durations import Durations
from checker.alerts.model import ENGINE, WITHOUT_RANKS, Alert, Case, event_step, recent_events, series

ENGINE_SERIES = '__name__=~"sglang[:_]max_total_num_tokens"'
"""A series that each SGLang with `--enable-metrics` exports from its start.

Asked for OpenMetrics, as Prometheus does, SGLang 0.5.23 answers with the colon of its names escaped; asked for plain
text, or by a Prometheus that takes any UTF-8, with the colon.
"""
_GROUP = "quiesce.monitor"


def monitoring(durations: Durations) -> Iterator[Alert]:
    """These alerts."""
    yield _absent(durations)
    yield _hook(durations)
    yield _spec(durations)
    yield _budget(durations)
    yield _dropped(durations)


def _absent(durations: Durations) -> Alert:
    labels = f'{{job="{ENGINE["job"]}", instance="{ENGINE["instance"]}", tp_rank="0"}}'
    engine, colon = f"sglang_max_total_num_tokens{labels}", f"sglang:max_total_num_tokens{labels}"
    second = engine.replace('tp_rank="0"', 'tp_rank="1"')
    other = _info(0, "a").replace(ENGINE["instance"], "engine-2:30000")
    return Alert(
        name=names.ABSENT,
        severity="warning",
        group=_GROUP,
        wait=durations.unwatched,
        expr=f"max by (job, instance) ({{{ENGINE_SERIES}}}) unless on (job, instance) quiesce_info",
        summary="{{ $labels.instance }}: runs without Quiesce.",
        description="Prometheus scrapes the engine and finds none of our series: nothing of the protocol is watched"
        " there, and no other alert of ours can fire.",
        cases=(
            Case("an engine without our series for longer", {engine: "4096x20"}, 12, {}),
            Case("one whose names keep their colon", {colon: "4096x20"}, 12, {}),
            Case("two ranks are one alert", {engine: "4096x20", second: "4096x20"}, 12, {}),
            Case("an engine that lost our series", {engine: "4096x20", _info(0, "a"): "1x5 stale"}, 17, {}),
            Case("an engine that has just started", {engine: "_x15 4096x10"}),
            Case("an engine with our series", {engine: "4096x20", _info(0, "a"): "1x20"}),
            Case("another engine has our series", {engine: "4096x20", other: "1x20"}, 12, {}),
            Case("no engine", {}),
        ),
        step=_unwatched_step(durations),
    )


def _hook(durations: Durations) -> Alert:
    mine, second = (series("hook_applied", rank, hook="flush") for rank in (0, 1))
    other, profile = series("hook_applied", hook="pause"), series("hook_applied", hook="profile")
    # Without a profile no hook works, which is one fact, not sixteen.
    unknown = f'min {WITHOUT_RANKS} (quiesce_hook_applied{{hook="profile"}}) == 0'
    single = f'min {WITHOUT_RANKS} (quiesce_hook_applied{{hook!="profile"}}) == 0'
    return Alert(
        name=names.HOOK,
        severity="warning",
        group=_GROUP,
        wait=durations.unwatched,
        expr=f"{unknown}\nor\n({single} unless ignoring (hook) {unknown})",
        summary="{{ $labels.instance }}: hook {{ $labels.hook }} does not work.",
        description="What depends on hook {{ $labels.hook }} is not checked on some rank: silence of the alerts on it"
        " means nothing.",
        cases=(
            Case("lost for longer", {mine: "1x7 0x13", other: "1x20"}, fires={"hook": "flush"}),
            Case("lost on one rank", {mine: "1x20", second: "0x20"}, fires={"hook": "flush"}),
            Case("no profile", dict.fromkeys((mine, other, profile), "0x20"), fires={"hook": "profile"}),
            Case("lost for a shorter time", {mine: "1x12 0x8"}),
            Case("applied", {mine: "1x20", other: "1x20"}),
        ),
        step=_unwatched_step(durations),
    )


def _spec(durations: Durations) -> Alert:
    each = f"count {WITHOUT_RANKS} (quiesce_info)"
    return Alert(
        name=names.SPEC,
        severity="warning",
        group=_GROUP,
        wait=durations.unwatched,
        expr=f"count without (spec_digest, version, engine, engine_version) ({each}) > 1",
        summary="{{ $labels.instance }}: its ranks run different versions of Quiesce or of its spec.",
        description="The ranks differ in spec digest or version. Remedies are then off on all of them.",
        cases=(
            Case("two digests", {_info(0, "a"): "1x20", _info(1, "b"): "1x20"}, 12, {}),
            Case("two versions", {_info(0, "a"): "1x20", _info(1, "a", "0.2.0"): "1x20"}, 12, {}),
            Case("two ranks alike", {_info(0, "a"): "1x20", _info(1, "a"): "1x20"}),
            Case("a roll-out, seen for a shorter time", {_info(0, "a"): "1x20", _info(1, "b"): "1x20"}, 2),
        ),
        step=_unwatched_step(durations),
    )


def _budget(durations: Durations) -> Alert:
    return Alert(
        name=names.BUDGET,
        severity="warning",
        group=_GROUP,
        wait=600,
        expr=f"{CHECK} > {durations.check:g}",
        summary="{{ $labels.instance }}: the checks cost more than their budget.",
        description=f"Of the checks of a pass, 1 % took longer than {durations.check * 1000:g} ms.",
        cases=(
            Case("each check takes 1 to 10 ms", _timed(0, 0, 60), 60, {}),
            # Summed over the ranks, these are 0.5 %.
            Case("one slow rank of many", {**_timed(0, 0, 60), **_timed(12000, 12000, 12000, rank=1)}, 60, {}),
            Case("each check takes less than 10 µs", _timed(60, 60, 60), 60),
            Case("a pause without checks", _timed(0, 0, 0), 60),
            Case("slow for 6 min", _timed(0, 0, 60, late="_x30 "), 44),
        ),
    )


def _dropped(durations: Durations) -> Alert:
    disk, second = (series("trace_events_dropped_total", rank, reason="disk") for rank in (0, 1))
    folder = series("trace_events_dropped_total", reason="folder")
    fires = {"reason": "disk"}
    return Alert(
        name=names.DROPPED,
        severity="warning",
        group=_GROUP,
        expr=recent_events("quiesce_trace_events_dropped_total", durations.recent),
        summary="{{ $labels.instance }}: flight records are not written ({{ $labels.reason }}).",
        description="A property did not hold, and the passes before it could not be written, or not all of them"
        " ({{ $labels.reason }}). The violation itself has an alert of its own.",
        cases=(
            Case("the first drop of a series that was there at 0", {disk: "0x18 12x4", folder: "0x22"}, fires=fires),
            Case("a series that first appears above 0", {disk: "_x18 12x4"}, fires=fires),
            Case("on one rank of two, after a restart", {disk: "0x22", second: "30x17 0 12x4"}, fires=fires),
            Case("nothing dropped", {disk: "0x22", folder: "0x22"}),
            Case("dropped long ago", {disk: "0 12x25"}),
            Case("an engine without a recorder that violates", {_violated(): "0x18 1x4", disk: "0x22"}),
        ),
        step=event_step(durations.recent),
    )


def _violated() -> str:
    return series("violations_total", property="no-stale-kv")


def _info(rank: int, digest: str, version: str = "0.1.0") -> str:
    return series("info", rank, spec_digest=digest, version=version, engine="sglang", engine_version="0.5.23")


def _timed(small: int, medium: int, every: int, late: str = "", rank: int = 0) -> Mapping[str, str]:
    """Buckets that grow by so many a sample: up to 10 µs, up to 0.5 and 1 ms, up to 10 ms."""
    steps = {"1e-05": small, "0.0005": medium, "0.001": medium, "0.01": every, "+Inf": every}
    return {series("check_duration_seconds_bucket", rank, le=le): f"{late}0+{step}x65" for le, step in steps.items()}


def _unwatched_step(durations: Durations) -> float:
    """Ten steps are how long something may be unwatched."""
    return durations.unwatched / 10
