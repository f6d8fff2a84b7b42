"""What several ranks agree on: which collective a reap enters and when, who polls the clocks, what an update waits for.

The profile of one rank has no table `peers`; what is found here is told beside it, in the words of that table.
"""

from __future__ import annotations

from checker.extract.facts import Findings, named, said, scope
from checker.extract.ledgers import read_reap
from checker.extract.messages import bound, handler
from checker.extract.updates import LOADS, MESSAGES
from checker.extract.walk import Event, Walk
from checker.extract.words import SCHEDULER, TREE

_REDUCES = ("_all_reduce", "_all_reduce_attn_groups")


def collectives(found: Findings) -> None:
    """The facts of `peers`, but for the copies that a rank makes."""
    _reap(found)
    _clocks(found)
    _barrier(found)


def _reap(found: Findings) -> None:
    reap = read_reap(found)
    if reap is None:
        found.doubt(("peers",), f"there is no {TREE[1]}.check_hicache_events")
        return
    entered = [e for e in reap.calls(*_REDUCES) if not any("is None" in text and wanted for text, wanted in e.guards)]
    acks, enters = ("peers", "acks"), ("peers", "enters")
    place = entered[0].place if entered else reap.method.place
    found.say(("peers", "source"), reap.method.place.source, reap.method.place)
    found.say(acks, "agreed" if entered else "per-rank", place)
    if len(entered) > 1:
        found.doubt(acks, f"a reap enters {len(entered)} collectives: {', '.join(map(named, entered))}", place)
    for event in entered:
        if not str(event.arguments.get("1", event.arguments.get("op"))).endswith(".MIN"):
            found.doubt(acks, f"it does not take the least of all ranks: {named(event)}", event.place)
        if event.guards and not any("ongoing_" in text or "queue" in text for text, _wanted in event.guards):
            found.doubt(enters, f"the collective is entered only where {said(event.guards)}", event.place)
    guarded = bool(entered) and bool(entered[0].guards)
    found.say(enters, "in-flight" if guarded else "always", place)
    inner = found.method(TREE, _REDUCES[1])
    walk = Walk(scope(), lambda _name, _method: "note")
    if inner:
        walk.function(inner)
    if not any(e.name == "torch.distributed.all_reduce" for e in walk.events):
        found.doubt(acks, f"{_REDUCES[1]} enters no collective", inner)


def _clocks(found: Findings) -> None:
    method = found.method(SCHEDULER, "ingest_requests")
    walk = Walk(scope(), lambda name, _method: "note" if name.endswith("_poll_timeout_aborts") else "skip")
    if method:
        walk.function(method)
    polls = [e for e in walk.events if e.kind == "call"]
    if len(polls) != 1:
        found.doubt(("peers", "clocks"), "the intake polls no time-outs, or more than once", method)
        return
    first = any(text.endswith("tp_rank == 0") and wanted for text, wanted in polls[0].guards)
    found.say(("peers", "clocks"), "one" if first else "per-rank", polls[0].place)


def _barrier(found: Findings) -> None:
    """Whether every update waits for all ranks before it loads."""
    key = ("peers", "update_barrier")
    waits: list[bool] = []
    for message in MESSAGES:
        method = handler(found, message)
        if method is None:
            continue
        walk = Walk(scope(), lambda _name, _method: "note")
        walk.function(method, bound(method))
        calls: list[Event] = [e for e in walk.events if e.kind == "call"]
        load = next((n for n, e in enumerate(calls) if e.last in LOADS), len(calls))
        waits.append(any(e.last == "barrier" for e in calls[:load]))
        found.say(key, all(waits), method.place)
    if len(set(waits)) > 1 or not waits:
        found.doubt(key, "the ways to update differ in it" if waits else "nothing updates")
