"""The pause handler in each mode: whether it sets the flag, and what it does to the work that is under way."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from checker.extract.facts import Findings, named, primitive, said, scope
from checker.extract.messages import MESSAGE, bound, handler
from checker.extract.reading import Known, short
from checker.extract.source import Method
from checker.extract.walk import Event, Walk
from checker.extract.words import SCHEDULER, TOKENIZER, irrelevant

_FLAG = "_engine_paused"
_KEPT = ("running_batch", "last_batch", "chunked_req", "waiting_queue", "result_queue", _FLAG)
_CHUNK = "self.chunked_req"
_LEFT = (
    ("last_batch", "None", "it would be merged again"),
    ("cur_batch_for_debug", "None", "the watchdog would count the pause"),
    ("running_batch.reqs", "[]", "its requests wait"),
    ("running_batch.batch_is_full", "False", "nothing more would be admitted"),
    ("chunked_req", "None", "it waits"),
)
_REQUESTS = {"self.running_batch.reqs", "self.last_batch.reqs"}


def pauses(found: Findings) -> None:
    """The three modes, and that a continue ends the pause."""
    method = handler(found, "PauseGenerationReqInput")
    if method is None:
        found.doubt(("pause",), "no function of the scheduler answers PauseGenerationReqInput")
    else:
        _retract(found, method)
        _in_place(found, method)
        _flag_elsewhere(found, method)
    _abort(found)


def read(found: Findings, method: Method, mode: str, *, overlap: bool) -> list[Event]:
    """What the scheduler's handler does in one mode."""

    def decide(name: str, caller: Method) -> Method | str:
        last = name.rpartition(".")[2]
        if primitive(name) or last == "retract_all" or name.endswith("_drain_mlx_pending_jobs"):
            return "note"
        return "skip" if irrelevant(name) else (found.called(name, caller) or "note")

    walk = Walk(scope(enable_overlap=overlap, **{f"{MESSAGE}.mode": mode}), decide)
    walk.function(method, bound(method))
    return walk.events


def _sets_flag(found: Findings, method: Method, mode: str, events: Sequence[Event]) -> None:
    stores = [e for e in events if e.kind == "store" and short(e.name) == _FLAG]
    place = stores[0].place if stores else method.place
    found.say(("pause", mode, "sets_flag"), bool(stores), place)
    if not stores:
        found.doubt(("pause", mode, "sets_flag"), "the scheduler is told of the pause and does not set its flag", place)
    if any(e.guards or e.text != "True" for e in stores):
        found.doubt(("pause", mode, "sets_flag"), f"the flag is set only where {said(stores[0].guards)}", place)


def _in_place(found: Findings, method: Method) -> None:
    key = ("pause", "in_place")
    events = read(found, method, "in_place", overlap=True)
    found.say((*key, "source"), method.place.source, method.place)
    _sets_flag(found, method, "in_place", events)
    steps = _steps(found, key, events)
    found.say((*key, "steps"), steps, method.place)
    for event in events:
        if event.kind == "store" and short(event.name) in _KEPT and short(event.name) != _FLAG:
            found.doubt((*key, "steps"), f"it sets {short(event.name)} to {event.text}", event.place)


def _retract(found: Findings, method: Method) -> None:
    key = ("pause", "retract")
    events = read(found, method, "retract", overlap=True)
    plain = read(found, method, "retract", overlap=False)
    found.say((*key, "source"), method.place.source, method.place)
    _sets_flag(found, method, "retract", events)
    steps, without = _steps(found, key, events), _steps(found, key, plain)
    found.say((*key, "steps"), steps, method.place)
    if without != [s for s in steps if s != "process"] and without != steps:
        found.doubt((*key, "steps"), f"without overlap it does {', '.join(without) or 'nothing'}", method.place)
    for wanted, why in (("process", "a queued result outlives its batch"), ("requeue", "its requests are gone")):
        if wanted not in steps:
            # The model has a retract that does both: it would take the effects for granted.
            found.doubt((*key, "steps"), f"it does not {wanted}: {why}", method.place)
    _leaves(found, method, events)


def _steps(found: Findings, key: tuple[str, ...], events: Sequence[Event]) -> list[str]:
    steps: list[str] = []
    for event in events:
        if event.kind == "raise":
            found.doubt((*key, "steps"), f"it may raise {said(event.guards)}", event.place)
        kind = primitive(event.name)
        if event.kind != "call" or event.last == "retract_all" or kind == "take":
            continue
        if kind is None or kind in {"query", "write-record", "ingest", "put"}:
            reason = f"{named(event)} is neither known nor known to be irrelevant"
            found.doubt((*key, "steps"), reason, event.place)
            continue
        allowed = {"process": {("last_batch", True)}}.get(kind, set())
        extra = [g for g in event.guards if (short(g[0]), g[1]) not in allowed]
        if kind == "requeue":
            extra = [g for g in extra if not g[0].startswith("for ")]
        if extra:
            found.doubt((*key, "steps"), f"{kind} only where {said(extra)}", event.place)
        if kind in steps:
            found.doubt((*key, "steps"), f"{kind} more than once", event.place)
        else:
            steps.append(kind)
    return steps


def _leaves(found: Findings, method: Method, events: Sequence[Event]) -> None:
    """A retract leaves no batch, frees what its requests own, and asks for each of them again."""
    key = ("pause", "retract", "steps")
    emptied = {(short(e.name), e.text) for e in events if e.kind == "store" and not e.guards}
    for name, value, why in _LEFT:
        if (name, value) not in emptied:
            found.doubt(key, f"it does not always set {name} to {value}: {why}", method.place)
    freed = [e for e in events if e.last == "retract_all"]
    if len(freed) != 1:
        found.doubt(key, "it does not free what the requests own, once", method.place)
    listed = _listed(method)
    if _CHUNK not in _appended(method):
        found.doubt(key, "it does not retract the request whose prefill goes on in chunks", method.place)
    for missing in sorted(_REQUESTS - set(listed)):
        found.doubt(key, f"it does not retract the unfinished requests of {missing}", method.place)
    for name, conditions in listed.items():
        if name in _REQUESTS and conditions != ["not finished"]:
            found.doubt(key, f"of {name} it retracts other requests than the unfinished ones", method.place)
    requeued = [e for e in events if primitive(e.name) == "requeue"]
    lists = {str(e.arguments.get("reqs", e.arguments.get("0", ""))) for e in freed}
    if requeued and not any(g[0] == f"for {one}" for e in requeued for g in e.guards for one in lists):
        found.doubt(key, "it does not ask again for the requests that it retracts", requeued[0].place)
    _in_order(found, method, events)


def _in_order(found: Findings, method: Method, events: Sequence[Event]) -> None:
    key = ("pause", "retract", "steps")
    processed = [e for e in events if primitive(e.name) == "process"]
    if any("result_queue.popleft()" not in str(e.arguments.get("1", "")) for e in processed):
        found.doubt(key, "what it processes is not taken from the queue of results", method.place)
    order = [e.last for e in events if e.last in {"retract_all", "_add_request_to_queue", "process_batch_result"}]
    if order != sorted(order, key=["process_batch_result", "retract_all", "_add_request_to_queue"].index):
        found.doubt(key, f"its order is {', '.join(order)}", method.place)


def _appended(method: Method) -> set[str]:
    """What the handler appends to its lists."""
    calls = (n for n in ast.walk(method.node) if isinstance(n, ast.Call))
    return {ast.unparse(a) for n in calls if ast.unparse(n.func).endswith(".append") for a in n.args}


def _listed(method: Method) -> dict[str, list[str]]:
    """Whose requests the handler lists, with the conditions of each list."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(method.node):
        if isinstance(node, ast.ListComp) and len(node.generators) == 1:
            one = node.generators[0]
            name = ast.unparse(one.target)
            conditions = [ast.unparse(c).replace(f"{name}.finished()", "finished") for c in one.ifs]
            found.setdefault(ast.unparse(one.iter), conditions)
    return found


def _flag_elsewhere(found: Findings, pause: Method) -> None:
    """Only the pause sets the flag and only the continue resets it; else no loop's paused pass means what it says."""
    proceed = handler(found, "ContinueGenerationReqInput")
    resets = []
    if proceed is not None:
        walk = Walk(scope(), lambda _name, _method: "skip")
        walk.function(proceed, bound(proceed))
        resets = [e for e in walk.events if e.kind == "store" and short(e.name) == _FLAG]
    if len(resets) != 1 or resets[0].guards or resets[0].text != "False":
        for mode in ("retract", "in_place"):
            where = proceed.place if proceed else None
            found.doubt(("pause", mode, "sets_flag"), "a continue does not always reset the flag", where)
    known = {pause.name, proceed.name if proceed else "", "__init__"}
    for method in found.source.mentioning(*SCHEDULER, _FLAG):
        for node in ast.walk(method.node):
            if _sets(node) and method.name not in known and not method.name.startswith("init"):
                for mode in ("retract", "in_place"):
                    reason = f"{method.name} sets the flag too"
                    found.doubt(("pause", mode, "sets_flag"), reason, method.at(node))


def _sets(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == _FLAG


def _abort(found: Findings) -> None:
    """Mode abort, in the tokenizer: it aborts every request, and tells the scheduler of no pause."""
    method = found.method(TOKENIZER, "pause_generation")
    key = ("pause", "abort")
    if method is None:
        found.doubt(key, f"there is no {TOKENIZER[1]}.pause_generation")
        return
    events = _tokenizer(method, "abort")
    told = [e for e in events if _dispatches(e)]
    aborts = [e for e in events if e.last == "abort_request"]
    found.say((*key, "source"), method.place.source, method.place)
    found.say((*key, "sets_flag"), bool(told), method.place)
    found.say((*key, "steps"), ["abort_all"] if aborts else [], method.place)
    for event in aborts:
        if event.arguments.get("abort_all") != Known(value=True) or any(
            not g[0].startswith("while ") for g in event.guards
        ):
            found.doubt((*key, "steps"), f"it does not always abort every request: {named(event)}", event.place)
    _closes_gate(found, (*key, "steps"), method, events)
    for mode in ("retract", "in_place"):
        others = _tokenizer(method, mode)
        if [e.guards for e in others if _dispatches(e)] != [()]:
            found.doubt(("pause", mode, "sets_flag"), "the tokenizer does not pass the pause on, once", method.place)
        _closes_gate(found, ("pause", mode, "steps"), method, others)


def _closes_gate(found: Findings, key: tuple[str, ...], method: Method, events: Sequence[Event]) -> None:
    if not any(e.kind == "store" and short(e.name) == "is_pause" and e.text == "True" and not e.guards for e in events):
        found.doubt(key, "the tokenizer does not hold new requests back", method.place)
    for event in events:
        known = _dispatches(event) or event.last in {"abort_request", "is_locked", "sleep", "return"}
        if event.kind == "call" and not known and not irrelevant(event.name):
            found.doubt(key, f"{named(event)} is neither known nor known to be irrelevant", event.place)


def _tokenizer(method: Method, mode: str) -> list[Event]:
    walk = Walk(scope(**{f"{MESSAGE}.mode": mode}), lambda _name, _method: "note")
    walk.function(method, bound(method))
    return walk.events


def _dispatches(event: Event) -> bool:
    return event.last == "_async_dispatch_to_scheduler" and event.arguments.get("0") == MESSAGE
