"""A granted flush: which caches it clears, whether it joins the storage threads; and that a refused one says so."""

from __future__ import annotations

from collections.abc import Sequence

from checker.extract.facts import Findings, named, said, scope
from checker.extract.reading import short
from checker.extract.source import Method
from checker.extract.walk import Event, Walk
from checker.extract.words import PRIMITIVES, SCHEDULER, irrelevant

# What must be cleared, so that a tier holds nothing any more; all of it, or not at all.
_TIERS = {
    "device": ("tree_core.reset", "token_to_kv_pool_allocator.clear", "req_to_token_pool.clear"),
    "host": ("mem_pool_host.clear",),
}
_CLEARS = tuple(name for names in _TIERS.values() for name in names)
_SILENT = ("reset", "clear", "start", "put_nowait", "set", "is_alive", "put", "empty_cache", "clear_cache_pool")
# Objects that come with the caches: sessions, grammars, queues of the storage threads, the threads started anew.
_ALSO = ("StoragePrefetchRetries", "Queue", "threading.Thread", "RuntimeError", "reset_aux_cache_allocator")


def flushes(found: Findings) -> None:
    """The facts of `flush`."""
    method = found.method(SCHEDULER, "flush_cache")
    if method is None:
        found.doubt(("flush",), f"there is no {SCHEDULER[1]}.flush_cache")
        return
    granted, refused = _walk(found, method, idle=True), _walk(found, method, idle=False)
    found.say(("flush", "source"), method.place.source, method.place)
    _clears(found, method, granted)
    _joins(found, method, granted)
    _answers(found, method, granted, refused)


def _walk(found: Findings, method: Method, *, idle: bool) -> list[Event]:
    def decide(name: str, caller: Method) -> Method | str:
        last = name.rpartition(".")[2]
        if short(name) in _CLEARS or last == "join" or (last in PRIMITIVES and last != "is_fully_idle"):
            return "note"
        if last == "is_fully_idle" or name.startswith("getattr("):
            return "skip"
        target = found.called(name, caller)
        if target is None and (last in _SILENT or name in _ALSO or last in _ALSO or irrelevant(name)):
            return "skip"
        return target or "note"

    walk = Walk(scope(**{"is_fully_idle()": idle}), decide)
    walk.function(method)
    return walk.events


def _clears(found: Findings, method: Method, granted: Sequence[Event]) -> None:
    key, whole = ("flush", "clears"), ("flush",)
    calls = [e for e in granted if e.kind == "call"]
    done = {short(e.name): e for e in calls if short(e.name) in _CLEARS}
    tiers = []
    for tier, names in _TIERS.items():
        cleared = [name for name in names if name in done]
        if len(cleared) == len(names):
            tiers.append(tier)
        elif cleared:
            missing = ", ".join(sorted(set(names) - set(cleared)))
            found.doubt(key, f"of {tier} it does not clear {missing}", method.place)
    found.say(key, tiers, method.place)
    for name, event in done.items():
        if event.guards:
            found.doubt(key, f"{name} is cleared only where {said(event.guards)}", event.place)
    for event in calls:
        if short(event.name) not in _CLEARS and event.last != "join":
            found.doubt(whole, f"{named(event)} is neither known nor known to be irrelevant", event.place)
    emptied = {short(e.name) for e in granted if e.kind == "store" and e.text == "None" and not e.guards}
    for name in sorted({"last_batch", "cur_batch_for_debug"} - emptied):
        found.doubt(whole, f"it does not forget {name}", method.place)


def _joins(found: Findings, method: Method, granted: Sequence[Event]) -> None:
    """Whether it waits for the storage threads and raises where one does not end."""
    joins = [e for e in granted if e.last == "join" and e.chain[-1] == "_stop_storage_threads"]
    raises = [e for e in granted if e.kind == "raise" and e.chain[-1] == "_stop_storage_threads"]
    place = joins[0].place if joins else method.place
    found.say(("flush", "joins_storage_threads"), bool(joins), place)
    if bool(joins) != bool(raises):
        reason = "it waits for the storage threads, and goes on where one does not end"
        found.doubt(("flush",), reason, place)
    for event in joins:
        if "timeout" not in event.arguments:
            found.doubt(("flush",), "it waits for a storage thread for ever", event.place)


def _answers(found: Findings, method: Method, granted: Sequence[Event], refused: Sequence[Event]) -> None:
    """True where it was granted and False where not; a refused flush changes nothing."""
    key = ("flush",)
    for events, wanted in ((granted, "True"), (refused, "False")):
        texts = {e.text for e in events if e.kind == "return" and len(e.chain) == 1}
        if texts != {wanted}:
            what = "granted" if wanted == "True" else "refused"
            found.doubt(key, f"where it is {what} it answers {', '.join(sorted(texts)) or 'nothing'}", method.place)
    for event in refused:
        if event.kind in {"call", "store", "raise"}:
            found.doubt(key, f"where it is refused, {event.kind} {named(event)}", event.place)
