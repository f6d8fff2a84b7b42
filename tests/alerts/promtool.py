"""Runs the real promtool, and walks expressions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
_MEMORY = Path("/dev", "shm")
_VARIABLES = (("$__rate_interval", "5m"), ("$job", ".*"), ("$instance", ".*"))


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    assert found, "no promtool: tools/setup.sh engine installs it (Debian package prometheus)"
    # It makes a database for each case; in memory, so that no disk is waited for.
    environment = os.environ | ({"TMPDIR": str(_MEMORY)} if _MEMORY.is_dir() else {})
    command = [found, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


def failures(done: subprocess.CompletedProcess[str]) -> int:
    """How many cases `promtool test rules` says are not as expected."""
    return len(re.findall(r"alertname: ?\w+, time:", done.stdout + done.stderr))


@dataclass(frozen=True)
class Selector:
    """A series that an expression names, with the labels that it is narrowed by."""

    name: str
    labels: tuple[tuple[str, str], ...]


def filled(query: str) -> str:
    """A query of the dashboard as Grafana sends it."""
    for variable, value in _VARIABLES:
        query = query.replace(variable, value)
    assert "$" not in query
    return query


def selectors(expression: str) -> Iterator[Selector]:
    """Every series that an expression names."""
    yield from _walk(promql_parser.parse(expression))


def _walk(node: Any) -> Iterator[Selector]:
    if isinstance(node, promql_parser.VectorSelector):
        labels = {m.name: m.value for m in node.matchers.matchers}
        name = node.name or labels.pop("__name__")
        yield Selector(name, tuple(labels.items()))
    parts = ("expr", "lhs", "rhs", "vector_selector", "param")
    for part in (getattr(node, name, None) for name in parts):
        if part is not None:
            yield from _walk(part)
    for argument in getattr(node, "args", None) or ():
        yield from _walk(argument)
