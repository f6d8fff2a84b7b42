"""SARIF and JUnit: valid by their own schemas, true to the results, and never a pass for what is not proved."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema
from strangers import PLACE, hostile_report, made_up, report_of

from checker.report.junit import junit
from checker.report.places import Place, Source, source_of_engine
from checker.report.sarif import Writer
from checker.results import EngineInfo, Trace, TraceStep
from spec.profile import load_profile

SCHEMAS = Path(__file__).parent / "schemas"
LOOPS = {name: loop.source for name, loop in load_profile("sglang-0.5.23").loops.items()}
HOSTILE = ["<script>&'\"]]>", "\0\x1b[2J\ufffe\ud800", "../../etc/passwd.py:x", "%", "", "{mode}", "a" * 5000]


@pytest.fixture(scope="module")
def sarif_problems():
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker()).iter_errors


@pytest.fixture(scope="module")
def junit_schema():
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - we wrote it


def run_of(report, source=None):
    (run,) = json.loads(Writer(source or Source(), LOOPS).text(report))["runs"]
    return run


def test_sarif_of_the_bundled_profile_is_valid(report, sarif_problems):
    log = json.loads(Writer(source_of_engine(report.engine), LOOPS).text(report))
    assert list(sarif_problems(log)) == []


def test_the_schema_tells_wrong_sarif_from_right(report, sarif_problems):
    log = json.loads(Writer(Source(), LOOPS).text(report))
    log["runs"][0]["results"][0]["kind"] = "refuted"
    log["runs"][0]["results"][1]["surprise"] = 1
    del log["runs"][0]["results"][2]["message"]
    assert len(list(sarif_problems(log))) == 3


def test_each_refutation_is_one_result_with_its_reason_and_the_way_there(report):
    run = run_of(report)
    wrong = {(r.property, r.reason) for r in report.results if r.verdict == "refuted"}
    assert {r["ruleId"] for r in run["results"]} == {name for name, _ in wrong}
    assert len(run["results"]) == len(wrong)
    assert {(r["kind"], r["level"]) for r in run["results"]} == {("fail", "error")}
    (founding,) = [
        r
        for r in run["results"]
        if "paused-flush-succeeds: write_through is reaped by no paused step" in r["message"]["text"]
    ]
    assert "(1 configuration: loop normal, mode retract, storage none)" in founding["message"]["text"]
    (flow,) = founding["codeFlows"]
    steps = flow["threadFlows"][0]["locations"]
    places = [s["location"]["logicalLocations"][0]["fullyQualifiedName"] for s in steps]
    assert places[1:4] == [
        "srt/managers/scheduler.py:event_loop_normal",
        "srt/managers/scheduler.py:pause_generation",
        "srt/managers/scheduler.py:flush_cache",
    ]
    assert places[-1] == "srt/mem_cache/unified_radix_cache.py:writing_check"
    assert (
        steps[3]["location"]["message"]["text"] == "trainer: flush_cache is refused: the gate is closed [flush_wanted]"
    )
    assert [s["executionOrder"] for s in steps] == [1, 2, 3, 4, 5, 6]
    assert steps[-1]["importance"] == "essential"
    assert founding["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "srt/mem_cache/unified_radix_cache.py",
        "uriBaseId": "ENGINE",
    }
    assert run["properties"]["verdicts"]["proved"] == sum(r.verdict == "proved" for r in report.results)


@pytest.mark.parametrize("verdict", ["unknown", "bounded"])
def test_what_is_not_proved_is_open_and_has_a_place(verdict, sarif_problems):
    report = report_of(made_up(verdict), made_up("proved"), verdict=verdict)
    (result,) = run_of(report)["results"]
    assert (result["kind"], result["level"]) == ("open", "none")
    assert result["message"]["text"].startswith(f"idle-is-true: {verdict}: the solver gave up")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "srt/managers/scheduler.py"
    (note,) = run_of(report)["invocations"][0]["toolExecutionNotifications"]
    assert note["level"] == "error"
    assert list(sarif_problems(json.loads(Writer(Source(), LOOPS).text(report)))) == []


def test_an_interrupted_run_did_not_succeed():
    run = run_of(report_of(made_up("proved"), verdict="unknown", complete=False))
    assert run["invocations"][0]["executionSuccessful"] is False


def test_the_same_finding_keeps_its_fingerprint(report):
    first, again = run_of(report), run_of(report)
    prints = [r["partialFingerprints"]["quiesce/v1"] for r in first["results"]]
    assert prints == [r["partialFingerprints"]["quiesce/v1"] for r in again["results"]]
    assert len(set(prints)) == len(prints)


def test_lines_are_those_of_the_installed_engine(tmp_path):
    (tmp_path / "srt").mkdir()
    (tmp_path / "srt" / "a.py").write_text("class A:\n    def f(self):\n        self.x = 1\n", encoding="utf-8")
    (tmp_path / "srt" / "broken.py").write_text("def f(:\n", encoding="utf-8")
    source = Source(tmp_path)
    assert source.place("srt/a.py:f") == Place("srt/a.py", "f", 2)
    assert source.place("srt/a.py:x") == Place("srt/a.py", "x", 3)
    assert source.place("srt/a.py:gone") == Place("srt/a.py", "gone", None)
    assert source.place("srt/broken.py:f") == Place("srt/broken.py", "f", None)
    assert source.place("srt/a.py") == Place("srt/a.py", None, None)
    assert source.place("../srt/a.py:f") is None
    assert source.place("srt/../../a.py:f") is None
    assert source.place("(rejected design: a blocking drain)") is None


def test_another_version_s_lines_are_not_given():
    assert source_of_engine(EngineInfo("pytest", "0.0.1", "p", "bundled", [])) == Source()
    assert source_of_engine(EngineInfo("no-such-engine", "1", "p", "bundled", [])) == Source()
    assert source_of_engine(EngineInfo("", "1", "p", "bundled", [])) == Source()


def test_every_place_in_the_bundled_profile_has_a_line_in_the_real_engine(report):
    try:
        distribution("sglang")
    except PackageNotFoundError:
        pytest.skip("SGLang is not installed; make test installs it")
    source = source_of_engine(report.engine)
    steps = [s.engine for r in report.results if r.trace for s in r.trace.steps]
    functions = [r.engine_function for r in report.results if r.engine_function]
    missing = {e for e in (*steps, *functions, *LOOPS.values()) if ":" in e and not source.place(e).line}
    assert missing == set()


def test_junit_of_the_bundled_profile_is_valid(report, junit_schema):
    root = parsed(junit(report))
    assert junit_schema.is_valid(root)
    assert len(root.findall(".//testcase")) == len(report.results)
    counts = {kind: len(root.findall(f".//testcase/{kind}")) for kind in ("failure", "error", "skipped")}
    assert counts["failure"] == sum(r.verdict == "refuted" for r in report.results)
    assert counts["skipped"] == sum(r.verdict == "not-applicable" for r in report.results)
    (suite,) = root
    assert {k: int(suite.get(k)) for k in ("failures", "errors", "skipped")} == {
        "failures": counts["failure"], "errors": 0, "skipped": counts["skipped"],
    }  # fmt: skip
    assert "and so it stays" in root.find(".//failure").text


def test_the_schema_tells_wrong_junit_from_right(report, junit_schema):
    root = parsed(junit(report))
    root[0].set("time", "0.12345")
    assert not junit_schema.is_valid(root)
    root = parsed(junit(report))
    ET.SubElement(root.find(".//testcase"), "passed")
    assert not junit_schema.is_valid(root)


@pytest.mark.parametrize("verdict", ["unknown", "bounded"])
def test_what_is_not_proved_never_passes(verdict, junit_schema):
    root = parsed(junit(report_of(made_up(verdict), verdict=verdict)))
    assert junit_schema.is_valid(root)
    assert root[0].get("errors") == "1"
    assert root.find(".//error").get("type") == verdict


@pytest.mark.parametrize("results", [(), (made_up("proved"),)])
def test_an_interrupted_run_never_passes(results, junit_schema):
    root = parsed(junit(report_of(*results, verdict="unknown", complete=False)))
    assert junit_schema.is_valid(root)
    assert root.find(".//error").get("message") == "interrupted; the rest was not decided"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_break_neither_format(text, sarif_problems, junit_schema):
    report = hostile_report(text)
    assert list(sarif_problems(json.loads(Writer(Source(), {}).text(report)))) == []
    assert junit_schema.is_valid(parsed(junit(report)))


def test_a_counterexample_without_steps():
    report = report_of(made_up("refuted", trace=Trace([], None)), verdict="refuted")
    assert run_of(report)["results"][0]["codeFlows"][0]["threadFlows"][0]["locations"] == []
    assert "refuted" in junit(report)


def test_a_repeated_part_is_marked():
    steps = [TraceStep(a, "trainer", "srt/a.py:f", {}, {}) for a in ("Pause", "Continue", "Pause")]
    report = report_of(made_up("refuted", configuration=PLACE, trace=Trace(steps, 1)), verdict="refuted")
    flow = run_of(report)["results"][0]["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [s["importance"] for s in flow] == ["important", "essential", "essential", "essential"]


def verify(*arguments):
    command = [sys.executable, "-m", "checker", "verify", "--profile", "sglang-0.5.23", "--loop", "normal"]
    command += ["--mode", "retract", "--property", "idle-is-true", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_command_writes_both_beside_its_answer(tmp_path, sarif_problems, junit_schema):
    done = verify("--sarif", str(tmp_path / "s.sarif"), "--junit", str(tmp_path / "j.xml"))
    assert done.returncode == 0
    assert "2 proved" in done.stdout
    assert list(sarif_problems(json.loads((tmp_path / "s.sarif").read_text(encoding="utf-8")))) == []
    assert junit_schema.is_valid(tmp_path / "j.xml")


@pytest.mark.parametrize("option", ["--sarif", "--junit"])
@pytest.mark.parametrize("target", ["", "no/such/folder/x"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_proved(option, target, tmp_path):
    done = verify(option, f"{tmp_path}/{target}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written" in done.stderr


def test_a_full_disk_is_exit_code_2():
    done = verify("--junit", "/dev/full")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
