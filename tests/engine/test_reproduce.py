"""Counterexamples that the proof engine found, run on the real engine; and runs in which it keeps its promise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner
from harness import REMEDY, Models

from checker.cli import main
from checker.reproduce import run
from checker.reproduce.chosen import counterexamples, drivable
from checker.reproduce.results import Outcome, Reproductions
from checker.reproduce.run import Engines, Place, reproduce
from checker.reproduce.schedule import Move, Schedule, Setup
from checker.results import Result
from checker.verify import Request, verify
from engine_hooks.sglang.testbed.drive import DepartedError
from engine_hooks.sglang.testbed.server import Server
from engine_hooks.sglang.testbed.witness import Witness
from spec.profile import load_profile

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

PROFILE = load_profile("sglang-0.5.23")
RUNS = 2
PLAIN = {
    "paused-flush-succeeds": "flush_stays_refused()",
    "update-flushes": "update_was_refused_by_its_flush()",
    "deferred-flush-agrees": "deferred_flush_disagrees()",
    "ledgers-drain": "flush_stays_refused()",
    "abort-answered": "abort_has_no_effect()",
    "no-stale-kv": "answers_are_stale()",
    "update-tells-truth": "new_weights_serve_after_failure()",
}
"""What needs no storage, and by what its violation is seen."""
OTHERS = ("versions-agree", "engine-survives")


@pytest.fixture(scope="module")
def where(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("reproduce"), models.old, models.new, warm)


@cache
def results() -> tuple[Result, ...]:
    """Every result on the properties that these tests reproduce."""
    return tuple(verify(Request(PROFILE, properties=(*PLAIN, *OTHERS), workers=1)).results)


def schedules(loop: str, mode: str, *names: str, storage: bool, remedies: tuple[str, ...] = ()) -> list[Schedule]:
    """Of the counterexamples that are shown, those of some properties in one mode, with storage or without."""
    found = []
    for name in names:
        chosen = [r for r in results() if (r.property, r.loop, r.configuration["mode"]) == (name, loop, mode)]
        found += [drivable(group, PROFILE, remedies) for group in counterexamples(chosen)]
    return [one for one in found if isinstance(one, Schedule) and one.setup.storage is storage]


@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_what_the_model_refutes_without_storage_the_engine_shows_each_time(loop: str, where: Place) -> None:
    found = list(reproduce(schedules(loop, "retract", *PLAIN, storage=False), RUNS, where))
    assert {(r.property, r.outcome, r.confirmed, r.departure, r.schedule[-1]) for r in found} == {
        (name, Outcome.CONFIRMED, RUNS, "", seen) for name, seen in PLAIN.items()
    }


def test_what_needs_storage(where: Place) -> None:
    names = ("paused-flush-succeeds", "versions-agree", "update-tells-truth")
    found = list(reproduce(schedules("overlap", "retract", *names, storage=True), RUNS, where))
    assert sorted((r.property, r.departure, r.outcome, r.confirmed, r.schedule[-1]) for r in found) == [
        ("paused-flush-succeeds", "", Outcome.CONFIRMED, RUNS, "flush_stays_refused()"),
        ("update-tells-truth", "", Outcome.CONFIRMED, RUNS, "storage_keeps_old_pages()"),
        ("versions-agree", "", Outcome.CONFIRMED, RUNS, "versions_split()"),
    ]


def test_the_watchdog_takes_a_pause_for_a_hang(where: Place) -> None:
    (schedule,) = schedules("normal", "in_place", "engine-survives", storage=False)
    assert schedule.setup.dies
    (found,) = reproduce([schedule], 1, where)
    assert (found.outcome, found.departure) == (Outcome.CONFIRMED, "")


@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_a_retract_turns_away_what_ran(loop: str, where: Place) -> None:
    """Case B14: an engine with a limit on queued requests, and no time-out of waiting ones."""
    limits = load_profile("sglang-0.5.23-limits").with_difference({"requests": {"clocks_count_pause": False}})
    chosen = Request(limits, properties=("requests-conserved",), loops=(loop,), modes=("retract",), workers=1)
    (group,) = counterexamples(verify(chosen).results)
    schedule = drivable(group, limits, ())
    assert isinstance(schedule, Schedule)
    assert schedule.setup.arguments == (("max_queued_requests", 1),)
    (found,) = reproduce([schedule], RUNS, where)
    assert (found.departure, found.confirmed, found.schedule[-1]) == ("", RUNS, "retracted_request_is_turned_away()")
    assert "The request queue is full" in found.answers[-1]


def test_an_engine_with_the_remedy_departs_where_the_flush_is_granted(where: Place) -> None:
    """The negative control of the founding case: the same schedule, and an engine that reaps while paused."""
    (schedule,) = schedules("normal", "retract", "paused-flush-succeeds", storage=False, remedies=(REMEDY,))
    assert schedule.setup.remedies == (REMEDY,)
    (found,) = reproduce([schedule], RUNS, where)
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure == "at move 9 of 9, flush_stays_refused(): all had landed, and flush 1 of 20 was granted"


@pytest.fixture(scope="module")
def healthy(where: Place) -> Iterator[Witness]:
    with Server(where.options(Setup("normal", storage=True))) as server:
        yield Witness(server, where.new)


def paused_and_drained(drive: Witness) -> None:
    """Nothing in flight at the pause, so that this engine keeps every promise."""
    drive.request(48, 1)
    drive.run_pass()
    # A copy to the host, its acknowledgement, a write to storage, its own: each begins some time after the one before.
    for _ in range(8):
        drive.land_all()
        drive.run_pass()
    drive.pause("retract")


def updated_and_clear(drive: Witness) -> None:
    paused_and_drained(drive)
    drive.update(success=True)
    drive.clear_storage()


def resumed(drive: Witness) -> None:
    updated_and_clear(drive)
    drive.continue_()
    drive.request(48, 20)
    drive.run_pass()


def retracted(drive: Witness) -> None:
    """Without a limit, what ran waits again."""
    for _ in range(2):
        drive.request(8, 64)
        drive.run_pass()
    drive.pause("retract")


KEPT: dict[str, tuple[Callable[[Witness], None], str]] = {
    "flush_stays_refused": (paused_and_drained, "flush 1 of 20 was granted"),
    "deferred_flush_disagrees": (paused_and_drained, "the flush with a time-out was granted"),
    "update_was_refused_by_its_flush": (updated_and_clear, "was not refused by its flush"),
    "new_weights_serve_after_failure": (resumed, "was not refused by its flush"),
    "answers_are_stale": (resumed, "the answer is the one that the new weights give"),
    "versions_split": (updated_and_clear, "both say 'new'"),
    "storage_keeps_old_pages": (updated_and_clear, "no page from before the update"),
    "retracted_request_is_turned_away": (retracted, "the last request is still unanswered after 1 s"),
    "answers_while_paused": (retracted, "while paused, the request got 0 more tokens in 1 s"),
    "watchdog_fires": (paused_and_drained, "not within 1 s: the watchdog fires"),
}


LOOK_ON = {"watchdog_fires", "retracted_request_is_turned_away", "answers_while_paused"}
"""Those that look on for some time."""


@pytest.mark.parametrize("claim", KEPT)
def test_no_violation_is_seen_where_there_is_none(claim: str, healthy: Witness) -> None:
    healthy.reset()
    prepare, text = KEPT[claim]
    healthy.hold()
    prepare(healthy)
    keywords = {"seconds": 1.0} if claim in LOOK_ON else {}
    with pytest.raises(DepartedError, match=text):
        getattr(healthy, claim)(**keywords)


def test_an_aborted_request_that_is_answered_is_no_violation(healthy: Witness) -> None:
    healthy.reset()
    healthy.hold()
    healthy.request(48, 64)
    healthy.abort()
    with pytest.raises(DepartedError, match=r"the aborted request was answered: .*'abort'"):
        healthy.abort_has_no_effect()


def test_a_schedule_that_the_engine_does_not_follow_ends_where_it_departs(where: Place, healthy: Witness) -> None:
    moves = [Move("hold"), Move("request", (48, 64)), Move("run_pass"), Move("expect_in_flight")]
    engines = Engines(where, Setup("normal", storage=True))
    engines._drive = healthy
    assert engines.run(moves).departure == "at move 4 of 4, expect_in_flight(): no d2h was to be in flight, and 1 is"
    assert not engines.run(moves[:3]).departure


def test_the_command_and_the_file_that_it_writes(where: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command starts its engines from where these tests do; the file starts its own, and needs nothing of ours."""
    monkeypatch.setattr(run, "place", lambda _folder: nullcontext(where))
    file = tmp_path / "test_written.py"
    command = ["reproduce", "deferred-flush-agrees", "--profile", PROFILE.name, "--loop", "normal", "--json"]
    done = CliRunner().invoke(main, [*command, "-o", str(file)])
    assert done.exit_code == 0, done.output
    answer = msgspec.json.decode(done.stdout, type=Reproductions)
    assert [(r.outcome, r.runs, r.confirmed) for r in answer.results] == [("confirmed", 1, 1)]
    assert list(answer.results[0].answers) == [
        "flush_cache(timeout=2): refused: Timed out waiting for idle state.",
        "flush_cache: success: Cache flushed",
    ]
    # No plugin of ours, no conftest, and another folder.
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:quiesce", "-p", "no:cacheprovider", file.name]
    tested = subprocess.run(pytest_alone, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout
