"""Counterexamples as schedules, and the command, as far as no engine is needed."""

from __future__ import annotations

import ast
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from checker.cli import main
from checker.proof.interpreter import Interpreter
from checker.reproduce import chosen
from checker.reproduce.chosen import drivable, remedies_of
from checker.reproduce.claims import _LOOPS
from checker.reproduce.results import EXIT_CODES, Outcome, worst
from checker.reproduce.schedule import _RESULT_COMES_LATER, CannotBeDrivenError, Request, Setup, _requests, moves_of
from checker.results import Result as Found
from checker.results import Trace, TraceStep
from spec.profile import bundled_profiles, load_profile
from spec.protocol import Protocol

PROFILE = ("--profile", "sglang-0.5.23")


def checker(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", *arguments])


def step(action: str, **choices: int) -> TraceStep:
    return TraceStep(action, "", "", choices, {})


def found(*steps: TraceStep, loop: str = "normal") -> Found:
    configuration = {"mode": "retract", "storage": "none", "ranks": 1}
    return Found("p", loop, configuration, "refuted", "", "", "", None, 0, Trace(steps, None))


def test_the_founding_case_as_a_schedule() -> None:
    done = checker("paused-flush-succeeds", *PROFILE, "--loop", "overlap", "--mode", "retract", "--dry-run")
    assert done.exit_code == 0
    assert (
        done.output.splitlines()
        == """\
paused-flush-succeeds: write_through is reaped by no paused step
  (loop overlap, mode retract, storage none)
   1  hold()
   2  request(48, 64)  # Arrive
   3  run_pass()  # RunningPass
   4  expect_in_flight()
   5  pause("retract")  # Pause
   6  expect_in_flight("d2h")
   7  flush(granted=False)  # FlushRefused
   8  land("d2h")  # DeviceDone(write_through.submitted)
   9  expect_in_flight()
  10  flush_stays_refused()
paused-flush-succeeds: prefetch is reaped by no paused step
  (loop overlap, mode retract, storage file)
   1  hold()
   2  request(320, 64)  # Arrive
   3  expect_in_flight("storage_query")
   4  pause("retract")  # Pause
   5  flush(granted=False)  # FlushRefused
   6  land("storage_query")  # StorageDone(prefetch.query)
   7  expect_in_flight()
   8  flush_stays_refused()""".splitlines()
    )


def test_what_the_testbed_cannot_do_is_said() -> None:
    done = checker("no-forward-during-load", *PROFILE, "--loop", "overlap", "--mode", "in_place", "--dry-run")
    assert done.exit_code == 3
    assert "no-forward-during-load: cannot be driven here" in done.output
    assert "on a CPU the forward runs in the scheduler's thread" in done.output


def test_a_pipeline_as_a_schedule(tmp_path: Path) -> None:
    """What goes on while paused is as long as the claim needs it; the file starts two ranks."""
    file = tmp_path / "test_it.py"
    run = ("--profile", "sglang-0.5.23-no-flag", "--loop", "pp", "--mode", "retract", "--dry-run")
    done = checker("no-forward-while-paused", *run, "-o", str(file))
    assert done.exit_code == 0
    moves = ["hold()", "request(48, 64)", 'pause("retract")', "run_pass()", "expect_in_flight()"]
    assert [line.split()[1] for line in done.output.splitlines()[2:]] == [
        *(move.split()[0] for move in moves),
        "answers_while_paused()",
    ]
    assert '        ranks=2,\n        arguments={"pp_size": 2},\n' in file.read_text()
    refused = checker("paused-flush-succeeds", *run)
    assert "request(8, 1500)" in refused.output


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_worker_as_a_schedule(role: str, tmp_path: Path) -> None:
    """The file starts its peer too, and the peer gets the request at a move of its own."""
    file = tmp_path / "test_it.py"
    run = ("--profile", f"sglang-0.5.23-{role}", "--loop", f"{role}-normal", "--mode", "retract", "--dry-run")
    done = checker("paused-flush-succeeds", *run, "-o", str(file))
    assert done.exit_code == 0
    moves = [line.split()[1] for line in done.output.splitlines()[2:]]
    assert moves[-2:] == ["peer_joins()", "flush_stays_refused()"]
    assert f'        role="{role}",\n        storage=False,\n' in file.read_text()


@pytest.mark.parametrize(("role", "ledger"), [("prefill", "pd_bootstrap"), ("decode", "pd_prealloc")])
def test_each_request_of_a_worker_is_in_its_queue(role: str, ledger: str) -> None:
    """So a trace has a step at which the peer gets it, and the schedule needs to add none."""
    profile = load_profile(f"sglang-0.5.23-{role}")
    runner = Interpreter(Protocol(profile, profile.place(f"{role}-normal retract none")).spec())
    follow = f"Arrive.follow_{ledger}"  # whether it is the followed request's
    assert [choice.name for choice in runner.actions["Arrive"].choices] == [follow]
    after = runner.apply(runner.initial(), "Arrive", {follow: 0})
    assert (after["waiting"], after[f"{ledger}_waiting"]) == (1, 1)


def test_a_request_in_no_queue_of_a_worker() -> None:
    """The engine puts each into one, unless it has left it for the one whose KV is sent."""
    arrives = found(step("Arrive"), step("Pause"), loop="prefill-normal")
    with pytest.raises(CannotBeDrivenError, match="waits in no queue of the worker"):
        list(moves_of(arrives))
    sent = found(step("Arrive"), step("RunningPass", admitted=1, pd_inflight_new=1), loop="prefill-normal")
    assert [move.method for move in moves_of(sent)] == ["hold", "request", "peer_joins", "run_pass", "expect_in_flight"]


def test_a_loop_that_needs_a_gpu() -> None:
    done = checker("no-forward-while-paused", "--profile", "sglang-0.5.23-no-flag", "--loop", "pdmux", "--dry-run")
    assert done.exit_code == 3
    assert "why: pdmux shares out the multiprocessors of a CUDA device" in done.output


def test_no_engine_is_started_with_a_variant_that_is_no_hook() -> None:
    """The counterexample would be one of the design, and there is no engine that has it."""
    profile = load_profile("sglang-0.5.23").with_remedies(["abort-reaches-all"])
    result = found(step("Pause"))
    assert drivable([result], profile, ()) == (
        result,
        "abort-reaches-all is a variant of the profile without a hook, so no engine is started with it",
    )


@pytest.mark.parametrize(
    ("more", "lacks"),
    [
        ("offload", "the ledger offload"),
        ("buffer", "host_mode 'buffer_only'"),
        ("caches", "the cache session"),
        ("dllm", "host_mode 'none'"),
        ("hisparse", "host_mode 'none'"),
        ("lmcache", "host_mode 'none'"),
    ],
)
def test_no_engine_is_started_of_another_configuration(more: str, lacks: str) -> None:
    """What was confirmed would be of an ordinary engine, under the name of a profile that none has."""
    result = found(step("Pause"))
    assert drivable([result], load_profile(f"sglang-0.5.23-{more}"), ()) == (
        result,
        f"the testbed starts no engine with {lacks}",
    )


def test_an_engine_is_started_with_a_variant_that_is_a_hook() -> None:
    profile = load_profile("sglang-0.5.23-grammar")
    assert remedies_of(profile, ["grammar-while-paused"]) == ("grammar-while-paused",)
    assert remedies_of(profile.with_remedies(["grammar-while-paused"]), []) == ("grammar-while-paused",)


def test_a_result_comes_later_in_the_loops_of_which_the_profiles_say_so() -> None:
    """Of the loops that are driven."""
    loops = {name: loop for profile in map(load_profile, bundled_profiles()) for name, loop in profile.loops.items()}
    assert set(_RESULT_COMES_LATER) == {name for name in _LOOPS if loops[name].result_queue}


def test_nothing_to_reproduce() -> None:
    done = checker("paused-work-ends", *PROFILE, "--loop", "normal")
    assert done.exit_code == 3
    assert "nothing to reproduce: no counterexample on sglang-0.5.23, the property is proved there" in done.output


def test_without_an_engine_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(chosen, "version", absent)
    done = checker("paused-flush-succeeds", *PROFILE)
    assert done.exit_code == 2
    assert "no SGLang is installed in this environment; install it with: tools/setup.sh engine" in done.output


def test_a_profile_of_another_engine_than_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "version", lambda _name: "0.6.0")
    done = checker("paused-flush-succeeds", *PROFILE)
    assert done.exit_code == 2
    assert "sglang-0.5.23 speaks of sglang 0.5.23, and 0.6.0 is installed" in done.output


def test_an_unknown_remedy_of_the_engine() -> None:
    done = checker("paused-flush-succeeds", *PROFILE, "--engine-remedy", "prayer", "--dry-run")
    assert done.exit_code == 2
    assert "prayer" in done.output
    assert "reap-while-paused" in done.output


def test_a_file_is_written_that_python_reads(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    done = checker("paused-flush-succeeds", *PROFILE, "--loop", "normal", "--dry-run", "-o", str(file))
    assert done.exit_code == 0
    names = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert names[-2:] == [
        "test_paused_flush_succeeds_normal_retract_none",
        "test_paused_flush_succeeds_normal_retract_file",
    ]
    imported = {line.split()[1] for line in file.read_text().splitlines() if line.startswith(("from ", "import "))}
    assert {name for name in imported if name not in ("contextlib", "pytest")} == {
        "engine_hooks.sglang.testbed",
        "engine_hooks.sglang.testbed.pair",
        "engine_hooks.sglang.testbed.server",
        "engine_hooks.sglang.testbed.warm",
    }


def test_the_worst_counts() -> None:
    confirmed, departed, undriven = Outcome.CONFIRMED, Outcome.NOT_REPRODUCED, Outcome.CANNOT_BE_DRIVEN
    assert worst([confirmed, undriven, departed]) is departed
    assert worst([confirmed, undriven]) is undriven
    assert worst([confirmed]) is confirmed
    assert worst([]) is undriven
    assert [EXIT_CODES[one] for one in (confirmed, departed, undriven)] == [0, 1, 3]


def test_a_step_without_a_move_is_named() -> None:
    with pytest.raises(CannotBeDrivenError, match="no move for the step PeerCopyDone"):
        list(moves_of(found(step("PeerCopyDone"))))


@pytest.mark.parametrize(
    ("steps", "loop", "wanted"),
    [
        # Asked of the storage; prefilled and cached; prefilled and not; ended by its first token.
        ([step("Arrive", tokens=256)], "normal", [Request(320, 64)]),
        ([step("Arrive"), step("RunningPass", admitted=1, inserted=1)], "normal", [Request(48, 64)]),
        ([step("Arrive"), step("RunningPass", admitted=1)], "normal", [Request(8, 64)]),
        ([step("Arrive"), step("RunningPass", admitted=1, finished=1)], "normal", [Request(8, 1)]),
        # In the overlap loop the step after the launch processes its result: a pass, or the pause.
        ([step("Arrive"), step("RunningPass", admitted=1), step("Pause", inserted=1)], "overlap", [Request(48, 64)]),
        (
            [step("Arrive"), step("RunningPass", admitted=1), step("RunningPass", finished=1)],
            "overlap",
            [Request(8, 1)],
        ),
        # Two requests, each with its own admission.
        (
            [
                step("Arrive"),
                step("RunningPass", admitted=1, finished=1),
                step("Arrive"),
                step("RunningPass", admitted=1, inserted=1),
            ],
            "normal",
            [Request(8, 1), Request(48, 64)],
        ),
        # One with a grammar to be compiled.
        ([step("Arrive", grammar_new=1)], "normal", [Request(48, 64, grammar=True)]),
        ([step("Pause", late=1), step("ArriveLate", grammar_new=1)], "normal", [Request(48, 64, grammar=True)]),
        # One that is still on its way at the pause.
        ([step("Pause", late=1), step("ArriveLate", tokens=256)], "normal", [Request(320, 64)]),
    ],
)
def test_requests_are_made_so_that_the_engine_does_what_the_trace_says(
    steps: list[TraceStep], loop: str, wanted: list[Request]
) -> None:
    assert list(_requests(steps, loop)) == wanted


def test_engines_with_equal_setups_are_shared() -> None:
    assert Setup("normal", storage=False) == Setup("normal", storage=False)
    assert Setup("normal", storage=False) != Setup("normal", storage=False, remedies=("reap-while-paused",))
