"""The command: exit codes, clear errors, JSON by its schema, an interrupt that ends with what is known."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from checker.results import Report

ROOT = Path(__file__).resolve().parents[2]
FAST = ("--profile", "sglang-0.5.23", "--loop", "normal", "--mode", "retract")
FOUNDING = ("--property", "paused-flush-succeeds")


def checker(*arguments, **more):
    command = [sys.executable, "-m", "checker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT, **more)


def test_refuted_is_exit_code_1_and_the_remedy_makes_it_0():
    done = checker("verify", *FAST, *FOUNDING, "--json")
    assert done.returncode == 1
    report = msgspec.json.decode(done.stdout, type=Report)
    assert [(r.verdict, r.ledger) for r in report.results] == [("refuted", "write_through"), ("refuted", "prefetch")]
    assert [len(r.trace.steps) for r in report.results] == [5, 4]
    done = checker("verify", *FAST, *FOUNDING, "--remedy", "reap-while-paused", "--json")
    assert done.returncode == 0
    report = msgspec.json.decode(done.stdout, type=Report)
    assert [r.verdict for r in report.results] == ["proved", "proved"]
    assert report.engine.remedies == ["reap-while-paused"]


def test_json_has_the_shape_of_schema_1():
    done = checker("verify", *FAST, *FOUNDING, "--json")
    found = json.loads(done.stdout)
    assert set(found) >= {"schema", "engine", "results", "verdict"}
    assert found["schema"] == 1
    assert set(found["engine"]) == {"name", "version", "profile", "source", "remedies"}
    for result in found["results"]:
        assert set(result) >= {
            "property",
            "loop",
            "configuration",
            "verdict",
            "scope",
            "method",
            "reason",
            "ledger",
            "seconds",
            "trace",
            "certificate",
        }
        assert set(result["configuration"]) == {"mode", "storage", "write_policy", "host_mode", "ranks"}
        assert set(result["trace"]) == {"steps", "loop_from"}
        assert result["trace"]["loop_from"] == len(result["trace"]["steps"])


def test_nothing_applicable_is_not_a_pass():
    assert checker("verify", *FAST, "--property", "pages-conserved").returncode == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("verify", "--profile", "sglang-0.5"), ["unknown profile 'sglang-0.5'", "valid names", "sglang-0.5.23"]),
        (("verify", *FAST, "--property", "flushes"), ["unknown property 'flushes'", "paused-flush-succeeds"]),
        (("verify", *FAST, "--remedy", "reap"), ["unknown remedy 'reap'", "reap-while-paused"]),
        (
            ("verify", "--profile", "sglang-0.5.23", "--loop", "norml"),
            ["unknown loop 'norml'", "did you mean 'normal'"],
        ),
        (("explain", "nothing", *FAST), ["unknown property 'nothing'", "valid names"]),
        (("verify", "--engine", "running"), ["unknown engine 'running'", "installed"]),
        (("verify", "--engine", "installed", *FAST[:2]), ["exclude each other"]),
        (("verify", "--seed", "minus"), ["--seed"]),
        (("certify", "nowhere"), ["no certificate in nowhere", "--certificates"]),
        (("verify", "--profile", "nowhere.toml"), ["nowhere.toml", "cannot be read"]),
    ],
)
def test_bad_input_is_exit_code_2_with_the_remedy(arguments, says):
    done = checker(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for part in says:
        assert part in done.stderr


def test_a_broken_profile_names_line_and_key(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('schema = 1\nbase = "sglang-0.5.23"\n\n[set.loops.normal]\npaused = ["reep"]\n', encoding="utf-8")
    done = checker("verify", "--profile", str(path))
    assert done.returncode == 2
    assert f"{path}:5: loops.normal.paused: unknown name 'reep'" in done.stderr


def test_without_an_installed_engine_it_says_how_to_install_one(tmp_path):
    # An import system that sees no distribution of that name is what an environment without it looks like.
    hide = (
        "import importlib.metadata as m; real = m.version\n"
        "def version(name):\n"
        "    if name == 'sglang': raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version\n"
        "from checker.cli import main; main()"
    )
    command = [sys.executable, "-c", hide, "verify", "--engine", "installed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert "no SGLang is installed" in done.stderr
    assert "pip install sglang==0.5.23" in done.stderr


def test_results_go_to_stdout_and_nothing_to_stderr_without_a_terminal():
    done = checker("verify", *FAST, *FOUNDING)
    assert done.stderr == ""
    assert "paused-flush-succeeds is refuted:" in done.stdout
    assert "\x1b" not in done.stdout


def test_an_interrupt_ends_with_what_is_known():
    command = [sys.executable, "-m", "checker", "verify", "--profile", "sglang-0.5.23"]
    process = subprocess.Popen(
        [*command, "--json", "--workers", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    time.sleep(4)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    if process.returncode in (1, 3) and out:
        report = msgspec.json.decode(out, type=Report)
        assert not report.complete or report.results
    else:
        assert process.returncode == 3


def test_version_and_help_need_no_solver():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "checker", "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0
    assert "verify" in done.stdout
    assert " z3" not in done.stderr


def test_certificates_are_written_and_hold(tmp_path):
    folder = tmp_path / "certificates"
    done = checker("verify", *FAST, *FOUNDING, "--remedy", "reap-while-paused", "--certificates", str(folder), "--json")
    assert done.returncode == 0
    report = msgspec.json.decode(done.stdout, type=Report)
    assert all(r.certificate and Path(r.certificate).is_dir() for r in report.results)
    done = checker("certify", str(folder))
    assert done.returncode == 0, done.stderr
    assert "2 certificates" in done.stdout
    smt = next(folder.glob("*/000.smt2"))
    smt.write_text(smt.read_text(encoding="utf-8").replace("(check-sat)", "", 1), encoding="utf-8")
    done = checker("certify", str(folder))
    assert done.returncode == 4
    assert "sha256 differs" in done.stderr


def test_a_manifest_that_leads_nowhere_is_no_folder_without_certificates(tmp_path):
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "manifest.json").symlink_to(tmp_path / "nowhere")
    done = checker("certify", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path / "gone" / "manifest.json") in done.stderr
