"""The runbooks: one for each alert, complete, and every command in them is one that a shell can run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from promtool import DEPLOY, ROOT

from checker.alerts import names
from checker.alerts.plan import plan
from checker.alerts.requests import COMMANDS, command
from checker.alerts.texts import FILE, RunbookError, runbook_texts
from spec.errors import UnknownNameError

FOLDER = DEPLOY / "runbooks"
ALERTS = [alert.name for alert in plan().alerts]
SECTIONS = ["What it means", "What is lost if you ignore it", "How to confirm it", "What to do now"]
ENDPOINTS = {
    "metrics", "server_info", "model_info", "flush_cache", "pause_generation", "continue_generation", "abort_request",
    "update_weights_from_disk", "update_weight_version",
}  # fmt: skip
ONE = """
[steps]
shared = [{ say = "first" }, { use = "inner" }]
inner = [{ say = "second", run = ["flush"] }]
[alerts.A]
means = "m"
lost = "l"
confirm = [{ use = "shared" }]
now = [{ say = "s", run = ["series stuck", "ls -l"] }]
good = []
"""


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert sorted(runbook_texts()) == sorted(ALERTS)
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted([*ALERTS, "README"])
    constants = {value for name, value in vars(names).items() if name.isupper()}
    assert constants == {name for name in ALERTS if not name.endswith("Violated")}


@pytest.mark.parametrize("name", ALERTS)
def test_a_runbook_is_complete(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    ledgers = ["The ledgers"] if runbook_texts()[name].ledgers else []
    assert headings == [*SECTIONS, "How to repair it for good", *ledgers, "The rule"]
    for heading in headings:
        assert text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (FOLDER / target).exists()


def blocks(name: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (FOLDER / f"{name}.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ALERTS)
def test_a_shell_parses_every_command_and_the_requests_are_known(name: str) -> None:
    for block in blocks(name):
        done = subprocess.run(["/bin/bash", "-n", "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (block, done.stderr)
        assert set(re.findall(r"\$ENGINE/(\w+)", block)) <= ENDPOINTS


def test_a_command_that_a_shell_does_not_parse_is_found() -> None:
    broken = COMMANDS["continue"].removesuffix("'")
    assert subprocess.run(["/bin/bash", "-n", "-c", broken], capture_output=True, check=False).returncode == 2


def test_shared_steps_and_names_of_requests_are_put_in_place() -> None:
    book = runbook_texts(ONE)["A"]
    assert [(step.text, step.commands) for step in book.confirm] == [("first", ()), ("second", (COMMANDS["flush"],))]
    assert book.now[0].commands == ("curl -fsS \"$ENGINE/metrics\" | grep -E '^quiesce_(stuck)'", "ls -l")


def test_names_that_do_not_exist_are_errors_with_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown request 'flus'; did you mean 'flush'"):
        command("flus")
    with pytest.raises(UnknownNameError, match=r"unknown shared step 'inside'(.|\n)*valid names: inner, shared"):
        runbook_texts(ONE.replace('use = "inner"', 'use = "inside"'))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('lost = "l"', "", "missing required field `lost`"),
        ('lost = "l"', 'lots = "l"', "`lots`"),
        ("good = []", "good = 7", "Expected `array`"),
        ("[steps]", "[steps", FILE.name),
    ],
)
def test_a_runbook_that_cannot_be_read_says_which_key(old: str, new: str, says: str) -> None:
    with pytest.raises(RunbookError) as caught:
        runbook_texts(ONE.replace(old, new))
    assert says in str(caught.value)


def test_without_the_libraries_it_says_what_to_install() -> None:
    hide = "import sys; sys.modules['yaml'] = None; from checker.cli import main; main(['rules', '--check'])"
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "in the checkout, pip install '.[alerts]'" in done.stderr
