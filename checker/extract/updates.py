"""The weight updates: load, version and flush in which order, and what a refused flush makes of the answer."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from checker.extract.facts import Findings, named, said, scope
from checker.extract.messages import MESSAGE, bound, handler
from checker.extract.reading import short
from checker.extract.source import Method
from checker.extract.walk import Event, Guard, Walk
from checker.extract.words import PRIMITIVES, UPDATER, irrelevant

MESSAGES = (
    "UpdateWeightFromDiskReqInput",
    "UpdateWeightsFromDistributedReqInput",
    "UpdateWeightsFromTensorReqInput",
    "UpdateWeightsFromIPCReqInput",
)
LOADS = (
    "update_weights_from_disk",
    "load_weights_from_distributed",
    "update_weights_from_tensor",
    "update_weights_from_ipc",
)
_STAMP, _FLUSH = "record_weight_version_change", "flush_cache"
_WAITS = ("synchronize", "wait_stream", "wait_event")
_FLUSHER = "flush_cache_after_weight_update"
# Sessions, receiving, runners, barriers: before or after all that the order is about.
_ALSO = (
    "_observe_weight_load",
    "_select_runners",
    "receive_weights_from_distributed",
    "deserialize_own_rank",
    "barrier",
    "replace",
    "parse",
)


def updates(found: Findings) -> None:
    """The facts of `update`; the four ways to update must agree."""
    flusher = found.method(UPDATER, _FLUSHER)
    if flusher is None:
        found.doubt(("update",), f"there is no {UPDATER[1]}.{_FLUSHER}")
        return
    found.say(("update", "source"), flusher.place.source, flusher.place)
    ways: list[tuple[Method, dict[str, object]]] = []
    for message in MESSAGES:
        method = handler(found, message)
        if method is None:
            found.doubt(("update",), f"no function of the scheduler answers {message}")
            continue
        ways.append((method, _way(found, method)))
    for name in ("flush", "waits_for_forward", "stamps"):
        values = {way[name] for _method, way in ways if name in way}
        for value in sorted(values, key=str)[:1]:
            found.say(("update", name), value, flusher.place)
        if len(values) > 1:
            found.doubt(("update", name), "the ways to update differ in it", flusher.place)
    refused = _refused(found, flusher)
    found.say(("update", "refused"), refused, flusher.place)


def _events(found: Findings, method: Method) -> list[Event]:
    def decide(name: str, caller: Method) -> Method | str:
        last = name.rpartition(".")[2]
        if last in (*LOADS, _STAMP, _FLUSH, *_WAITS) or last in PRIMITIVES:
            return "note"
        if last in _ALSO or last.endswith("ReqOutput") or irrelevant(name):
            return "skip"
        return found.called(name, caller) or "note"

    walk = Walk(scope(), decide)
    walk.function(method, bound(method))
    return walk.events


def _way(found: Findings, method: Method) -> dict[str, object]:
    """One way to update: what its handler does, in order."""
    events = [e for e in _events(found, method) if e.kind == "call"]
    order = [e.last for e in events]
    for event in events:
        if event.last not in (*LOADS, _STAMP, _FLUSH, *_WAITS):
            reason = f"{method.name}: {named(event)} is neither known nor known to be irrelevant"
            found.doubt(("update",), reason, event.place)
    load = next((order.index(name) for name in LOADS if name in order), None)
    if load is None or order.count(_FLUSH) != 1 or order.count(_STAMP) != 1:
        found.doubt(("update",), f"{method.name} does {', '.join(order) or 'nothing'}", method.place)
        return {}
    flush, stamp = order.index(_FLUSH), order.index(_STAMP)
    if min(flush, stamp) < load:
        found.doubt(("update",), f"{method.name} does {', '.join(order)}", method.place)
    waits = [e for e in events[:load] if e.last in _WAITS]
    if any(e.guards for e in waits):
        found.doubt(("update", "waits_for_forward"), f"only where {said(waits[0].guards)}", waits[0].place)
    _conditions(found, method, events[flush], events[stamp])
    if not _passed_on(method):
        found.doubt(("update",), f"{method.name} does not answer what its flush says", method.place)
    stamps = "before-flush" if stamp < flush else "on-success"
    if stamps == "on-success" and not _after_flush(events[stamp].guards):
        found.doubt(
            ("update", "stamps"), f"{method.name} takes the version after the flush, refused or not", method.place
        )
    return {"flush": "immediate", "waits_for_forward": bool(waits), "stamps": stamps}


def _after_flush(guards: Sequence[Guard]) -> bool:
    return any(_FLUSHER in text and wanted for text, wanted in guards)


def _conditions(found: Findings, method: Method, flush: Event, stamp: Event) -> None:
    """A flush where one is asked for and something was loaded; a version where all was loaded."""
    for event in (flush, stamp):
        for text, wanted in event.guards:
            asked = short(text) == f"{MESSAGE}.flush_cache" and event is flush
            loaded = any(f"weight_updater.{name}()[0]" in text for name in LOADS) or text in {
                "success",
                "target_updated",
            }
            session = short(text) == "_session is None" and not wanted
            if not (wanted and (asked or loaded)) and not session and not _after_flush([(text, wanted)]):
                reason = f"{method.name}: {event.last} only where {said([(text, wanted)])}"
                found.doubt(("update",) if event is flush else ("update", "stamps"), reason, event.place)
    if not any(short(text) == f"{MESSAGE}.flush_cache" for text, _wanted in flush.guards):
        found.doubt(("update",), f"{method.name} flushes also where none is asked for", flush.place)


def _passed_on(method: Method) -> bool:
    """Whether the answer's `success` is what the flush left in it."""
    name = ""
    for node in ast.walk(method.node):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if ast.unparse(node.value.func).endswith(f".{_FLUSHER}") and isinstance(target, ast.Tuple):
                name = ast.unparse(target.elts[0])
    calls = [n for n in ast.walk(method.node) if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("ReqOutput")]
    answers = {ast.unparse(k.value) for n in calls for k in n.keywords if k.arg == "success"}
    return bool(name) and name in answers and answers <= {name, "False"}


def _refused(found: Findings, flusher: Method) -> str:
    """What the flush part of an update says where the flush is refused: the first part of what it returns."""
    parameters = [a.arg for a in flusher.node.args.args][1:]
    env = {parameters[0]: MESSAGE, "success": "before"} if parameters else {}
    walk = Walk(scope(**{f"{MESSAGE}.flush_cache": True, "flush_cache()": False}), lambda _name, _method: "note")
    walk.function(flusher, env)
    asked = [e for e in walk.events if e.kind == "call" and e.last == _FLUSH]
    if len(asked) != 1 or asked[0].guards:
        place = flusher.place
        found.doubt(("update",), "a flush that is asked for is not made exactly once", place)
    texts = {e.text for e in walk.events if e.kind == "return"}
    raises = any(e.kind == "raise" for e in walk.events)
    if raises:
        return "asserts"
    if all(text.startswith("(False,") for text in texts) and texts:
        return "fails"
    if any(not text.startswith(("(before,", "(True,")) for text in texts) or not texts:
        found.doubt(("update",), f"where the flush is refused it answers {', '.join(texts)}", flusher.place)
    return "succeeds"
