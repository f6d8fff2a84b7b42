"""deploy/ci/github-actions.yml: a valid workflow, its steps run here as they are written, and it fails well."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "ci" / "github-actions.yml"
WORKFLOW = yaml.safe_load(FILE.read_text(encoding="utf-8"))
JOB = WORKFLOW["jobs"]["verify"]
FOUNDING = "--profile sglang-0.5.23 --loop normal --mode retract --property paused-flush-succeeds"
UPLOADED = ("quiesce.json", "quiesce.html", "quiesce.sarif", "quiesce.xml")


def check_workflow(path):
    program = Path(sys.executable).parent / "check-jsonschema"
    command = [program, "--builtin-schema", "vendor.github-workflows", path]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


class Runner:
    """Runs the steps with a `run` as GitHub does: a shell that stops at the first failure, in one folder."""

    def __init__(self, folder, **environment):
        self.folder, self.summary, self.codes = folder, folder / "summary.md", {}
        self._environment = (
            {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder), "PIP_NO_INDEX": "1"}
            | WORKFLOW["env"]
            | environment
            | {"GITHUB_STEP_SUMMARY": str(self.summary)}
        )
        self.output = ""

    def run(self):
        for step in JOB["steps"]:
            if "run" in step and self._wanted(step):
                self.codes[step["name"]] = self._code(step["run"])
        return self

    def _wanted(self, step):
        """The one condition that steps with a `run` have: go on after a failure, but not where nothing was verified."""
        if "if" in step:
            assert step["if"] == "${{ !cancelled() && steps.verify.outcome != 'skipped' }}"
            return "Verify" in self.codes
        return not any(self.codes.values())

    def _code(self, script):
        (self.folder / "step.sh").write_text(script, encoding="utf-8")
        done = subprocess.run(
            [shutil.which("bash"), "--noprofile", "--norc", "-eo", "pipefail", "step.sh"],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        self.output += done.stdout + done.stderr
        return done.returncode


def test_it_is_a_workflow_by_githubs_own_schema(tmp_path):
    done = check_workflow(FILE)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(FILE.read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")
    assert check_workflow(broken).returncode == 1


def test_it_may_read_and_upload_and_nothing_else():
    assert WORKFLOW["permissions"] == {}
    assert JOB["permissions"] == {"contents": "read", "security-events": "write"}
    used = [step["uses"].partition("@")[0] for step in JOB["steps"] if "uses" in step]
    assert used == [
        "actions/checkout",
        "actions/setup-python",
        "github/codeql-action/upload-sarif",
        "actions/upload-artifact",
    ]
    # What comes from outside reaches a shell through the environment only.
    assert not [step for step in JOB["steps"] if "${{" in step.get("run", "")]


def test_what_it_uploads_is_what_the_steps_write():
    (upload,) = [step for step in JOB["steps"] if step.get("uses", "").startswith("actions/upload-artifact")]
    (scanning,) = [step for step in JOB["steps"] if "upload-sarif" in step.get("uses", "")]
    assert tuple(upload["with"]["path"].split()) == UPLOADED
    assert scanning["with"]["sarif_file"] in UPLOADED
    for step in (upload, scanning):
        assert step["if"].startswith("${{ !cancelled() && hashFiles(")


def test_a_refutation_fails_it_after_everything_is_written(tmp_path):
    run = Runner(tmp_path, CHECKER_OPTIONS=FOUNDING).run()
    assert run.codes == {"Install": 0, "Verify": 1, "Tell": 0}, run.output
    assert [name for name in UPLOADED if (tmp_path / name).stat().st_size] == list(UPLOADED)
    sarif = json.loads((tmp_path / "quiesce.sarif").read_text(encoding="utf-8"))
    assert {r["ruleId"] for r in sarif["runs"][0]["results"]} == {"paused-flush-succeeds"}
    suites = ET.parse(tmp_path / "quiesce.xml").getroot()  # noqa: S314 - our own file
    assert len(suites.findall(".//failure")) == 2
    summary = run.summary.read_text(encoding="utf-8")
    assert "### checker verify: refuted" in summary
    assert "- 2 refuted" in summary


def test_a_proof_passes(tmp_path):
    run = Runner(tmp_path, CHECKER_OPTIONS=f"{FOUNDING} --remedy reap-while-paused").run()
    assert run.codes == {"Install": 0, "Verify": 0, "Tell": 0}, run.output
    assert "- 2 proved" in run.summary.read_text(encoding="utf-8")


def test_what_has_no_meaning_there_does_not_pass(tmp_path):
    run = Runner(tmp_path, CHECKER_OPTIONS=FOUNDING.replace("retract", "abort")).run()
    assert run.codes == {"Install": 0, "Verify": 3, "Tell": 0}, run.output
    assert "### checker verify: not-applicable" in run.summary.read_text(encoding="utf-8")


def test_bad_input_fails_it_and_nothing_is_uploaded(tmp_path):
    run = Runner(tmp_path, CHECKER_OPTIONS="--profile sglang-0.5.24").run()
    assert run.codes == {"Install": 0, "Verify": 2, "Tell": 0}
    assert "did you mean 'sglang-0.5.23'?" in run.output
    assert not [name for name in UPLOADED if name != "quiesce.json" and (tmp_path / name).exists()]


def test_where_it_cannot_be_installed_nothing_is_verified(tmp_path):
    run = Runner(tmp_path, QUIESCE_PACKAGE="./no-such-wheel.whl").run()
    assert run.codes["Install"] != 0
    assert list(run.codes) == ["Install"]


def test_its_own_options_are_options_of_the_command():
    options = WORKFLOW["env"]["CHECKER_OPTIONS"].split()
    command = [sys.executable, "-m", "checker", "verify", *options, "--property", "versions-agree"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
