"""The storage threads: each takes from one queue and puts into another. So an entry goes from stage to stage."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checker.extract.facts import Findings
from checker.extract.source import Method
from checker.extract.words import CONTROLLER

# From which queue to which an entry goes, for a move that the storage makes.
_WAYS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("backup", "queued"): ("backup_queue", "ack_backup_queue"),
    ("prefetch", "query"): ("prefetch_queue", "prefetch_hit_queue"),
    ("prefetch", "loading"): ("prefetch_buffer", "ack_prefetch_queue"),
}


@dataclass(frozen=True)
class Conveyors:
    """For each queue: the thread's function that takes from it, and the queues that it puts into."""

    ways: Mapping[str, tuple[Method, frozenset[str]]]
    starter: Method | None

    @staticmethod
    def read(found: Findings) -> Conveyors:
        """From the function that starts the threads, and those that it calls above it."""
        starter = found.method(CONTROLLER, "_start_storage_threads")
        ways: dict[str, tuple[Method, frozenset[str]]] = {}
        for name in sorted(_targets(found, starter)):
            method = found.method(CONTROLLER, name)
            if method is None:
                continue
            takes, puts = _queues(method, "get"), _queues(method, "put")
            for queue in takes:
                ways[queue] = method, frozenset(puts - {queue})
        return Conveyors(ways, starter)

    def move(self, found: Findings, ledger: str, start: str, end: str) -> list[dict[str, Any]]:
        """The move that the storage makes from a stage, if entries get from its queue to the one that is reaped."""
        first, last = _WAYS[ledger, start]
        if first not in self.ways or last not in self._reached(first):
            reason = f"no storage thread brings an entry from {first} to {last}"
            found.doubt(("ledgers", ledger, "moves"), reason, self.starter.place if self.starter else None)
            return []
        source = self.ways[first][0].place.source
        return [{"from": start, "to": end, "by": "storage", "fair": "weak", "source": source}]

    def _reached(self, first: str) -> set[str]:
        seen: set[str] = set()
        new = {first}
        while new:
            seen |= new
            new = {q for queue in new if queue in self.ways for q in self.ways[queue][1]} - seen
        return seen - {first}


def _targets(found: Findings, starter: Method | None) -> set[str]:
    """The functions that become threads, started too: `threading.Thread(target=self.NAME)` and `.start()`."""
    names: set[str] = set()
    while starter is not None:
        made: dict[str, str] = {}
        for node in ast.walk(starter.node):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for keyword in node.value.keywords:
                    if keyword.arg == "target" and isinstance(keyword.value, ast.Attribute):
                        made[ast.unparse(node.targets[0])] = keyword.value.attr
        text = ast.unparse(starter.node)
        names |= {name for thread, name in made.items() if f"{thread}.start()" in text}
        above = found.source.method(starter.file, starter.owner, starter.name, above=True)
        starter = above if f"super().{starter.name}()" in text else None
    return names


def _queues(method: Method, verb: str) -> set[str]:
    """The queues `self.NAME` that a function gets from or puts into, not only while something goes wrong."""
    names = set()
    for node in ast.walk(method.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == verb:
            queue = node.func.value
            if isinstance(queue, ast.Attribute) and isinstance(queue.value, ast.Name) and queue.value.id == "self":
                names.add(queue.attr)
    return names
