"""The gates: what the flush waits for, and with which flags each caller asks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from checker.extract.facts import Findings, named, said, scope
from checker.extract.messages import handler
from checker.extract.reading import UNDECIDED, Known, Reading, short
from checker.extract.source import Method
from checker.extract.walk import Event, Guard, Walk
from checker.extract.words import FLUSHER, LEDGERS, SCHEDULER

_QUERY = "is_fully_idle"
_WAITING = "len(waiting_queue) == 0"
# What the predicate says of each thing that the model has, without `self.` and the like.
_TERMS: Mapping[str, str] = {
    "running_batch.is_empty()": "running",
    "(last_batch is None or last_batch.is_empty())": "last_batch",
    "(not enable_overlap or len(result_queue) == 0)": "result_pending",
    **{f"len(ongoing_{name}) == 0": name for name in LEDGERS},
}
# What it says of things that are empty in the scope of the profile, or that the model has as part of another.
_OUTSIDE: Mapping[str, str] = {
    "_pp_microbatches_drained()": "there is one stage",
    "not dllm_manager.any_staging_reqs()": "no diffusion model",
    "not any((r.kv.holds_kv for r in waiting_queue))": "only a PD decode worker lets requests wait with their KV",
    "len(grammar_manager.grammar_queue) == 0": "the profile has no grammars",
}
_CHUNK = "chunked_req is None"
_ORDER = ("running", "last_batch", "result_pending", *LEDGERS)
_OF_STORAGE = ("prefetch", "backup")


@dataclass
class Conjunction:
    """What a predicate is the conjunction of, each part with the conditions under which it counts."""

    terms: dict[str, tuple[Guard, ...]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)


def gates(found: Findings) -> None:
    """The gate of the flush, and of the deferred one."""
    query, flush = found.method(SCHEDULER, _QUERY), found.method(SCHEDULER, "flush_cache")
    if query is None or flush is None:
        for gate in ("flush", "deferred_flush"):
            found.doubt(("gates", gate), f"there is no {SCHEDULER[1]}.{'flush_cache' if query else _QUERY}")
        return
    asked = _asked(flush)
    if asked is None:
        found.doubt(("gates", "flush"), f"flush_cache does not ask {_QUERY} once, before all it does", flush.place)
    _gate(found, "flush", query, asked or {})
    found.say(("gates", "flush", "source"), query.place.source, query.place)
    _deferred(found, query, asked or {})


def _asked(flush: Method) -> Mapping[str, Any] | None:
    walk = Walk(scope(), lambda name, _method: "note" if name.endswith(_QUERY) else "skip")
    walk.function(flush)
    calls = [e for e in walk.events if e.kind == "call"]
    return calls[0].arguments if len(calls) == 1 and not calls[0].guards and calls[0].name == f"self.{_QUERY}" else None


def _gate(found: Findings, gate: str, query: Method, arguments: Mapping[str, Any]) -> tuple[list[str], str]:
    """What the predicate waits for when it is asked so; said of `gate`."""
    key = ("gates", gate)
    flags = _flags(query, arguments)
    ignoring = flags.get("ignore_waiting", False)
    paused, running = (read(query, _at(flags, ignoring, paused=paused)) for paused in (True, False))
    for conjunction in (paused, running):
        for reason in conjunction.odd:
            found.doubt((*key, "waits_for"), reason, query.place)
    waits = _waits(found, key, query, paused)
    if waits != _waits(found, key, query, running):
        found.doubt((*key, "waits_for"), "it waits for other work while paused", query.place)
    waiting = {
        (True, True): "always",
        (False, True): "unless-paused",
        (False, False): "never",
    }.get((_WAITING in paused.terms, _WAITING in running.terms))
    if waiting is None:
        found.doubt((*key, "waiting"), "waiting requests count only while paused", query.place)
        waiting = "always"
    found.say((*key, "waits_for"), waits, query.place)
    found.say((*key, "waiting"), waiting, query.place)
    if ignoring not in {True, False, "paused"}:
        found.doubt((*key, "waiting"), f"it is asked with ignore_waiting={ignoring}", query.place)
    return waits, waiting


def _flags(query: Method, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of the predicate in a call, in plain values; `paused` for the scheduler's flag."""
    names = [a.arg for a in query.node.args.args][1:]
    given = {names[int(k)] if k.isdigit() and int(k) < len(names) else k: v for k, v in arguments.items()}
    flags: dict[str, Any] = {}
    for name, value in given.items():
        flags[name] = value.value if isinstance(value, Known) else value
        if short(str(flags[name])) == "_engine_paused":
            flags[name] = "paused"
    return flags


def _at(flags: Mapping[str, Any], ignoring: object, *, paused: bool) -> dict[str, Any]:
    held = {name: Known(value) for name, value in flags.items() if isinstance(value, bool)}
    decided = paused if ignoring == "paused" else ignoring
    return {**held, "ignore_waiting": Known(decided if isinstance(decided, bool) else False)}


def read(query: Method, flags: Mapping[str, Any]) -> Conjunction:
    """What the predicate is the conjunction of, asked with these flags."""
    defaults = zip(reversed(query.node.args.args), reversed(query.node.args.defaults), strict=False)
    plain = {a.arg: Known(d.value) for a, d in defaults if isinstance(d, ast.Constant)}
    reader = _Conjuncts({**plain, **flags})
    reader.run(query.node.body, ())
    if not reader.returned:
        reader.found.odd.append("it does not return the conjunction that it forms")
    return reader.found


class _Conjuncts:
    """Reads a predicate that is formed by `and`, `&=` and early `return False`."""

    def __init__(self, env: dict[str, Any]) -> None:
        self.env, self.found, self.returned = env, Conjunction(), False
        self.name = ""

    @property
    def reading(self) -> Reading:
        return Reading(scope(), self.env)

    def run(self, body: Iterable[ast.stmt], guards: tuple[Guard, ...]) -> None:
        for node in body:
            self.statement(node, guards)

    def statement(self, node: ast.stmt, guards: tuple[Guard, ...]) -> None:
        match node:
            case ast.If():
                self.branch(node, guards)
            case ast.AugAssign(op=ast.BitAnd(), target=ast.Name(id=name)) if name == self.name:
                self.term(node.value, guards)
            case ast.Assign(targets=[ast.Name(id=name)]) if not self.name and _boolean(node.value):
                self.name = name
                self.term(node.value, guards)
            case ast.Assign(targets=[ast.Name(id=name)]) if name != self.name:
                self.env[name] = self.reading.held(node.value)
            case ast.Return(value=ast.Name(id=name)) if name == self.name and not guards:
                self.returned = True
            case ast.Return(value=ast.BoolOp() as value) if not guards:
                self.term(value, guards)
                self.returned = True
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                self.found.odd.append(f"line {node.lineno} is no conjunct: {ast.unparse(node).splitlines()[0]}")

    def branch(self, node: ast.If, guards: tuple[Guard, ...]) -> None:
        truth = self.reading.truth(node.test)
        if truth is not UNDECIDED:
            self.run(node.body if truth else node.orelse, guards)
            return
        self.run(node.body, (*guards, *self.reading.condition(node.test, wanted=True)))
        self.run(node.orelse, (*guards, *self.reading.condition(node.test, wanted=False)))

    def term(self, node: ast.expr, guards: tuple[Guard, ...]) -> None:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for value in node.values:
                self.term(value, guards)
            return
        text = _plain(self.reading.text(node))
        self.found.terms[text] = guards


def _boolean(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp | ast.Compare) or (isinstance(node, ast.Constant) and node.value is True)


def _plain(text: str) -> str:
    for receiver in ("self.tree_cache.", "self."):
        text = text.replace(receiver, "")
    return text


def _waits(found: Findings, key: tuple[str, ...], query: Method, conjunction: Conjunction) -> list[str]:
    waits = set()
    for text, guards in conjunction.terms.items():
        name = _TERMS.get(text)
        allowed = {("enable_storage", True)} if name in _OF_STORAGE else set()
        extra = [g for g in guards if (_plain(g[0]), g[1]) not in allowed]
        if name is None and text not in {_WAITING, _CHUNK, "True", *_OUTSIDE}:
            found.doubt((*key, "waits_for"), f"it waits for {text}, which is not known", query.place)
        elif extra and text not in _OUTSIDE:
            found.doubt((*key, "waits_for"), f"it waits for {name or text} only where {said(extra)}", query.place)
        if name:
            waits.add(name)
    if "running" in waits and _CHUNK not in conjunction.terms:
        found.doubt((*key, "waits_for"), "it does not wait for a prefill in chunks, which is running work", query.place)
    if "len(grammar_manager.grammar_queue) == 0" not in conjunction.terms:
        found.doubt((*key, "waits_for"), "it does not wait for the grammar queue", query.place)
    return [name for name in _ORDER if name in waits]


def _deferred(found: Findings, query: Method, flush: Mapping[str, Any]) -> None:
    """The deferred flush: its own question, and then that of the flush that it makes."""
    key = ("gates", "deferred_flush")
    flusher = found.source.class_(*FLUSHER)
    pending = found.method(FLUSHER, "check_pending")
    wired = _wired(found)
    if flusher is None or pending is None or wired is None:
        found.doubt(key, f"no {FLUSHER[1]} asks {_QUERY} for a pending flush", query.place)
        _gate(found, "deferred_flush", query, {})
        return
    found.say((*key, "source"), f"{FLUSHER[0]}:{FLUSHER[1]}", pending.place)
    asked = _asks_pending(found, key, pending)
    waits, waiting = _gate(found, "deferred_flush", query, wired if asked else flush)
    # It then makes the immediate flush, whose gate it must pass too.
    other, also = found.value("gates", "flush", "waits_for") or [], found.value("gates", "flush", "waiting")
    both = {waiting, also}
    place = pending.place
    found.say((*key, "waits_for"), [n for n in _ORDER if n in {*waits, *other}], place)
    strictest = next(w for w in ("always", "unless-paused", "never") if w in both)
    found.say((*key, "waiting"), strictest, place)
    for unknown in [u for u in found.unknowns if u.key[:2] == ("gates", "flush")]:
        found.doubt(("gates", "deferred_flush", *unknown.key[2:]), unknown.reason, unknown.place)
    _handled(found, key)


def _wired(found: Findings) -> Mapping[str, Any] | None:
    """The arguments with which the flusher's question is asked, from where the scheduler makes the flusher."""
    for method in found.source.mentioning(*SCHEDULER, FLUSHER[1]):
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == FLUSHER[1]:
                given = {k.arg: k.value for k in node.keywords}
                if ast.unparse(given.get("flush_cache", ast.Constant(None))) != "self.flush_cache":
                    return None
                return _question(given.get("is_fully_idle"))
    return None


def _question(node: ast.expr | None) -> Mapping[str, Any] | None:
    """The arguments in `self.is_fully_idle`, `lambda: self.is_fully_idle(…)` or `partial(self.is_fully_idle, …)`."""
    reading = Reading(scope(), {})
    if node is not None and ast.unparse(node) == f"self.{_QUERY}":
        return {}
    call = node.body if isinstance(node, ast.Lambda) else node
    if not isinstance(call, ast.Call):
        return None
    by_partial = ast.unparse(call.func).endswith("partial") and call.args and isinstance(call.args[0], ast.Attribute)
    if ast.unparse(call.func) != f"self.{_QUERY}" and not by_partial:
        return None
    if by_partial and ast.unparse(call.args[0]) != f"self.{_QUERY}":
        return None
    return {k.arg: reading.held(k.value) for k in call.keywords if k.arg}


def _calls(method: Method) -> list[Event]:
    walk = Walk(scope(), lambda _name, _method: "note")
    walk.function(method)
    return [e for e in walk.events if e.kind == "call" and e.last == "_flush_cache"]


def _asks_pending(found: Findings, key: tuple[str, ...], pending: Method) -> bool:
    """Whether the pending flush is made only where its own question is answered with yes."""
    idle, waits = ("_is_fully_idle()", True), ("_pending is None", False)
    flushes = _calls(pending)
    guards = [{(short(t), w) for t, w in e.guards} for e in flushes]
    if len(guards) != 1 or guards[0] - {idle} != {waits}:
        found.doubt(key, "a pending flush is made on other conditions than that nothing is under way", pending.place)
    return bool(guards) and idle in guards[0]


def _handled(found: Findings, key: tuple[str, ...]) -> None:
    """A flush without a time-out is made at once; the pending one is looked at each time that requests are taken in."""
    method = handler(found, "FlushCacheReqInput")
    if method is None or method.file != FLUSHER[0]:
        found.doubt(("gates", "flush"), f"{FLUSHER[1]} does not answer FlushCacheReqInput")
        return
    flushes = [[(short(t), w) for t, w in e.guards if "_pending" not in t] for e in _calls(method)]
    at_once = [g for g in flushes if len(g) == 1 and "timeout_s" in g[0][0] and g[0][1]]
    idle = [g for g in flushes if len(g) > 1 and g[-1] == ("_is_fully_idle()", True)]
    if len(at_once) != 1 or len(at_once) + len(idle) != len(flushes):
        found.doubt(("gates", "flush"), "a flush without a time-out is not made at once", method.place)
    intake = found.method(SCHEDULER, "process_input_requests")
    walk = Walk(scope(), lambda name, _method: "note" if name.endswith("check_pending") else "skip")
    if intake:
        walk.function(intake)
    looked = [e for e in walk.events if e.kind == "call"]
    if len(looked) != 1 or looked[0].guards:
        where = named(looked[0]) if looked else "nowhere"
        found.doubt(key, f"a pending flush is not looked at after each intake: {where}", intake)
