"""`checker replay` as a person and a script meet it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner, Result
from replay_traces import evicted, header_of, numbered, path_of, recorded, text_of, unlaunched

from checker.cli import main
from checker.replay.results import Report
from engine_hooks.trace import Step, TraceState

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def test_an_accepted_trace_in_three_lines() -> None:
    done = run(path_of("normal-none"))
    assert done.exit_code == 0
    first, engine, spec, accepted = done.stdout.splitlines()
    assert first.endswith("normal-none.trace.ndjson.gz: accepted")
    assert engine == "  engine     sglang 0.5.23, tp0 pp0 dp0, loop normal, storage none, remedies: none"
    assert spec.startswith("  spec       sglang-0.5.23, ")
    assert accepted == "  accepted   6,868 steps in 546 lines"


def test_the_first_divergence_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "unlaunched.trace.ndjson"
    path.write_bytes(unlaunched())
    done = run(path)
    assert done.exit_code == 1
    told = done.stdout.splitlines()
    at = next(i for i, line in enumerate(told) if line.startswith("  diverges"))
    assert " at line 6 of " in told[at]
    allowed = "with forwards 2; last_batch 1; result_pending 1"
    assert told[at + 1 :] == [
        "    before   last_batch 1, result_pending 1, running 1, forwards 1",
        "    did      pass",
        "    after    running 1, write_through_ready 1, forwards 1",
        "    changed  last_batch 1 -> 0, result_pending 1 -> 0, write_through_ready 0 -> 1",
        f"    allowed  RunningPass (srt/managers/scheduler.py:event_loop_overlap), {allowed}",
        "    next     see whether it is a known difference: --allow all (docs/guide/replay.md)",
    ]


def test_a_known_difference_is_let_pass_by_name_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "evicted.trace.ndjson"
    path.write_bytes(evicted())
    assert run(path).exit_code == 1
    done = run(path, "--allow", "looks-up-lost-prefix")
    assert done.exit_code == 0
    assert "  allowed    looks-up-lost-prefix: in 1 line" in done.stdout.splitlines()
    wrong = run(path, "--allow", "looks-up-lost-prefixes")
    assert wrong.exit_code == 2
    assert "did you mean 'looks-up-lost-prefix'?" in wrong.stderr


def test_json_has_its_schema() -> None:
    done = run(path_of("normal-none"), "--json", "--coverage")
    found = msgspec.json.decode(done.stdout, type=Report)
    assert (found.schema, found.verdict, len(found.traces), found.alignment) == (1, "accepted", 1, [])
    coverage = found.traces[0].coverage
    assert coverage is not None
    assert coverage.missing == ["ArriveLate", "AbortAgain"]
    assert coverage.actions["Pause(retract)"] == "line 71"
    assert (coverage.states, coverage.unreachable) == (43, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.trace.ndjson"], "cannot read trace 'nowhere.trace.ndjson': No such file"),
        (["."], "no trace in this folder"),
        ([__file__], "line 1: no trace of this version"),
    ],
)
def test_what_is_no_trace_ends_with_2(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_header_makes_nobody_open_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.trace.ndjson"
    path.write_bytes(text_of(header_of(profile="/etc/passwd"), []))
    done = run(path)
    assert done.exit_code == 2
    assert "unknown profile '/etc/passwd'" in done.stderr
    path.write_bytes(text_of(header_of(remedies=("sudo",)), []))
    assert "unknown remedy 'sudo'" in run(path).stderr


def test_a_profile_that_a_trace_does_not_show_cannot_tell(tmp_path: Path) -> None:
    path = tmp_path / "a.trace.ndjson"
    steps = [Step(1, "start", TraceState()), Step(2, "pass", TraceState())]
    path.write_bytes(text_of(header_of(), steps))
    done = run(path, "--profile", "sglang-0.5.23-grammar")
    assert done.exit_code == 3
    assert "depends on grammar_compiling, grammar_ready, which a trace does not show" in done.stdout


@pytest.mark.parametrize(
    ("remedies", "code"), [(("grammar-while-paused", "pp-honours-pause"), 0), (("flush-waits",), 3)]
)
def test_hooks_of_other_loops_change_nothing_here(tmp_path: Path, remedies: tuple[str, ...], code: int) -> None:
    """An engine with `all` has them; that its update waits is another thing."""
    header, steps = recorded("normal-none")
    path = tmp_path / "a.trace.ndjson"
    path.write_bytes(text_of(msgspec.structs.replace(header, remedies=remedies), steps))
    done = run(path)
    assert done.exit_code == code
    assert ("an update waits here" in done.stdout) == (code != 0)


def test_ranks_of_one_engine_are_told_the_same(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    for rank, told in enumerate([steps, steps]):
        other = msgspec.structs.replace(header, rank={"tp": rank, "pp": 0, "dp": 0})
        (tmp_path / f"{rank}.trace.ndjson").write_bytes(text_of(other, told))
    done = run(tmp_path, "--json")
    assert done.exit_code == 0
    (alignment,) = json.loads(done.stdout)["alignment"]
    assert (alignment["verdict"], alignment["ranks"]) == ("accepted", ["tp0 pp0 dp0", "tp1 pp0 dp0"])
    assert alignment["controls"] == 26
    # The last rank is never told to continue, and is granted a flush that the other one is not.
    at = next(i for i, step in enumerate(steps) if step.do == "continue")
    (tmp_path / "1.trace.ndjson").write_bytes(
        text_of(msgspec.structs.replace(header, rank={"tp": 1, "pp": 0, "dp": 0}), numbered(steps[:at]))
    )
    assert run(tmp_path).exit_code == 0  # one that was ended earlier
    skipped = numbered([*steps[:at], *steps[at + 1 :]])
    (tmp_path / "1.trace.ndjson").write_bytes(
        text_of(msgspec.structs.replace(header, rank={"tp": 1, "pp": 0, "dp": 0}), skipped)
    )
    done = run(tmp_path)
    assert done.exit_code == 1
    told = done.stdout.splitlines()[-1]
    assert told.startswith("tp0 pp0 dp0, tp1 pp0 dp0: not aligned: control request 7 differs: tp0 pp0 dp0: continue")
    assert "; tp1 pp0 dp0: flush granted after 11 requests (line 130, " in told
