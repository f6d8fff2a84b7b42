"""Counterexamples of other profiles on the real engine: grammars, pipelines, workers; and repaired engines."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import Models

from checker.reproduce.chosen import counterexamples, drivable, remedies_of
from checker.reproduce.results import Outcome, Reproduction
from checker.reproduce.run import Place, reproduce
from checker.reproduce.schedule import Schedule, Setup
from checker.reproduce.write import module
from checker.verify import Request, verify
from engine_hooks.sglang.testbed.drive import token_ids
from engine_hooks.sglang.testbed.pair import begin
from spec.profile import Profile, load_profile

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

RUNS = 2
FOUNDING = "paused-flush-succeeds"


@pytest.fixture(scope="module")
def where(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("reproduce"), models.old, models.new, warm)


def reproduced(
    where: Place, name: str | Profile, loop: str, *properties: str, remedies: tuple[str, ...] = ()
) -> list[Reproduction]:
    """What becomes of the counterexamples of a profile in mode retract, on engines with these remedies."""
    return list(reproduce(schedules(name, loop, *properties, remedies=remedies), RUNS, where))


def schedules(name: str | Profile, loop: str, *properties: str, remedies: tuple[str, ...] = ()) -> list[Schedule]:
    """Those counterexamples. Each of them can be driven."""
    profile = load_profile(name) if isinstance(name, str) else name
    request = Request(profile, properties=properties, loops=(loop,), modes=("retract",), workers=1)
    engine = remedies_of(profile, remedies)
    found = [drivable(group, profile, engine) for group in counterexamples(verify(request).results)]
    assert [one for one in found if not isinstance(one, Schedule)] == []
    return [one for one in found if isinstance(one, Schedule)]


@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_a_grammar_that_compiles_at_the_pause(loop: str, where: Place) -> None:
    """Case B13."""
    found = reproduced(where, "sglang-0.5.23-grammar", loop, FOUNDING, "update-tells-truth")
    assert sorted((r.property, r.reason, r.departure, r.confirmed) for r in found) == [
        (FOUNDING, "grammar is reaped by no paused step", "", RUNS),
        ("update-tells-truth", "a forward runs after an update whose flush was refused", "", RUNS),
    ]
    assert all("request(" in r.schedule[1] and "grammar=True" in r.schedule[1] for r in found)


def test_a_paused_loop_that_polls_grammars(where: Place) -> None:
    (found,) = reproduced(where, "sglang-0.5.23-grammar", "overlap", FOUNDING, remedies=("grammar-while-paused",))
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure.endswith("flush_stays_refused(): all had landed, and flush 1 of 20 was granted")


RUN = "no-forward-while-paused"


def test_a_pipeline_runs_on_while_paused(where: Place) -> None:
    """Case B21: what waits at the pause is admitted, closes the gate again, and reads old KV and new."""
    found = reproduced(where, "sglang-0.5.23-no-flag", "pp", RUN, "update-tells-truth", "no-stale-kv", FOUNDING)
    found = [r for r in found if r.configuration["storage"] == "none"]
    assert sorted((r.property, r.departure, r.confirmed, r.schedule[-1]) for r in found) == [
        (RUN, "", RUNS, "answers_while_paused()"),
        ("no-stale-kv", "", RUNS, "answers_are_stale()"),
        (FOUNDING, "", RUNS, "flush_stays_refused()"),
        ("update-tells-truth", "", RUNS, "new_weights_serve_after_failure()"),
    ]


def test_a_pipeline_that_looks_at_the_flag(where: Place) -> None:
    (found,) = reproduced(where, "sglang-0.5.23-no-flag", "pp", RUN, remedies=("pp-honours-pause",))
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure.endswith("while paused, the request got 0 more tokens in 10 s")


DRAINS = "pd-drains-while-paused"
QUEUES = {
    "decode-normal": "pd_prealloc",
    "decode-overlap": "pd_prealloc",
    "prefill-normal": "pd_bootstrap",
    "prefill-overlap": "pd_bootstrap",
}
"""Of the loops of a worker, the ledger whose entry stands in the way of each flush."""


@pytest.mark.parametrize("loop", ["decode-overlap", "prefill-normal"])
def test_a_worker_with_a_request_in_its_queue_at_the_pause(loop: str, where: Place) -> None:
    """Case B23: it is not looked at while paused, and after that it is served with what the old weights began."""
    name = f"sglang-0.5.23-{loop.split('-', maxsplit=1)[0]}"
    found = reproduced(where, name, loop, FOUNDING, "update-tells-truth")
    assert sorted((r.property, r.reason, r.departure, r.confirmed) for r in found) == [
        (FOUNDING, f"{QUEUES[loop]} is reaped by no paused step", "", RUNS),
        ("update-tells-truth", "a forward runs after an update whose flush was refused", "", RUNS),
    ]


@pytest.mark.parametrize("loop", ["decode-normal", "prefill-overlap"])
def test_a_worker_that_looks_at_its_queues_while_paused(loop: str, where: Place) -> None:
    (found,) = reproduced(where, f"sglang-0.5.23-{loop.split('-', maxsplit=1)[0]}", loop, FOUNDING, remedies=(DRAINS,))
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure.endswith("flush_stays_refused(): all had landed, and flush 1 of 20 was granted")


def with_kv_under_way(role: str) -> Profile:
    """The profile of a worker with fewer runs: a flush waits for no other queue, and the driver has the peer join.

    So the search goes past its shorter answers, to the run in which the KV of a request is under way at the pause. That
    is a run of the profile itself too: what refuses a flush here does so there.
    """
    profile = load_profile(f"sglang-0.5.23-{role}")
    known = profile.gates["flush"].waits_for
    others = {"write_through", "load_back", "pd_bootstrap", "pd_prealloc", "pd_release"}
    gate = {"gates": {"flush": {"waits_for": [one for one in known if one not in others]}}}
    joins = {"ledgers": {"pd_bootstrap": {"each": False}}} if role == "prefill" else {}
    return profile.with_difference(gate | joins)


@pytest.mark.parametrize("loop", ["decode-normal", "prefill-overlap"])
def test_kv_that_is_under_way_at_the_pause(loop: str, where: Place) -> None:
    """Case B23 again, and fault 2 of the testbed: the KV arrives while paused, and nobody looks."""
    (found,) = reproduced(where, with_kv_under_way(loop.split("-", maxsplit=1)[0]), loop, FOUNDING)
    assert found.reason.endswith("is reaped by no paused step")
    assert (found.departure, found.confirmed) == ("", RUNS)
    assert 'land("pd_send")' in found.schedule


def test_kv_that_arrives_where_the_queues_are_looked_at(where: Place) -> None:
    (found,) = reproduced(where, with_kv_under_way("decode"), "decode-normal", FOUNDING, remedies=(DRAINS,))
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure.endswith("flush_stays_refused(): all had landed, and flush 1 of 20 was granted")


def test_the_file_that_is_written_of_a_worker_and_of_a_pipeline(tmp_path: Path) -> None:
    """It starts the peer of the worker and the stages of the pipeline itself."""
    file = tmp_path / "test_written.py"
    chosen = [*schedules("sglang-0.5.23-decode", "decode-normal", FOUNDING)]
    chosen += schedules("sglang-0.5.23-no-flag", "pp", RUN)
    file.write_text(module(chosen))
    alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:quiesce", "-p", "no:cacheprovider", file.name]
    tested = subprocess.run(alone, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert "2 passed" in tested.stdout, tested.stdout


CHUNK, LONG = 64, 400
"""Tokens of a chunk, and of a prompt of many chunks."""


@pytest.mark.parametrize("remedies", [(), ("pp-honours-pause",)])
def test_a_retract_between_the_chunks_of_a_prefill(remedies: tuple[str, ...], where: Place) -> None:
    """Fault 6 of the testbed: the token of a chunk that was under way leads the answer, and shifts it by one.

    The spec has no chunks, so no counterexample leads here: the driver alone does.
    """
    setup = Setup("pp", storage=False, arguments=(("chunked_prefill_size", CHUNK),), remedies=remedies)
    with ExitStack() as engines:
        drive = begin(engines, where.options(setup), where.new)
        wanted = drive.send(token_ids(LONG), 8).wait().output_ids
        for passes in (1, 4):
            drive.reset()
            drive.hold()
            answer = drive.request(LONG, 8)
            drive.run_pass(passes)
            drive.pause("retract")
            drive.continue_()
            drive.let_go()
            got = answer.wait().output_ids
            assert (got == wanted) is bool(remedies)
            assert (got[1:] == wanted[:-1]) is (not remedies)
