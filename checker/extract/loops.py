"""The event loops: what a paused and a running pass does after ingest, and whether a loop looks at the flag."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checker.extract.admission import skips_finishing
from checker.extract.facts import Findings, named, primitive, said, scope
from checker.extract.reading import short
from checker.extract.source import Method
from checker.extract.walk import Event, Guard, Walk
from checker.extract.words import NAMED, SCHEDULER

_FLAG = "_engine_paused"
_BATCH = "get_next_batch_to_run().batch_to_run"
_STEPS = ("reap", "retry", "schedule", "launch", "process", "record")
# In which cases the model itself lets a primitive do nothing: no batch was formed, no result waits, no storage.
_MODELLED: Mapping[str, frozenset[Guard]] = {
    "reap": frozenset(),
    "retry": frozenset({("enable_hicache_storage", True)}),
    "schedule": frozenset({("_should_defer_prefill()", False)}),
    "launch": frozenset({(_BATCH, True)}),
    "process": frozenset({(_BATCH, True), ("last_batch", True)}),
    "record": frozenset(),
}
_STATE = ("running_batch", "last_batch", "chunked_req", "waiting_queue", "cur_batch_for_debug", _FLAG)
# The watchdog looks at the last of these.
_KEPT = {
    ("last_batch", _BATCH),
    ("running_batch", "get_next_batch_to_run().running_batch"),
    ("cur_batch_for_debug", _BATCH),
}


@dataclass(frozen=True)
class Pass:
    """One pass of a loop: its steps in order, whether results wait in a queue, and what could not be read."""

    steps: tuple[str, ...]
    queued: bool
    asks_flag: bool
    odd: tuple[str, ...]
    record: Event | None


def loops(found: Findings) -> None:
    """Both loops of the profile, by what the dispatcher calls."""
    dispatch = found.source.module_function(SCHEDULER[0], "_dispatch_event_loop_once")
    for name, overlap in (("normal", False), ("overlap", True)):
        method = _dispatched(found, dispatch, overlap=overlap)
        if method is None:
            found.doubt(("loops", name), "the dispatcher starts no loop that can be found", dispatch)
            continue
        _loop(found, name, method)
        if overlap:
            skips_finishing(found, method)
    _primitives(found)


def _dispatched(found: Findings, dispatch: Method | None, *, overlap: bool) -> Method | None:
    if dispatch is None:
        return None
    walk = Walk(scope(enable_overlap=overlap), lambda _name, _method: "note")
    walk.function(dispatch)
    calls = [e for e in walk.events if e.kind == "call" and not e.guards and e.name.startswith("scheduler.")]
    return found.method(SCHEDULER, calls[0].last) if len(calls) == 1 else None


def _loop(found: Findings, name: str, method: Method) -> None:
    rounds = [n for n in method.node.body if isinstance(n, ast.While)]
    key = ("loops", name)
    if len(rounds) != 1 or not isinstance(rounds[0].test, ast.Constant):
        found.doubt(key, "it is not one endless loop", method.place)
        return
    paused = read_pass(found, method, rounds[0], paused=True)
    running = read_pass(found, method, rounds[0], paused=False)
    found.say((*key, "source"), method.place.source, method.place)
    honours = paused.asks_flag
    if not honours:
        found.say((*key, "honours_pause"), value=False, place=method.place)
    for part, one in (("paused", paused), ("running", running)):
        steps = one.steps if honours or part == "running" else ()
        found.say((*key, part), list(steps), method.at(rounds[0]))
        for reason in one.odd:
            found.doubt((*key, part), reason, method.place)
    found.say((*key, "result_queue"), running.queued, method.at(rounds[0]))
    if name == "normal" and paused.record:
        found.say(("primitives", "record"), paused.record.place.source, paused.record.place)


def read_pass(found: Findings, method: Method, loop: ast.While, *, paused: bool) -> Pass:
    """One pass, with the flag set or not."""
    walk = Walk(scope(**{_FLAG: paused}), found.follow_or_note)
    env: dict[str, object] = {}
    preamble = Walk(walk.scope, found.follow_or_note)
    before = [n for n in method.node.body if n is not loop]
    preamble.statements(method, before, env)
    walk.statements(method, loop.body, env)
    asked = _FLAG in walk.asked
    events = [e for e in walk.events if e.kind != "return"]
    odd: list[str] = [f"before the loop: {named(e)}" for e in preamble.events if _alien(e)]
    events = _after_ingest(events, odd)
    steps, record = _steps(events, odd, paused=paused)
    queued = _queued(events, odd)
    _check_state(events, odd, moves=bool({"schedule", "launch"} & set(steps)))
    return Pass(tuple(steps), queued, asked, tuple(dict.fromkeys(odd)), record)


def _alien(event: Event) -> bool:
    if event.kind == "store":
        return short(event.name) in _STATE
    return event.kind in {"call", "raise", "delete"}


def _after_ingest(events: Sequence[Event], odd: list[str]) -> list[Event]:
    """Without ingest, which must be there once, for all that waits."""
    ingests = [e for e in events if primitive(e.name) == "ingest"]
    if len(ingests) != 1 or ingests[0].guards or ingests[0].arguments:
        odd.append("it does not take in all requests exactly once in each pass")
    first = events.index(ingests[0]) if ingests else 0
    odd.extend(f"before ingest: {named(e)}" for e in events[:first] if e.kind == "call")
    return [e for e in events if e not in ingests]


def _steps(events: Sequence[Event], odd: list[str], *, paused: bool) -> tuple[list[str], Event | None]:
    steps: list[str] = []
    query: Event | None = None
    written: set[tuple[Guard, ...]] = set()
    for event in events:
        if event.kind in {"raise", "delete"}:
            odd.append(f"{event.kind} {named(event)} {said(event.guards)}")
        if event.kind != "call":
            continue
        kind = primitive(event.name)
        if kind == "query" and paused:
            if event.guards or event.arguments or query:
                odd.append(f"the record is not taken once, plainly: {named(event)}")
            query = event
            steps.append("record")
        elif kind == "write-record":
            written.add(event.guards)
        elif kind in _STEPS:
            _step(event, kind, steps, odd)
        elif kind in {"put", "take"}:
            continue  # _queued
        else:
            odd.append(f"{named(event)} is neither known nor known to be irrelevant")
    if query and {g[-1][1] for g in written if g} != {True, False}:
        odd.append("the paused pass asks whether the engine is idle, and does not record both answers")
    return steps, query


def _step(event: Event, primitive: str, steps: list[str], odd: list[str]) -> None:
    extra = {(short(text), wanted) for text, wanted in event.guards} - _MODELLED[primitive]
    if extra:
        odd.append(f"{primitive} runs only where {said(sorted(extra))} ({event.place})")
    if primitive in steps:
        odd.append(f"{primitive} runs more than once ({event.place})")
        return
    steps.append(primitive)


def _queued(events: Sequence[Event], odd: list[str]) -> bool:
    """Whether a launched batch waits in the queue until a later pass processes it."""
    puts = [e for e in events if primitive(e.name) == "put"]
    takes = [e for e in events if primitive(e.name) == "take"]
    launched = [e for e in events if primitive(e.name) == "launch"]
    processed = [e for e in events if primitive(e.name) == "process"]
    from_queue = {"result_queue.popleft()" in str(e.arguments.get("1", "")) for e in processed}
    if len(from_queue) > 1:
        odd.append("some results are taken from the queue, and some are not")
    queued = bool(puts) or from_queue == {True}
    if queued and launched:
        after = [e for e in puts if events.index(e) > events.index(launched[0])]
        if [e.guards for e in after] != [launched[0].guards] or len(puts) != 1:
            odd.append("not every launched batch is put into the queue of results, once")
        if len(takes) != len(processed) or from_queue != {True}:
            odd.append("not every result that is taken from the queue is processed")
    return queued


def _check_state(events: Sequence[Event], odd: list[str], *, moves: bool) -> None:
    """What a pass writes to the state that the protocol is about: the batch that it formed, and nothing else."""
    stores = {(short(e.name), short(e.text)) for e in events if e.kind == "store" and short(e.name) in _STATE}
    own = {store for store in stores if store[0] in {"last_batch", "running_batch", "cur_batch_for_debug", _FLAG}}
    odd.extend(f"it sets {name} to {value}" for name, value in sorted(own - _KEPT))
    if moves:
        odd.extend(f"it does not keep {value} as {name}" for name, value in sorted(_KEPT - own))


def _primitives(found: Findings) -> None:
    """Where the functions are that the primitives are named after."""
    for word, (of, name) in NAMED.items():
        method = found.method(of, name)
        if method is None:
            found.doubt(("primitives", word), f"there is no {of[1]}.{name}")
            continue
        found.say(("primitives", word), method.place.source, method.place)
