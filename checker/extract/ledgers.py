"""The ledgers: who moves their entries from stage to stage, who retires them, and which collectives that enters."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from checker.extract.facts import Findings, named, said, scope
from checker.extract.reading import short
from checker.extract.source import Method, Place
from checker.extract.threads import Conveyors
from checker.extract.walk import Event, Walk
from checker.extract.words import CONTROLLER, LEDGERS, PRIMITIVES, SCHEDULER, TREE, irrelevant

_DRAIN = "for _drain_queue(cache_controller.{},*"
_STORAGE = ("enable_storage", "_sync_hicache_ready_counts()[[]2[]]")
# Under which conditions the reap retires an entry, as the model has it: once it is ready, all that are.
_CONDITIONS: Mapping[str, tuple[str, ...]] = {
    "write_through": (
        "while self._sync_hicache_ready_counts()[[]0[]] > 0",
        "for self.cache_controller.ack_write_queue.pop().node_ids",
    ),
    "load_back": (
        "while self._sync_hicache_ready_counts()[[]1[]] > 0",
        "for self.cache_controller.ack_load_queue.pop().node_ids",
    ),
    "backup": (*_STORAGE, "for _drain_queue(self.cache_controller.ack_backup_queue,*"),
    "prefetch": (
        *_STORAGE,
        "for _drain_queue(self.cache_controller.ack_prefetch_queue,*",
        "each _drain_queue(*).completed_req",
        "(self.ongoing_prefetch.get() is not None and *.operation is each _drain_queue(*).operation)",
        "_check_hybrid_prefetch_result()",
    ),
    "hit": (
        *_STORAGE,
        "for _drain_queue(self.cache_controller.prefetch_hit_queue,*",
        "ongoing_prefetch.get() is None",
        "each _drain_queue(*).is_terminated()",
        "each _drain_queue(*).storage_hit_count < self.prefetch_threshold",
        "cache_controller.allocate_storage_hit()[[]0[]] is None",
        "allocate_storage_hit()[[]0[]] is None",
        "_alloc_prefetch_aux_staging()",
    ),
    "starts": ("enable_storage", "for self.ongoing_write_through.pop()[[]2[]]"),
}
_NOTED = ("start_writing", "start_loading", "_all_reduce", "_all_reduce_attn_groups", "poll_miss")
_ALSO_NOTED = ("write_backup_storage", "revoke_pending_prefetch")


@dataclass(frozen=True)
class Reap:
    """What one reap does, as events of a walk."""

    method: Method
    events: Sequence[Event]

    def calls(self, *names: str) -> list[Event]:
        """The calls of these functions."""
        return [e for e in self.events if e.kind == "call" and e.last in names]

    def retired(self, ledger: str) -> list[Event]:
        """Where entries of a ledger leave its table."""
        table = f"ongoing_{ledger}"
        return [
            e
            for e in self.events
            if (e.kind == "call" and short(e.name) == f"{table}.pop")
            or (e.kind == "delete" and short(e.name).startswith(f"{table}["))
        ]


def ledgers(found: Findings) -> None:
    """Every ledger of the profile."""
    reap = read_reap(found)
    if reap is None:
        for name in LEDGERS:
            found.doubt(("ledgers", name), f"there is no {TREE[1]}.check_hicache_events")
        return
    for event in reap.events:
        if odd := _odd(event):
            found.doubt(("primitives", "reap"), odd, event.place)
    conveyors = Conveyors.read(found)
    for name, stages in _STAGES.items():
        moves = {
            "write_through": _write_through,
            "load_back": _load_back,
            "backup": _backup,
            "prefetch": _prefetch,
        }[name](found, reap, conveyors)
        _tell(found, name, reap, moves, stages)


# Stage by stage, with what the monitor calls each: the spec's words, not the engine's.
_STAGES: Mapping[str, Mapping[str, str]] = {
    "write_through": {"queued": "queued", "submitted": "submitted", "ready": "ready"},
    "load_back": {"queued": "queued", "submitted": "submitted", "ready": "ready"},
    "backup": {"queued": "submitted", "ready": "ready"},
    "prefetch": {"query": "queued", "hit": "ready", "loading": "submitted", "done": "ready"},
}
_OF_STORAGE = ("backup", "prefetch")


def read_reap(found: Findings) -> Reap | None:
    """The walk through the function that reaps."""
    method = found.method(TREE, "check_hicache_events")
    if method is None:
        return None

    def decide(name: str, caller: Method) -> Method | str:
        last = name.rpartition(".")[2]
        if last in (*_NOTED, *_ALSO_NOTED) or name.endswith("finish_event.query"):
            return "note"
        if "ongoing_" in name and last in {"pop", "clear", "popitem"}:
            return "note"
        if last in PRIMITIVES:
            return "note"
        return "skip" if irrelevant(name) else (found.called(name, caller) or "note")

    walk = Walk(scope(), decide)
    walk.function(method)
    return Reap(method, walk.events)


def _odd(event: Event) -> str:
    if event.kind == "raise":
        return f"it may raise {said(event.guards)}"
    if event.kind != "call":
        return ""
    known = event.last in (*_NOTED, *_ALSO_NOTED) or "ongoing_" in event.name or event.name.endswith(".query")
    known = known or event.name.endswith(("prefetch_buffer.put", "_sync_hicache_ready_counts"))
    return "" if known else f"{named(event)} is neither known nor known to be irrelevant"


def unexpected(event: Event, kind: str) -> str:
    """The conditions of an event beyond those that the model has, as one line; empty where there are none."""
    patterns = _CONDITIONS[kind]
    more = [g for g in event.guards if not any(fnmatchcase(g[0], p) or fnmatchcase(short(g[0]), p) for p in patterns)]
    return said(more) if more else ""


def reaper_of(event: Event) -> str:
    """The function that reaps: the one that holds the event, where it stands inside the reaper; else the reaper."""
    first = event.chain[1] if len(event.chain) > 1 else event.chain[0]
    return event.chain[-1] if event.chain[-1].startswith("_drain_") else first


Moves = tuple[list[dict[str, Any]], str]


def _tell(found: Findings, name: str, reap: Reap, moves: Moves | None, stages: Mapping[str, str]) -> None:
    key = ("ledgers", name)
    table = _table(found, name)
    if table is None or moves is None:
        found.doubt(key, f"{TREE[1]} keeps no ongoing_{name}, or the reap retires none of it", reap.method.place)
        return
    steps, reaper = moves
    found.say((*key, "source"), f"{TREE[0]}:ongoing_{name}", table)
    found.say((*key, "reaper"), reaper, table)
    if name in _OF_STORAGE:
        found.say((*key, "needs"), "storage", table)
    found.say((*key, "stages"), list(stages), table)
    found.say((*key, "metric"), dict(stages), table)
    found.say((*key, "moves"), steps, table)


def _table(found: Findings, name: str) -> Place | None:
    """Where the tree makes the table of a ledger."""
    for method in found.source.mentioning(*TREE, f"ongoing_{name}"):
        for node in ast.walk(method.node):
            target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
            if isinstance(target, ast.Attribute) and target.attr == f"ongoing_{name}":
                return method.at(node)
    return None


def _retire(found: Findings, reap: Reap, name: str, start: str) -> tuple[dict[str, Any], str, Event] | None:
    events = reap.retired(name)
    if not events:
        return None
    for event in events:
        if extra := unexpected(event, name):
            found.doubt(("ledgers", name, "moves"), f"entries are retired only where {extra}", event.place)
    reaper = f"{TREE[0]}:{reaper_of(events[0])}"
    return {"from": start, "to": "retired", "by": "reap", "source": reaper}, reaper, events[0]


def _write_through(found: Findings, reap: Reap, _conveyors: Conveyors) -> Moves | None:
    key = ("ledgers", "write_through", "moves")
    retire = _retire(found, reap, "write_through", "ready")
    if retire is None:
        return None
    move, reaper, event = retire
    steps = []
    for by, submits in (("reap", reap.calls("start_writing")), ("process", _submits_of_process(found))):
        for submit in submits[:1]:
            if submit.guards:
                found.doubt(key, f"{by} submits only where {said(submit.guards)}", submit.place)
            source = f"{submit.place.file}:{submit.place.function}"
            steps.append({"from": "queued", "to": "submitted", "by": by, "source": source})
    steps += _by_device(found, reap, "write_through", "start_writing", "ack_write_queue")
    starts = [e for e in reap.calls("write_backup_storage") if e.chain == event.chain]
    if starts:
        move = {**move, "starts": "backup"}
        if any(guard[0].startswith("for ") for guard in starts[0].guards if guard not in event.guards):
            move["fragments"] = True
        extra = [g for g in starts[0].guards if g not in event.guards and not _expected(g[0], "starts")]
        if extra:
            found.doubt(key, f"a backup is started only where {said(extra)}", starts[0].place)
    return [*steps, move], reaper


def _expected(text: str, kind: str) -> bool:
    return any(fnmatchcase(text, p) or fnmatchcase(short(text), p) for p in _CONDITIONS[kind])


def _submits_of_process(found: Findings) -> list[Event]:
    """Where the processing of a result submits the copies that are queued."""
    method = found.method(SCHEDULER, "process_batch_result")
    if method is None:
        return []

    def decide(name: str, caller: Method) -> Method | str:
        last = name.rpartition(".")[2]
        if last == "start_writing" or last in PRIMITIVES:
            return "note"
        return "skip" if irrelevant(name) else (found.called(name, caller) or "note")

    walk = Walk(scope(), decide)
    walk.function(method)
    for event in walk.events:
        if event.kind == "call" and event.last != "start_writing" and not event.name.endswith(".get_loads"):
            odd = f"{named(event)} is neither known nor known to be irrelevant"
            found.doubt(("primitives", "process"), odd, event.place)
    return [e for e in walk.events if e.kind == "call" and e.last == "start_writing"]


def _by_device(found: Findings, reap: Reap, name: str, function: str, queue: str) -> list[dict[str, Any]]:
    """The copy that the device makes: submitted with an event, put into a queue whose events the reap asks."""
    method = found.method(CONTROLLER, function)
    asked = [e for e in reap.events if e.kind == "call" and e.name.endswith(f"{queue}.finish_event.query")]
    puts = _puts(method, queue) if method else False
    if method is None or not asked or not puts:
        found.doubt(("ledgers", name, "moves"), f"what {function} submits is not asked for by the reap in {queue}")
        return []
    move = {"from": "submitted", "to": "ready", "by": "device", "fair": "weak", "source": method.place.source}
    return [move]


def _puts(method: Method, queue: str) -> bool:
    calls = (n for n in ast.walk(method.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return any(ast.unparse(n.func) == f"self.{queue}.append" for n in calls)


def _load_back(found: Findings, reap: Reap, _conveyors: Conveyors) -> Moves | None:
    retire = _retire(found, reap, "load_back", "ready")
    if retire is None:
        return None
    move, reaper, _event = retire
    steps: list[dict[str, Any]] = []
    submit = _loads_of_schedule(found)
    if submit is None:
        found.doubt(("ledgers", "load_back", "moves"), "forming a batch does not submit the loads that it needs")
    else:
        source = found.method(CONTROLLER, "start_loading")
        place = source.place if source else submit.place
        # The spec's `launch` is a batch with all that it takes along; the engine submits while it forms it.
        steps.append({"from": "queued", "to": "submitted", "by": "launch", "source": place.source})
    steps += _by_device(found, reap, "load_back", "start_loading", "ack_load_queue")
    return [*steps, move], reaper


def _loads_of_schedule(found: Findings) -> Event | None:
    method = found.method(SCHEDULER, "get_new_batch_prefill")
    if method is None:
        return None
    inside = {"_get_new_batch_prefill_raw", "ready_to_load_host_cache"}

    def decide(name: str, caller: Method) -> Method | str:
        return (found.called(name, caller) or "note") if name.rpartition(".")[2] in inside else "note"

    walk = Walk(scope(), decide)
    walk.function(method)
    for event in walk.events:
        if event.kind == "call" and PRIMITIVES.get(event.last) not in {None, "requeue", "write-record"}:
            found.doubt(("primitives", "schedule"), f"{named(event)} while a batch is formed", event.place)
    return next((e for e in walk.events if e.kind == "call" and e.last == "start_loading"), None)


def _backup(found: Findings, reap: Reap, conveyors: Conveyors) -> Moves | None:
    retire = _retire(found, reap, "backup", "ready")
    if retire is None:
        return None
    move, reaper, _event = retire
    return [*conveyors.move(found, "backup", "queued", "ready"), move], reaper


def _prefetch(found: Findings, reap: Reap, conveyors: Conveyors) -> Moves | None:
    key = ("ledgers", "prefetch", "moves")
    retire = _retire(found, reap, "prefetch", "done")
    if retire is None:
        return None
    move, reaper, _event = retire
    steps = conveyors.move(found, "prefetch", "query", "hit")
    taken = [e for e in reap.events if e.kind == "store" and short(e.name).startswith("ongoing_prefetch[")]
    if not taken:
        found.doubt(key, "the reap takes no hit on", reap.method.place)
    for event in taken[:1]:
        if extra := unexpected(event, "hit"):
            found.doubt(key, f"a hit is taken on only where {extra}", event.place)
        hit: dict[str, Any] = {"from": "hit", "to": "loading"}
        revoked, missed = reap.calls("revoke_pending_prefetch"), reap.calls("poll_miss")
        if revoked:
            hit["or_to"] = "retired"
        if revoked and missed:
            hit["retried"] = True
        for miss in missed or [event]:
            if not any(set(one.guards) <= set(miss.guards) for one in revoked):
                found.doubt(key, "a hit that is not taken on is not always revoked", miss.place)
        steps.append({**hit, "by": "reap", "source": event.place.source})
    return [*steps, *conveyors.move(found, "prefetch", "loading", "done"), move], reaper
