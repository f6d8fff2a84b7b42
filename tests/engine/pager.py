"""The real Prometheus and Alertmanager on the loopback, and a webhook that keeps what it is sent."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import requests
import yaml
from harness import wait_until

from checker.alerts.durations import Durations
from checker.alerts.generate import generated
from checker.alerts.model import Settings
from engine_hooks.sglang.testbed.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
SCRAPE_SECONDS = 2
EVALUATE_SECONDS = 1
GROUP_WAIT_SECONDS = 1
BOUND_SECONDS = 2 * SCRAPE_SECONDS + EVALUATE_SECONDS + GROUP_WAIT_SECONDS
"""Two scrape intervals, one evaluation interval and group_wait: what the project promises from violation to page."""
RECENT = Settings(durations=Durations(recent=10))
"""The committed rules but for one duration: an event that is over is to be resolved while the test looks."""


@dataclass(frozen=True)
class Page:
    """One alert of one message."""

    name: str
    firing: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    at: float
    """Our monotonic clock (s) when it arrived."""


@dataclass
class Pager:
    """What the webhook was sent, in order; and the Prometheus that it comes from."""

    url: str
    target: str
    pages: list[Page] = field(default_factory=list)

    def paged(self, since: float) -> set[str]:
        """The alerts of which a page has come since then, as firing."""
        return {page.name for page in self.pages if page.firing and page.at >= since}

    def firing(self) -> set[str]:
        """The alerts that fire, as the last message on each says."""
        last = {page.name: page.firing for page in list(self.pages)}
        return {name for name, fires in last.items() if fires}

    def wait_page(self, name: str, since: float, *, firing: bool = True) -> Page:
        """The first page of an alert after `since`."""
        found: list[Page] = []

        def came() -> bool:
            found[:] = [p for p in list(self.pages) if (p.name, p.firing) == (name, firing) and p.at >= since]
            return bool(found)

        wait_until(came, f"{name} {'fires' if firing else 'is resolved'}; so far: {self.pages}")
        return found[0]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant query."""
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30)
        assert answer.ok, answer.text
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result

    def wait_scrapes(self, count: int) -> None:
        """Until so many more scrapes of the engine have succeeded, and the rules were evaluated on them."""
        query = 'count_over_time(up{job="sglang"}[1h]) and on (job) up{job="sglang"} == 1'

        def scrapes() -> float:
            found = self.query(query)
            return float(found[0]["value"][1]) if found else 0.0

        first = scrapes()
        wait_until(lambda: scrapes() >= first + count, f"{count} scrapes")
        time.sleep(EVALUATE_SECONDS + GROUP_WAIT_SECONDS)


@contextmanager
def paging(folder: Path, target: str) -> Iterator[Pager]:
    """Everything from the engine at `target` (host:port) to the webhook, running inside the `with`."""
    manager, prometheus = (f"{HOST}:{free_port()}" for _ in range(2))
    pager = Pager(f"http://{prometheus}", target)
    with ExitStack() as stack:
        hook = stack.enter_context(_webhook(pager))
        _write(folder / "alertmanager.yaml", _alertmanager(hook))
        _write(folder / "prometheus.yaml", _prometheus(target, manager))
        (folder / "rules.yaml").write_text(generated(RECENT)["prometheus/rules.yaml"])
        # No cluster: it would listen on every address.
        arguments = [f"--storage.path={folder}/am", f"--web.listen-address={manager}", "--cluster.listen-address="]
        started = _program("prometheus-alertmanager", f"--config.file={folder}/alertmanager.yaml", *arguments)
        stack.enter_context(_running(started, folder / "alertmanager.log", f"http://{manager}"))
        arguments = [f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={prometheus}"]
        started = _program("prometheus", f"--config.file={folder}/prometheus.yaml", *arguments)
        stack.enter_context(_running(started, folder / "prometheus.log", f"http://{prometheus}"))
        yield pager


def _alertmanager(hook: str) -> dict[str, Any]:
    route = {
        "receiver": "hook",
        "group_by": ["alertname", "instance"],
        "group_wait": f"{GROUP_WAIT_SECONDS}s",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    return {"route": route, "receivers": [{"name": "hook", "webhook_configs": [{"url": hook, "send_resolved": True}]}]}


def _prometheus(target: str, manager: str) -> dict[str, Any]:
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "scrape_timeout": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{EVALUATE_SECONDS}s",
        },
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
        "scrape_configs": [{"job_name": "sglang", "static_configs": [{"targets": [target]}]}],
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content))


def _program(name: str, *arguments: str) -> list[str]:
    found = shutil.which(name)
    assert found, f"no {name}: tools/setup.sh engine installs it"
    return [found, *arguments]


@contextmanager
def _running(command: list[str], log: Path, url: str) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, cwd=log.parent)
    try:
        wait_until(lambda: _ready(process, url, log), f"{command[0]} is ready")
        yield
    finally:
        process.terminate()
        process.wait(30)


def _ready(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return requests.get(f"{url}/-/ready", timeout=5).ok
    except requests.RequestException:
        return False


@contextmanager
def _webhook(pager: Pager) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            now = time.monotonic()
            for alert in json.loads(body)["alerts"]:
                labels = alert["labels"]
                firing = alert["status"] == "firing"
                pager.pages.append(Page(labels["alertname"], firing, labels, alert["annotations"], now))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
