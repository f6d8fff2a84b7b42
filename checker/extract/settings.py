"""What defaults and small functions say: lookups, keys in storage, the watchdog."""

from __future__ import annotations

import ast
import re
from typing import Any

from checker.extract.facts import Findings, said, scope
from checker.extract.reading import short
from checker.extract.source import Place
from checker.extract.walk import Walk
from checker.extract.words import BASE_CONTROLLER, CONTROLLER, HASHES, POLICY, SCHEDULER, SETTINGS, TREE, WATCHDOG

_RETRIES = "hicache_storage_prefetch_retry_max_attempts"
_FIELDS = ("srt/arg_groups/fields/memory.py", SETTINGS)
_OF_WEIGHTS = re.compile(r"weight|epoch|version", re.IGNORECASE)
_HASHES = ("get_hash_str", "get_storage_hash_str", "storage_namespace_seed")


def settings(found: Findings) -> None:
    """The facts of `prefetch`, `storage` and `watchdog`."""
    _threshold(found)
    _retries(found)
    _requeue(found)
    _cut(found)
    _keys(found)
    _watchdog(found)


def default(found: Findings, name: str) -> tuple[Any, Place] | None:
    """The default of a setting, and where it stands."""
    for file in _FIELDS:
        tree = found.source.tree(file)
        for node in ast.walk(tree) if tree else ():
            match node:
                case ast.AnnAssign(target=ast.Name(id=field), value=ast.Constant(value=value)) if field == name:
                    return value, Place(file, name, node.lineno)
    return None


def _threshold(found: Findings) -> None:
    key = ("prefetch", "threshold_tokens")
    method = found.method(CONTROLLER, "parse_storage_backend_extra_config")
    for node in ast.walk(method.node) if method else ():
        match node:
            case ast.Call(
                func=ast.Attribute(attr="pop" | "get"), args=[ast.Constant(value=name), ast.Constant(value=value)]
            ):
                if name == "prefetch_threshold" and method and isinstance(value, int):
                    found.say(key, value, method.at(node))
    if key not in found.facts:
        found.doubt(key, "no default of prefetch_threshold is found", method)


def _retries(found: Findings) -> None:
    key = ("prefetch", "retry_attempts")
    one = default(found, _RETRIES)
    retry = found.method(SCHEDULER, "_process_storage_prefetch_retries")
    if one is None or retry is None or not isinstance(one[0], int):
        found.doubt(key, f"no default of {_RETRIES} is found, or nothing retries", retry)
        return
    found.say(key, *one)
    if one[0] == 0:
        found.doubt(key, "0 is no attempt for the engine", one[1])
    walk = Walk(scope(), lambda _name, _method: "note")
    walk.function(retry)
    limits = [e for e in walk.events if e.last == "pop_ready"]
    if len(limits) != 1 or not any(str(v).endswith(f".{_RETRIES}") for v in limits[0].arguments.values()):
        found.doubt(key, "the retries that are due are not limited by it", retry.place)
    sends = [e for e in walk.events if e.last == "_retry_storage_prefetch"]
    counts = found.method(SCHEDULER, "_retry_storage_prefetch")
    counted = counts is not None and any(
        isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and ast.unparse(n.target).endswith("retry_attempts")
        for n in counts.node.body
    )
    if len(sends) != 1 or not counted:
        found.doubt(key, "a retry does not count as an attempt", retry.place)


def _requeue(found: Findings) -> None:
    """Whether a request that is queued, a retracted one too, is looked up."""
    key = ("prefetch", "on_requeue")
    method, lookup = found.method(SCHEDULER, "_add_request_to_queue"), found.method(SCHEDULER, "_prefetch_kvcache")
    if method is None or lookup is None:
        found.doubt(key, f"there is no {SCHEDULER[1]}._{'prefetch_kvcache' if method else 'add_request_to_queue'}")
        return
    found.say(("prefetch", "source"), lookup.place.source, lookup.place)
    walk = Walk(scope(), lambda _name, _method: "note")
    # As the pause handler calls it: with the request alone.
    walk.function(method, {method.node.args.args[1].arg: "request"})
    calls = [e for e in walk.events if e.last == lookup.name]
    place = calls[0].place if calls else method.place
    inner = Walk(scope(), lambda _name, _method: "note")
    inner.function(lookup)
    asks = [e for e in inner.events if e.last == "prefetch_from_storage"]
    found.say(key, bool(calls) and bool(asks), place)
    usual = {("_set_or_validate_priority()", True), ("_abort_on_queued_limit()", False)}
    for event in calls:
        if extra := [g for g in event.guards if (short(g[0]), g[1]) not in usual]:
            found.doubt(key, f"a queued request is looked up only where {said(extra)}", event.place)
    queued = [e for e in walk.events if e.name.endswith("waiting_queue.append")]
    if len(queued) != 1 or [g for g in queued[0].guards if (short(g[0]), g[1]) not in usual]:
        found.doubt(("pause", "retract", "steps"), "a request that is asked for again may not be queued", method.place)


def _cut(found: Findings) -> None:
    key = ("prefetch", "cut_at_admission")
    policy, method = default(found, POLICY), found.method(TREE, "_can_terminate_prefetch")
    if policy is None or method is None:
        found.doubt(key, f"no default of {POLICY} is found, or nothing asks for it", method)
        return
    walk = Walk(scope(prefetch_stop_policy=policy[0]), lambda _name, _method: "skip")
    walk.function(method)
    answers = {e.text for e in walk.events if e.kind == "return" and not e.guards}
    found.say(key, answers != {"False"}, policy[1])
    if not answers or any(e.guards for e in walk.events if e.kind == "return"):
        found.doubt(key, f"whether a read is cut is not decided by the policy {policy[0]!r}", method.place)


def _keys(found: Findings) -> None:
    """Of what the key of a page in storage is made: its tokens, or the weights too."""
    functions = [m for name in _HASHES if (m := found.source.module_function(HASHES, name))]
    functions += [m for m in (found.method(CONTROLLER, "_storage_hit_query"),) if m]
    functions += [m for m in (found.method(CONTROLLER, "write_storage"),) if m]
    base = found.method(BASE_CONTROLLER, "write_storage")
    if len(functions) < len(_HASHES) or base is None:
        found.doubt(("storage", "key"), "no function is found that makes the keys", None)
        return
    found.say(("storage", "source"), base.place.source, base.place)
    found.say(("storage", "key"), "tokens", functions[0].place)
    for method in functions:
        names = {n.id for n in ast.walk(method.node) if isinstance(n, ast.Name)}
        names |= {n.attr for n in ast.walk(method.node) if isinstance(n, ast.Attribute)}
        for name in sorted(n for n in names if _OF_WEIGHTS.search(n)):
            found.doubt(("storage", "key"), f"{name} may be part of it", method.place)


def _watchdog(found: Findings) -> None:
    """Whether what makes the watchdog count looks at the pause."""
    key = ("watchdog", "knows_pause")
    method = found.source.module_function(*WATCHDOG)
    for node in ast.walk(method.node) if method else ():
        if isinstance(node, ast.keyword) and node.arg == "is_active" and isinstance(node.value, ast.Lambda) and method:
            names = {n.attr for n in ast.walk(node.value) if isinstance(n, ast.Attribute)}
            found.say(("watchdog", "source"), WATCHDOG[0], method.place)
            found.say(key, "_engine_paused" in names, method.at(node.value))
            if names - {"is_initializing", "cur_batch_for_debug", "_engine_paused"}:
                found.doubt(key, f"it is active by {', '.join(sorted(names))}", method.place)
            if "cur_batch_for_debug" not in names:
                found.doubt(key, "it does not look at the batch that runs", method.place)
    if key not in found.facts:
        found.doubt(key, "no watchdog is found", method)
