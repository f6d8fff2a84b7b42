"""The intake of requests, with which each pass begins: every message is handed to its handler, and answered."""

from __future__ import annotations

from checker.extract.facts import Findings, said, scope
from checker.extract.reading import short
from checker.extract.source import Method
from checker.extract.walk import Event, Guard, Walk
from checker.extract.words import SCHEDULER

_LOOPS = ("normal", "overlap")
_FUNCTIONS = ("ingest_requests", "process_input_requests")
# Under which conditions a message is handed over, and its answer sent: it is no probe of a busy engine's health, its
# images could be read, there is an answer, and not one for the RPC socket.
_USUAL = ("is_health_check_generate_req", "vmm", "_request_dispatcher() is None", "rust_server", "for ", "RpcReqOutput")


def intake(found: Findings) -> None:
    """Nothing is said of it in a profile; where it is not as the model takes it, everything rests on that."""
    ingest, process = (found.method(SCHEDULER, name) for name in _FUNCTIONS)
    if ingest is None or process is None:
        _doubt(found, f"there is no {SCHEDULER[1]}.{_FUNCTIONS[0 if ingest is None else 1]}", None)
        return
    events = _calls(found, ingest)
    received = [e for e in events if e.last == "recv_requests"]
    handed = [e for e in events if e.last == "_request_dispatcher"]
    answered = [e for e in events if e.last in {"send_control_output", "send_output"} and "recv_rpc" not in e.name]
    for what, calls, where in (
        ("requests are received", received, ingest),
        ("a message is handed to its handler", handed, process),
        ("an answer is sent", answered, process),
    ):
        if len(calls) != 1:
            _doubt(found, f"it is not so that {what} in one place", where)
        for event in calls:
            if extra := [g for g in event.guards if not _usual(g)]:
                _doubt(found, f"{what} only where {said(extra)}", where)
    if handed and not any(
        text.startswith("for ") and "_deferred_input_requests" in text for text, _wanted in handed[0].guards
    ):
        _doubt(found, "not every message that came is handed to its handler", process)


def _calls(found: Findings, ingest: Method) -> list[Event]:
    def decide(name: str, caller: Method) -> Method | str:
        if name.endswith(f".{_FUNCTIONS[1]}"):
            return found.called(name, caller) or "note"
        return "note"

    walk = Walk(scope(stop_at_pause=False), decide)
    walk.function(ingest, {"local_reqs": "local_reqs", "recv_reqs": "recv_reqs"})
    return [e for e in walk.events if e.kind == "call"]


def _usual(guard: Guard) -> bool:
    text = short(guard[0])
    return any(word in text for word in _USUAL)


def _doubt(found: Findings, reason: str, where: Method | None) -> None:
    for loop in _LOOPS:
        found.doubt(("loops", loop), f"the intake: {reason}", where)
