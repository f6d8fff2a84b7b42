"""The rules with the real promtool: they parse, fire where they should, and are silent where they should be."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from promtool import DEPLOY, ROOT, failures, promtool, selectors

from checker.alerts.conditions import CHECK, PAUSED
from checker.alerts.durations import NAMES, Durations, durations, written
from checker.alerts.generate import generated, out_of_date, write
from checker.alerts.model import Settings
from checker.alerts.names import violated
from checker.alerts.plan import plan
from engine_hooks.metrics import PREFIX, RANK_LABELS, SERIES
from engine_hooks.monitor_text import NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RULES = DEPLOY / "prometheus" / "rules.yaml"
TESTS = DEPLOY / "prometheus" / "tests"
ALERTS = {alert.name: alert for alert in plan().alerts}
FIRST_AT_1 = 'unless quiesce_violations_total{property="no-stale-kv"} offset 5m'


def test_what_is_committed_is_what_is_generated() -> None:
    assert out_of_date(generated(), DEPLOY) == []


def test_the_rules_pass_every_lint() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stderr
    assert "34 rules found" in done.stdout


def test_a_rule_written_twice_does_not_pass(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    rules["groups"][2]["rules"].append(rules["groups"][2]["rules"][0])
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yaml")).returncode == 3


def test_every_alert_fires_and_is_silent_as_its_cases_say() -> None:
    files = sorted(map(str, TESTS.glob("*.yaml")))
    assert len(files) == len(ALERTS) == 30
    done = promtool("test", "rules", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == 30


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_both_kinds_of_cases(name: str) -> None:
    fires = [case.fires is not None for case in ALERTS[name].cases]
    assert any(fires)
    assert not all(fires)


def broken(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> int:
    """How many cases of an alert fail once its rule is changed."""
    rules = yaml.safe_load(RULES.read_text())
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    kept = [rule for rule in every if "record" in rule or rule["alert"] == name]
    change(kept[-1])
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": kept}]}))
    (folder / "tests").mkdir()
    test = folder / "tests" / "one.yaml"
    test.write_text((TESTS / f"{name}.yaml").read_text())
    return failures(promtool("test", "rules", str(test)))


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_that_never_fires_fails_each_firing_case(name: str, tmp_path: Path) -> None:
    firing = sum(case.fires is not None for case in ALERTS[name].cases)
    assert broken(tmp_path, name, lambda rule: rule.update(expr="vector(0) > 1")) == firing


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_that_always_fires_fails_every_case(name: str, tmp_path: Path) -> None:
    always = {"expr": "vector(1)", "for": "0s"}
    assert broken(tmp_path, name, lambda rule: rule.update(always)) == len(ALERTS[name].cases)


def test_increase_alone_misses_a_series_that_first_appears_at_1(tmp_path: Path) -> None:
    def only_increase(rule: dict[str, Any]) -> None:
        first, _, second = rule["expr"].partition("\nor\n")
        assert FIRST_AT_1 in second
        rule["expr"] = first

    # Nor a violation while the engine was not scraped.
    assert broken(tmp_path, "NoStaleKvViolated", only_increase) == 2


def test_the_budget_of_the_ranks_together_misses_one_slow_rank_of_many(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    (recording,) = (r for r in rules["groups"][0]["rules"] if r["record"] == CHECK)
    summed = "histogram_quantile(0.99, sum without (tp_rank, pp_rank, dp_rank) (rate("
    recording["expr"] = f"{summed}quiesce_check_duration_seconds_bucket[10m])))"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "tests").mkdir()
    test = tmp_path / "tests" / "one.yaml"
    test.write_text((TESTS / "QuiesceChecksOverBudget.yaml").read_text())
    assert failures(promtool("test", "rules", str(test))) == 1


@pytest.mark.parametrize("name", [name for name, alert in ALERTS.items() if alert.wait])
def test_an_alert_on_a_duration_without_its_slack_fails_a_silent_case(name: str, tmp_path: Path) -> None:
    assert broken(tmp_path, name, lambda rule: rule.pop("for")) >= 1


def test_each_watched_property_has_an_alert_and_violations_do_not_wait() -> None:
    names = {violated(property_id) for property_id in NEEDS}
    assert {name for name in ALERTS if name.endswith("Violated")} == names
    assert not any(ALERTS[name].wait for name in names)


@pytest.mark.parametrize("name", ALERTS)
def test_conventions(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"([A-Z][a-z]+)+", name)
    assert alert.severity in ("critical", "warning")
    assert alert.summary.startswith("{{ $labels.instance }}: ")
    assert (DEPLOY / "runbooks" / f"{name}.md").exists()
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    fires = [case.fires for case in alert.cases if case.fires is not None]
    assert all(used <= {"instance", *labels} for labels in fires)


def test_recording_rules_are_named_level_metric_operations() -> None:
    for rule in plan().recordings:
        assert re.fullmatch(r"instance:quiesce_[a-z_]+:[a-z0-9_]+", rule.name)


def series_known() -> dict[str, set[str]]:
    """Every series that exists, with its labels: what the engine exports, and what the rules record."""
    target, ranks = {"job", "instance"}, set(RANK_LABELS)
    # The engine's own series is asked for by a pattern of its name.
    known: dict[str, set[str]] = {"sglang[:_]max_total_num_tokens": target}
    for name, series in SERIES.items():
        for suffix in ("_bucket", "_sum", "_count") if series.kind == "histogram" else ("",):
            known[f"{PREFIX}{name}{suffix}"] = {*target, *ranks, *series.labels, *(["le"] if suffix else [])}
    return known | {rule.name: target | ({"process"} if rule.name == PAUSED else set()) for rule in plan().recordings}


@pytest.mark.parametrize("rule", [*plan().recordings, *plan().alerts], ids=lambda rule: rule.name)
def test_a_rule_names_only_series_and_labels_that_exist(rule: Any) -> None:
    known = series_known()
    found = list(selectors(rule.expr))
    assert found
    for selector in found:
        assert selector.name in known
        assert {name for name, _ in selector.labels} <= known[selector.name]


def test_settings_of_a_site_reach_the_rules() -> None:
    chosen = Settings("http://runbooks/", Durations(recent=60, paused=90))
    text = generated(chosen)["prometheus/rules.yaml"]
    assert "runbook_url: http://runbooks/FlushCannotSucceed.md" in text
    assert "offset 1m" in text
    assert text.count('instance:quiesce_paused_seconds:max{process="scheduler"} > 90') == 2
    assert "paused for more than 90 s." in text


SITES = {
    "mixed": ["recent=20m", "settle=30s", "unwatched=15m", "paused=100s", "update=20m", "check=2ms", "slack=2m"],
    "short": [*(f"{name}=10s" for name in NAMES if name != "check"), "check=0.02ms"],
}
SET = (
    "NoStaleKvViolated", "FlushBlockedTooLong", "QuiesceSpecDiffersAcrossRanks", "EnginePausedTooLong",
    "WeightUpdatePendingTooLong", "QuiesceChecksOverBudget",
)  # fmt: skip
"""An alert for each duration, in the order of NAMES; the slack is in two of them."""


@pytest.mark.parametrize("name", SITES)
def test_with_the_durations_of_a_site_the_rules_pass_their_tests_too(name: str, tmp_path: Path) -> None:
    given = [argument for text in SITES[name] for argument in ("--duration", text)]
    done = checker("rules", "--into", str(tmp_path), *given)
    assert (done.returncode, done.stdout) == (0, f"63 files written below {tmp_path}\n")
    assert (tmp_path / "prometheus" / "rules.yaml").read_text() != RULES.read_text()
    tests = tmp_path / "prometheus" / "tests"
    done = promtool("test", "rules", *(str(tests / f"{alert}.yaml") for alert in SET))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(SET)
    # The committed rules have other durations, which these cases notice.
    (tmp_path / "prometheus" / "rules.yaml").write_text(RULES.read_text())
    done = promtool("test", "rules", str(tests / "EnginePausedTooLong.yaml"))
    assert done.returncode == 1
    assert checker("rules", "--check", "--into", str(tmp_path), *given).returncode == 1


def test_the_help_names_each_duration_with_its_default() -> None:
    found = re.findall(r"^ +(\w+=[\d.]+\w+)  ", checker("rules", "--help").stdout, re.MULTILINE)
    assert [text.partition("=")[0] for text in found] == list(NAMES)
    assert durations(found) == Durations()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pause=3m", "unknown duration 'pause'; did you mean 'paused'?"),
        ("paused=3", "duration 'paused=3' is not NAME=VALUE"),
        ("paused=1s", "is not of whole seconds from 10s to 30d"),
        ("paused=10500ms", "is not of whole seconds from 10s to 30d"),
        ("paused=9999999999d", "is not of whole seconds from 10s to 30d"),
        ("check=1s", "is not from 0.02ms to 9ms"),
        ("paused=-5m", "is not NAME=VALUE"),
        ("paused", "is not NAME=VALUE"),
        ("paused=٣m", "is not NAME=VALUE"),
    ],
)
def test_a_duration_that_no_alert_can_have_is_bad_input(text: str, says: str, tmp_path: Path) -> None:
    done = checker("rules", "--into", str(tmp_path), "--duration", text)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("1h30m", 5400), ("0.5h", 1800), ("1d", 86400)]
)
def test_durations_are_read_and_written(text: str, seconds: int) -> None:
    assert durations([f"paused={text}"]).paused == seconds
    assert durations([f"paused={text}", "paused=1m"]).paused == 60
    assert durations([f"paused={written(seconds)}"]).paused == seconds


def checker(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from checker.cli import main; main(prog_name='checker')", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd)


def test_check_names_what_is_out_of_date(tmp_path: Path) -> None:
    write(generated(), tmp_path)
    assert checker("rules", "--check", "--into", str(tmp_path)).returncode == 0
    (tmp_path / "runbooks" / "FlushCannotSucceed.md").unlink()
    (tmp_path / "runbooks" / "OldAlert.md").write_text("<!-- Generated by `checker rules`; do not edit. -->\n# Old\n")
    (tmp_path / "runbooks" / "Mine.md").write_text("of somebody else")
    (tmp_path / "prometheus" / "rules.yaml").write_text("groups: []\n")
    done = checker("rules", "--check", "--into", str(tmp_path))
    assert done.returncode == 1
    assert [line.split(" is out of date")[0].removeprefix(f"{tmp_path}/") for line in done.stderr.splitlines()] == [
        "prometheus/rules.yaml",
        "runbooks/FlushCannotSucceed.md",
        "runbooks/OldAlert.md",
    ]
    done = checker("rules", "--into", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"63 files written below {tmp_path}\n")
    assert not (tmp_path / "runbooks" / "OldAlert.md").exists()
    assert (tmp_path / "runbooks" / "Mine.md").read_text() == "of somebody else"
    assert out_of_date(generated(), tmp_path) == []


def test_a_folder_that_is_not_there_or_no_folder_is_exit_code_2(tmp_path: Path) -> None:
    done = checker("rules", "--check", "--into", "nowhere")
    assert done.returncode == 2
    assert "no folder 'nowhere' to check" in done.stderr
    (tmp_path / "file").write_text("")
    done = checker("rules", "--into", str(tmp_path / "file"))
    assert done.returncode == 2
    assert "give another folder with --into" in done.stderr
