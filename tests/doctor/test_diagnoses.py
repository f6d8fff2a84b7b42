"""What the doctor says, word for word, of engines in every condition. Update with `QUIESCE_GOLDENS=write`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engines import NOW, SGLANG, blocked, engine, exported, idle, paused, served, stuck, tokenizer_paused

from checker.doctor.fetch import Limits
from checker.doctor.results import Diagnosis, State, worst
from checker.doctor.visit import visit
from checker.doctor.watch import printed
from engine_hooks.monitor_text import HOOKS

if TYPE_CHECKING:
    from engines import Page, PrometheusSink

GOLDENS = Path(__file__).parent / "goldens"


def running_in_place(sink: PrometheusSink) -> None:
    paused(sink)
    sink.gauge("flush_blocked", ("running",), 1)


def just_blocked(sink: PrometheusSink) -> None:
    repaired(sink)
    sink.gauge("ledger_oldest_timestamp_seconds", ("write_through",), NOW - 119)


def paused_without_a_start(sink: PrometheusSink) -> None:
    sink.gauge("paused", ("scheduler",), 1)


def no_region(sink: PrometheusSink) -> None:
    blocked(sink)
    sink.gauge("hook_applied", ("stuck_region",), 0)


def no_region_now(sink: PrometheusSink) -> None:
    sink.gauge("hook_applied", ("stuck_region",), 0)


def blind(sink: PrometheusSink) -> None:
    sink.gauge("hook_applied", ("flush",), 0)


def updating(sink: PrometheusSink) -> None:
    sink.gauge("update_start_timestamp_seconds", (), NOW - 30)


def overdue(sink: PrometheusSink) -> None:
    sink.gauge("update_start_timestamp_seconds", (), NOW - 4000)


def repaired(sink: PrometheusSink) -> None:
    blocked(sink)
    sink.gauge("remedy_active", ("reap-while-paused",), 1)


def loaded(sink: PrometheusSink) -> None:
    sink.gauge("weight_epoch", (), 1)


def dropping(sink: PrometheusSink) -> None:
    sink.count("trace_events_dropped_total", ("disk",), by=12)


def of_no_profile(sink: PrometheusSink) -> None:
    for hook in HOOKS:
        sink.gauge("hook_applied", (hook,), 0)


ENGINES: dict[str, tuple[dict[str, Page], str]] = {
    "healthy": (engine(exported(idle, idle)), "healthy"),
    "stuck": (engine(exported(stuck), "v2", "default"), "stuck"),
    "stuck-on-one-rank": (engine(exported(blocked, stuck)), "stuck"),
    # A copy that is younger than the pager's patience, and one that is not.
    "blocked": (engine(exported(just_blocked)), "healthy"),
    "blocked-for-long": (engine(exported(repaired)), "cannot tell"),
    "running-in-place": (engine(exported(running_in_place)), "cannot tell"),
    "paused-for-hours": (engine(exported(lambda sink: paused(sink, 7500))), "cannot tell"),
    "paused-without-a-start": (engine(exported(paused_without_a_start)), "healthy"),
    "no-region": (engine(exported(no_region)), "cannot tell"),
    "no-region-while-running": (engine(exported(no_region_now)), "healthy"),
    # Paused by mode abort, of which the scheduler is told nothing; its last own pause had no region.
    "paused-in-the-tokenizer": (engine(exported(no_region_now) + tokenizer_paused(30)), "healthy"),
    "dropping": (engine(exported(idle, dropping)), "healthy"),
    "of-no-profile": (engine(exported(of_no_profile)), "cannot tell"),
    "blind": (engine(exported(idle, blind)), "cannot tell"),
    "updating": (engine(exported(updating)), "healthy"),
    "update-overdue": (engine(exported(overdue)), "stuck"),
    "ranks-differ": (engine(exported(loaded, idle)), "violated"),
    "versions-differ": (engine(exported(idle), "v2", "v1"), "violated"),
    "without-quiesce": (engine(SGLANG), "cannot tell"),
}


def asked(pages: dict[str, Page]) -> tuple[Diagnosis, str]:
    """The diagnosis, and what is printed of it."""
    with served(pages) as url:
        report = visit([url], Limits(10))
    text = "\n".join(printed(report)).replace(url, "http://ENGINE")
    return report.engines[0], text


def golden(name: str, text: str) -> None:
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("QUIESCE_GOLDENS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ENGINES)
def test_one_engine(name: str) -> None:
    pages, state = ENGINES[name]
    found, text = asked(pages)
    assert found.state == state
    golden(name, f"$ checker doctor --url http://ENGINE\n{text}\nexit code {State(state).exit_code}\n")


def test_loads_that_are_not_seen_are_not_counted() -> None:
    assert asked(ENGINES["of-no-profile"][0])[0].weight_loads == ()
    assert asked(ENGINES["healthy"][0])[0].weight_loads == (0,)


def test_many_engines_are_a_line_each_in_the_order_given() -> None:
    names = ["healthy", "stuck", "blind"]
    with ExitStack() as stack:
        urls = [stack.enter_context(served(ENGINES[name][0])) for name in names]
        report = visit(urls, Limits(10))
    text = "\n".join(printed(report))
    for name, url in zip(names, urls, strict=True):
        text = text.replace(url, f"http://{name:14}")
    assert report.state == "stuck"
    golden("many", f"$ checker doctor --urls FILE\n{text}\nexit code 1\n")


def test_what_can_be_said_of_the_founding_case() -> None:
    found, _ = asked(ENGINES["stuck"][0])
    assert found.flush is not None
    assert found.flush.can_succeed == "no"
    assert [(b.name, b.entries, b.seconds) for b in found.flush.blockers] == [("write_through", 2, 201)]
    assert (found.paused_since, found.paused_seconds) == (NOW - 200, 200)
    assert found.violations == {"paused-flush-succeeds": 1, "update-flushes": 1}
    assert found.runbooks[0] == "FlushCannotSucceed"
    assert found.versions == {"scheduler": ("v2",), "tokenizer": ("default",)}


def test_entries_of_several_ranks_are_said_to_be_of_several() -> None:
    with served(engine(exported(stuck, stuck))) as url:
        lines = printed(visit([url], Limits(10)))
    assert "wanted; held back by write_through (4 in flight over 2 ranks)" in "\n".join(lines)


def test_the_worst_counts_in_the_order_2_1_3_0() -> None:
    order = [State.UNREACHABLE, State.STUCK, State.VIOLATED, State.CANNOT_TELL, State.HEALTHY]
    assert [state.exit_code for state in order] == [2, 1, 1, 3, 0]
    for number in range(len(order)):
        assert worst(reversed(order[number:])) is order[number]
    assert worst([]) is State.HEALTHY
