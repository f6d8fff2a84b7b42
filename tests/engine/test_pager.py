"""From a violation in the real engine to a page, and from the page to the cause: real Prometheus, real Alertmanager.

The engine keeps its port when it is restarted, so that all of it is one target.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import requests
from harness import PROMPT, REMEDY, WAIT_SECONDS, Engine, Models, Reply, Setup, Stream, prompt, wait_until
from pager import BOUND_SECONDS, HOST, RECENT, Pager, paging

from checker.alerts.generate import generated
from checker.alerts.monitoring import ENGINE_SERIES
from checker.alerts.plan import plan
from checker.alerts.requests import COMMANDS, command
from checker.doctor.fetch import Limits
from checker.doctor.visit import visit
from engine_hooks.sglang.testbed.server import Server, ServerOptions, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checker.doctor.results import Diagnosis
    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
STUCK = "FlushCannotSucceed"
LONG = 1500
"""Tokens of a request that is not to end by itself while a test looks."""
REFUSED = {"UpdateFlushesViolated", "VersionsAgreeViolated", "WeightUpdateFailed"}
PROVOKED = {STUCK, "PausedFlushSucceedsViolated", *REFUSED}
"""What the founding case fires: that no flush can succeed, that one could not, and what the trainer was answered."""


@contextmanager
def serving(folder: Path, model: Path, warm: Warm, port: int, remedies: str) -> Iterator[Engine]:
    setup = Setup("overlap", "none", remedies)
    folder.mkdir()
    options = ServerOptions(
        model,
        folder,
        arguments=setup.arguments,
        environment=setup.environment,
        port=port,
        start_seconds=480,
        warm=warm,
    )
    with Server(options) as server:
        yield Engine(server, model)


class Stage:
    """One target: its engine, started when it is asked for, and whoever is paged."""

    def __init__(self, folder: Path, models: Models, warm: Warm, port: int, pager: Pager) -> None:
        self.models, self.pager, self._warm = models, pager, warm
        self._folder, self._port = folder, port
        self._running: tuple[str, Engine] | None = None
        self._open = ExitStack()
        self._started = 0

    def engine(self, remedies: str = "") -> Engine:
        """The engine with these remedies; the one that runs is ended first if it has others."""
        if self._running is None or self._running[0] != remedies:
            self.end()
            self._started += 1
            folder = self._folder / f"engine-{self._started}"
            engine = self._open.enter_context(serving(folder, self.models.old, self._warm, self._port, remedies))
            self._running = (remedies, engine)
        return self._running[1]

    def end(self) -> None:
        self._running = None
        self._open.close()


@pytest.fixture(scope="module")
def stage(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder, port = tmp_path_factory.mktemp("pager"), free_port()
    with paging(folder, f"{HOST}:{port}") as pager:
        one = Stage(folder, models, warm, port, pager)
        try:
            yield one
        finally:
            one.end()


def update(engine: Engine, model: Path, version: str) -> bool:
    body = {"model_path": str(model), "flush_cache": True, "weight_version": version}
    answer = requests.post(engine.server.url + "/update_weights_from_disk", json=body, timeout=WAIT_SECONDS)
    return bool(answer.json()["success"])


def provoke(engine: Engine, model: Path, version: str) -> float:
    """The founding case: a write-through in flight at the pause, then an update. Returns when it was answered (s)."""
    engine.rank.d2h.hold()
    stream = engine.generate(PROMPT, 200)
    engine.rank.d2h.wait_in_flight()
    stream.wait_tokens(1)
    engine.pause("retract")
    assert not update(engine, model, version)
    return time.monotonic()


def diagnosis(engine: Engine) -> Diagnosis:
    (found,) = visit([engine.server.url], Limits(30)).engines
    return found


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n  {text}")


def commands_of(runbook: str) -> list[str]:
    """The commands under `What to do now`, in order."""
    text = (ROOT / "deploy" / "runbooks" / f"{runbook}.md").read_text()
    section = text.partition("## What to do now")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line.strip() for block in blocks for line in block.strip().splitlines()]


def run(line: str, engine: Engine) -> str:
    """What a command of a runbook prints."""
    environment = {"ENGINE": engine.server.url, "PATH": "/usr/bin:/bin"}
    command = ["/bin/bash", "-c", line]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90, env=environment)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


def test_a_run_without_provocation_pages_nobody(stage: Stage) -> None:
    engine, pager = stage.engine(), stage.pager
    for model in (stage.models.new, stage.models.old):
        engine.ask(PROMPT)
        engine.settle()
        engine.pause("retract")
        assert engine.update_from_disk(model).success
        engine.continue_()
    pager.wait_scrapes(3)
    assert pager.pages == []
    assert pager.query("ALERTS") == []
    found = diagnosis(engine)
    assert (found.state, found.engine, found.ranks, len(found.watched)) == ("healthy", "sglang 0.5.23", 1, 17)
    assert list(found.weight_loads) == [2]


def test_the_rules_are_the_committed_ones_but_for_one_duration(stage: Stage) -> None:
    committed = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text()
    assert generated(RECENT)["prometheus/rules.yaml"] == re.sub(
        r"(\[|offset )5m\b", rf"\g<1>{RECENT.durations.recent}s", committed
    )
    loaded = requests.get(f"{stage.pager.url}/api/v1/rules", timeout=30).json()["data"]["groups"]
    assert sum(len(group["rules"]) for group in loaded) == 34


def _names(pager: Pager) -> set[str]:
    found = pager.query('{__name__=~"quiesce_.+|instance:.+"}')
    return {series["metric"]["__name__"] for series in found}


def test_the_dashboard_and_the_rules_query_what_the_engine_exports(stage: Stage) -> None:
    stage.engine()
    pager = stage.pager
    pager.wait_scrapes(1)
    # A rate has a value from the second scrape of its series on.
    recorded = {rule.name for rule in plan().recordings}
    wait_until(lambda: recorded <= _names(pager), "every recording rule has a value")
    names = _names(pager)
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "quiesce.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for variable, value in (("$__rate_interval", "10s"), ("$job", ".*"), ("$instance", ".*")):
        queries = [query.replace(variable, value) for query in queries]
    queries += [rule.expr for rule in (*plan().alerts, *plan().recordings)]
    for query in queries:
        pager.query(query)
        asked = set(re.findall(r"\b(?:quiesce_|instance:quiesce_)[a-z0-9_:]+", query))
        assert asked
        assert asked <= names, asked - names
    # A name that nothing exports is found to be one.
    assert "quiesce_moons" not in names
    # The engine's own series, by which one without Quiesce is known.
    assert pager.query(f"count({{{ENGINE_SERIES}}})")[0]["value"][1] == "1"


def test_every_request_of_the_runbooks_is_one_that_the_engine_answers(stage: Stage) -> None:
    engine = stage.engine()
    order = [
        "pause",
        "abort-all",
        "flush-until-done",
        "continue",
        "flush",
        "pause-abort",
        "continue",
        "abort-and-flush",
    ]
    answers = {name: run(COMMANDS[name], engine) for name in order}
    assert all("Cache flushed" in answers[name] for name in ("flush", "flush-until-done", "abort-and-flush"))
    assert run(COMMANDS["tokenizer-version"], engine).strip() == "default"
    assert run(COMMANDS["scheduler-versions"], engine).strip() == "['default']"
    assert '"success":true' in run(with_weights(COMMANDS["update"], stage.models.old, "v1"), engine)
    assert run(COMMANDS["scheduler-versions"], engine).strip() == "['v1']"
    assert '"success":true' in run(COMMANDS["set-version"].replace("VERSION", "default"), engine)
    assert run(COMMANDS["tokenizer-version"], engine).strip() == "default"
    # That of the doctor is in the test of the founding case.
    assert {*order, "tokenizer-version", "scheduler-versions", "update", "doctor", "set-version"} == set(COMMANDS)
    shown = run(command("series stuck|paused"), engine)
    assert 'quiesce_stuck{dp_rank="0",pp_rank="0",property="paused-flush-succeeds",tp_rank="0"} 0.0' in shown


def with_weights(line: str, weights: Path, version: str) -> str:
    """A command with what a person puts in."""
    return line.replace("PATH OF THE WEIGHTS", str(weights)).replace("VERSION", version)


def running_request(engine: Engine) -> Stream:
    """A request that decodes, with no copy in flight."""
    stream = engine.generate(PROMPT, LONG)
    stream.wait_tokens(1)
    engine.rank.wait_idle()
    stream.wait_tokens(len(stream.output_ids) + 4)
    return stream


def test_what_a_pause_in_place_keeps_is_retracted_and_goes_on(stage: Stage) -> None:
    engine = stage.engine()
    stream = running_request(engine)
    engine.pause("in_place")
    assert not engine.flush().success
    found = diagnosis(engine)
    assert found.flush is not None
    assert (found.state, found.flush.can_succeed) == ("cannot tell", "unknown")
    assert [blocker.name for blocker in found.flush.blockers] == ["running"]
    pause, flush = (COMMANDS[name] for name in ("pause", "flush-until-done"))
    assert [pause, flush] == [line for line in commands_of("FlushBlockedTooLong") if line in (pause, flush)][-2:]
    run(pause, engine)
    assert "Cache flushed" in run(flush, engine)
    engine.continue_()
    stream.result()


def test_an_abort_ends_what_a_pause_in_place_keeps_only_after_the_resume(stage: Stage) -> None:
    engine = stage.engine()
    stream = running_request(engine)
    engine.pause("in_place")
    run(COMMANDS["abort-all"], engine)
    assert [engine.flush().success for _ in range(3)] == [False] * 3
    assert stream.running
    run(COMMANDS["continue"], engine)
    assert "Cache flushed" in run(COMMANDS["abort-and-flush"], engine)
    wait_until(lambda: not stream.running, "the request has ended")
    assert len(stream.output_ids) < LONG


def test_a_flush_without_a_time_out_is_answered_after_the_one_that_waits(stage: Stage) -> None:
    engine = stage.engine()
    stream = running_request(engine)
    engine.pause("retract")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(engine.flush, 3)
        engine.wait_metric(1, "quiesce_flush_blocked", ledger="waiting")
        assert "Cache flushed" in run(COMMANDS["flush"], engine)
        assert waits.result() == Reply(success=False, message="Timed out waiting for idle state.")
        # What waits is ended, and the flush that waits for it is granted.
        waits = pool.submit(engine.flush, 60)
        engine.wait_metric(1, "quiesce_flush_blocked", ledger="waiting")
        run(COMMANDS["abort-all"], engine)
        assert waits.result().success
    engine.continue_()
    wait_until(lambda: not stream.running, "the request has ended")
    stage.pager.wait_scrapes(2)
    wait_until(lambda: not stage.pager.firing(), "all are resolved")


def test_the_founding_case_pages_in_time_and_its_runbook_ends_it(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, pager = stage.engine(), stage.pager
    before = time.monotonic()
    provoked = provoke(engine, stage.models.new, "v2")
    pages = {name: pager.wait_page(name, before) for name in PROVOKED}
    took = {name: page.at - provoked for name, page in pages.items()}
    for name, seconds in sorted(took.items()):
        say(capsys, f"{name}: paged {seconds:.1f} s after the update was refused (bound {BOUND_SECONDS} s)")
    assert max(took.values()) <= BOUND_SECONDS
    assert pager.firing() == PROVOKED
    page = pages[STUCK]
    assert page.labels["severity"] == "critical"
    assert page.labels["instance"] == pager.target
    assert page.annotations["summary"] == f"{pager.target}: no flush can succeed until it is resumed."
    assert (ROOT / page.annotations["runbook_url"]).exists()

    the_doctor_knows(engine, time.monotonic() - provoked)
    engine.rank.d2h.release()
    resumed = time.monotonic()
    follow_the_runbook(engine, stage.models.new, "v2")
    resolved = pager.wait_page(STUCK, resumed, firing=False)
    say(capsys, f"{STUCK}: resolved {resolved.at - resumed:.1f} s after its runbook was begun")
    wait_until(lambda: not pager.firing(), "all are resolved")
    # Resumed by the runbook, nothing was served from the old weights' cache.
    assert "NoStaleKvViolated" not in {page.name for page in pager.pages}


def the_doctor_knows(engine: Engine, paused: float) -> None:
    """Of an engine in the founding case that has been paused for so long (s)."""
    found = diagnosis(engine)
    assert (found.state, found.runbooks[0]) == ("stuck", STUCK)
    assert found.flush is not None
    assert (found.flush.can_succeed, [b.name for b in found.flush.blockers]) == ("no", ["write_through"])
    # What the monitor exports of the versions is what scheduler and tokenizer themselves answer.
    assert found.versions == {"scheduler": ("v2",), "tokenizer": ("default",)}
    assert engine.metrics().value("quiesce_version_mismatch") == 1
    assert engine.metrics().value("quiesce_update_start_timestamp_seconds") == 0
    assert found.paused_seconds is not None
    # The engine's Date has whole seconds.
    assert abs(found.paused_seconds - paused) < 3
    command = [sys.executable, "-c", "from checker.cli import main; main()", "doctor", "--url", engine.server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert done.returncode == 1
    assert "held back by write_through" in done.stdout


def follow_the_runbook(engine: Engine, weights: Path, version: str) -> None:
    """The commands of `What to do now`, as they are written."""
    commands = commands_of(STUCK)
    assert len(commands) == 4
    answers = [run(with_weights(line, weights, version), engine) for line in commands]
    assert "Cache flushed" in answers[2]
    assert '"success":true' in answers[3]
    assert engine.metrics().value("quiesce_version_mismatch") == 0
    assert diagnosis(engine).versions == {"scheduler": (version,), "tokenizer": (version,)}


def test_the_runbook_ends_also_what_came_during_the_pause(stage: Stage) -> None:
    engine, pager = stage.engine(), stage.pager
    before = time.monotonic()
    provoke(engine, stage.models.old, "v2b")
    pager.wait_page(STUCK, before)
    parked = engine.generate(prompt(600, 11), LONG)
    engine.rank.d2h.release()
    follow_the_runbook(engine, stage.models.old, "v2b")
    wait_until(lambda: not parked.running, "the request has ended")
    # Without the aborts it would have been answered whole, from the cache of the old weights.
    assert len(parked.output_ids) < LONG
    wait_until(lambda: not pager.firing(), "all are resolved")


def test_restarted_with_the_remedy_the_alert_is_resolved_and_stays_away(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, pager = stage.engine(), stage.pager
    before = time.monotonic()
    provoke(engine, stage.models.old, "v3")
    pager.wait_page(STUCK, before)
    ended = time.monotonic()
    engine = stage.engine(REMEDY)
    say(capsys, f"restarted with the remedy in {time.monotonic() - ended:.1f} s")
    resolved = pager.wait_page(STUCK, ended, firing=False)
    say(capsys, f"{STUCK}: resolved {resolved.at - ended:.1f} s after the restart was begun")
    assert engine.metrics().value("quiesce_remedy_active", remedy=REMEDY) == 1
    wait_until(lambda: not pager.firing(), "all are resolved")

    # The same provocation; the trainer flushes until it succeeds.
    before = time.monotonic()
    provoke(engine, stage.models.new, "v4")
    engine.rank.d2h.release()
    engine.flush_until_done()
    assert update(engine, stage.models.new, "v4")
    engine.continue_()
    # The first attempt was refused, which the remedy does not change; a busy machine pages late. Nothing was stuck.
    wait_until(lambda: pager.paged(before) >= REFUSED, "the refused update is paged")
    pager.wait_scrapes(3)
    assert pager.paged(before) == REFUSED
    assert list(diagnosis(engine).remedies) == [REMEDY]


def listening(process: psutil.Process) -> set[str]:
    return {f"{c.laddr.ip}:{c.laddr.port}" for c in process.net_connections() if c.status == "LISTEN"}


def test_all_listens_on_the_loopback(stage: Stage) -> None:
    ports = {process.name(): listening(process) for process in psutil.Process().children()}
    assert ports["prometheus"] == {stage.pager.url.removeprefix("http://")}
    assert [address.split(":")[0] for address in ports["prometheus-alertmanager"]] == [HOST]
