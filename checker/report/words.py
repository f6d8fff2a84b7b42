"""What the variables of the model mean, so that a state and a rank can be read without the spec beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from spec.peers import FIRST_PEER

_KNOWN: Mapping[str, str] = {
    "waiting": "requests that wait in the queue",
    "running": "requests in the running batch",
    "late": "requests past the tokenizer's gate, not yet in the queue",
    "last_batch": "a last batch is kept",
    "result_pending": "a launched batch waits to be processed",
    "forward_busy": "a launched forward is on the device",
    "paused": "the scheduler's pause flag",
    "gate_closed": "the tokenizer's gate is closed",
    "flush_wanted": "a flush was refused and is still wanted",
    "deferred_pending": "a flush_cache(timeout) waits",
    "update_waiting": "an update waits for the gate",
    "update_refused": "the flush of an update was refused",
    "unflushed": "new weights, caches not flushed since",
    "version_split": "scheduler and tokenizer have different versions",
    "prefetch_budget": "storage lookups that may still be tried again",
    "prefetch_retry": "lookups that wait to be tried again",
    "prefetch_orphan": "reads that admission cut off, still in the storage call",
    "prefix_lost": "a flush took the prefix that waiting requests had matched",
    "stale_running": "running requests hold KV of the old weights",
    "recorded_idle": "the record says idle",
    "watched": "the watchdog watches a batch",
    "arrived": "requests that ever arrived",
    "answered": "requests that ever were answered",
    "forwards": "forwards launched since the pause",
    "works": "background work started since the pause",
    "lookups": "storage lookups started",
    "flushes": "flushes granted",
    "loads": "weight loads",
    "updates_ok": "updates answered with success",
    "mine_parked": "the followed request is parked at the tokenizer's gate",
    "mine_waiting": "the followed request waits in the queue",
    "mine_ahead": "requests ahead of the followed one",
    "mine_running": "the followed request runs",
    "mine_todo": "tokens that the followed request still lacks",
    "mine_abort": "an abort of the followed request is unresolved",
    "mine_out": "the storage works for the followed request",
    "mine_told": "the storage has said how much it has for the followed request",
    "mine_found": "what the storage has for the followed request waits for a reap",
    "mine_landed": "the KV of the followed request is read, its side pool not yet",
    "mine_lost": "a flush took the prefix that the followed request had matched",
    "mine_revoked": "too little was found for the followed request",
    "refused": "requests that a pause turned away",
    "update_blind": "an update read the flag before the pause had reached it",
    "raised": "a handler has raised",
    "counted_twice": "requests stand in two batches",
    "doubled": "retracted requests stand in a queue that they will come to again",
    "spinning": "the loop lets no storage thread run",
    "wakes": "wakes under way from another replica",
    "released": "the memory of weights and KV is released",
    "detached": "the storage backend is detached",
    "clears": "clears answered with success",
    "session": "a weight-update session is open",
    "loading": "a load waits for its sender, and the scheduler with it",
    "turn": "a pass has run since the last load",
    "partial": "a failed load has written the weights in part",
    "kv_used": "pages that the allocator counts as used",
    "kv_fresh": "requests of the last prefill",
    "kv_ended": "requests that have ended and stand in the batch",
    "kv_twice": "pages that were freed twice",
    "freed_in_use": "pages were freed while an entry copied them",
    "entered": "collectives that this rank has entered",
    "consumed": "events that this rank has consumed",
}
# The stages of the ledgers of bundled profiles: what ends with one is the counter of a ledger.
STAGES = (
    "queued|submitted|ready|query|hit|parked|loading|done|held|waiting|receiving|sending|compiling|copying|staged|lookup"
    "|found|storing"
)
_PATTERNS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"peer(\d?)_entered"), "collectives that rank {0} has entered"),
    (re.compile(r"peer(\d?)_consumed"), "events that rank {0} has consumed"),
    (re.compile(r"peer(\d?)_done"), "copies that are done on rank {0} and not yet retired"),
    (re.compile(r"peer(\d?)_lacks"), "entries that rank {0} does not have"),
    (re.compile(r"peer(\d?)_short"), "requests that rank {0} has ended by its own clock"),
    (re.compile(r"peer(\d?)_forward"), "the forward of rank {0} is on its device"),
    (re.compile(r"mark_(\w+)_ahead"), "entries of {0} ahead of the followed one"),
    (re.compile(r"mark_(\w+)_([a-z]+)"), "the followed entry of {0} is {1}"),
    (re.compile(r"stale_(\w+)"), "{0} holds KV of the old weights"),
    (re.compile(r"has_(\w+)"), "{0} holds KV"),
    (re.compile(r"held_(\w+)"), "units of {0} that lookups hold"),
    (re.compile(r"wanted_(\w+)"), "a {0} was refused and is still wanted"),
    (re.compile(rf"(\w+)_({STAGES})"), "entries of {0} that are {1}"),
)


def meaning(name: str) -> str:
    """A variable in words; `~flag` is its negation. Empty for one that is not known here."""
    counted, _, flag = name.partition(" if ")
    if flag:
        parts = meaning(counted), meaning(flag)
        return ", while ".join(parts) if all(parts) else ""
    if name.startswith("~"):
        known = meaning(name[1:])
        return f"unless: {known}" if known else ""
    if name in _KNOWN:
        return _KNOWN[name]
    for pattern, text in _PATTERNS:
        if found := pattern.fullmatch(name):
            # The first of the other ranks has no number in its names.
            return text.format(*(part or str(FIRST_PEER) for part in found.groups()))
    return ""


_RANK = re.compile(r"rank (\(.*\))")


def ranks(reason: str) -> list[list[str]]:
    """The ranks in the reason of a proof, each as its components, the first of which weighs most; else nothing."""
    found = _RANK.fullmatch(reason)
    if found is None:
        return []
    return [[part.strip() for part in rank.split(",")] for rank in found[1].strip("()").split("); (")]


def component(text: str) -> str:
    """One component of a rank in words: a sum of variables, each with its factor."""
    told = []
    for part in text.split(" + "):
        factor, _, name = part.rpartition("*")
        sign, name = ("-", name[1:]) if name.startswith("-") else ("", name)
        words = meaning(name)
        if not words:
            return ""
        times = f"{factor} x " if factor else sign
        told.append(f"{times}{words}")
    return " + ".join(told)
