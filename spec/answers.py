"""Claims about the answers of control requests: that they tell the truth, and that a flush in the end gets one."""

from __future__ import annotations

from collections.abc import Iterable

from spec.concern import Part
from spec.protocol import Protocol
from spec.terms import BoolTerm, conj, disj, implies, neg, total
from spec.tla import EachStep, LeadsTo, Spec


def of_action(spec: Spec, name: str, holds: BoolTerm, about: str) -> Iterable[Part]:
    """What must hold of each step of one action; nothing where there is no such action."""
    names = frozenset(action.name for action in spec.actions)
    if name in names:
        yield Part(EachStep(holds, but=names - {name}), about)


def flush_tells_truth(p: Protocol, spec: Spec) -> Iterable[Part]:
    """A flush is refused, or waits, only where its gate is closed; granted, it leaves nothing behind."""
    s, after = p.now, p.after
    flushed = after.flushes > s.flushes
    cleared = [neg(after[f"{what}_{tier}"]) for tier in p.profile.flush.clears for what in ("has", "stale")]
    dropped = [p.ledgers[name].entries(after) == 0 for name in p.profile.flush.drops if name in p.ledgers]
    lookups = [after.prefetch_retry == 0] if p.storage else []
    lookups += [after.prefetch_orphan == 0] if p.storage and p.profile.flush.joins_storage_threads else []
    left = [neg(after.unflushed), neg(after.flush_wanted), *lookups, *dropped]
    yield Part(EachStep(implies(flushed, conj(*cleared, *left))), "empties")
    begins = conj(neg(s.flush_wanted), after.flush_wanted)
    yield Part(EachStep(implies(begins, disj(neg(spec.definitions["flush"]), s.deferred_pending))), "refused")
    waits = conj(neg(s.deferred_pending), after.deferred_pending)
    yield Part(EachStep(implies(waits, neg(spec.definitions["deferred_flush"]))), "waits")
    once = conj(s.deferred_pending, neg(after.deferred_pending), flushed)
    yield from of_action(spec, "DeferredFlushGranted", once, "granted once")
    # A flush that was refused while paused stays wanted, however it was refused.
    wanted = implies(s.paused, after.flush_wanted)
    yield from of_action(spec, "FlushRefused", wanted, "wanted")
    yield from of_action(spec, "UpdateRefused", wanted, "wanted after an update")
    ended = conj(s.deferred_pending, neg(after.deferred_pending), wanted)
    yield from of_action(spec, "DeferredFlushTimesOut", ended, "timed out")


def update_answers(p: Protocol, spec: Spec) -> Iterable[Part]:
    """Success puts right what was refused before; a refused flush is said, of weights that were written."""
    s, after = p.now, p.after
    right = [neg(after.version_split), neg(after.update_refused), neg(after.update_waiting)]
    flushed = [after.flushes > s.flushes, neg(after.unflushed)]
    yield Part(EachStep(implies(after.updates_ok > s.updates_ok, conj(after.loads > s.loads, *right))), "success")
    for name in ("UpdateFlushed", "UpdateAnswered"):
        yield from of_action(spec, name, conj(*flushed, after.updates_ok > s.updates_ok), "flushed")
    said = disj(after.update_refused, after.updates_ok > s.updates_ok)
    yield from of_action(spec, "UpdateRefused", conj(after.loads > s.loads, after.unflushed, said), "refused")


def abort_flush_succeeds(p: Protocol, spec: Spec) -> Iterable[Part]:
    """No request is left, and none comes: what is in flight ends, and the gate opens."""
    s = p.now
    quiet = conj(s.gate_closed, total(s.waiting, s.running, s.late) == 0)
    yield Part(LeadsTo(pending=quiet, goal=disj(spec.definitions["flush"], neg(s.gate_closed))))


def aborts(p: Protocol) -> str | None:
    """Whether the pause leaves the loop running and takes its requests away."""
    if p.mode.sets_flag:
        return f"mode {p.configuration.mode} sets the scheduler's flag"
    return None
