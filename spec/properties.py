"""The catalogue: what must hold of the protocol. Ids are stable: they are metric labels, alert and test names too.

A property is a list of claims over the protocol of one configuration; it is proved when all of them are. Where it has
no meaning in a configuration, `applies` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from spec.answers import abort_flush_succeeds, aborts, flush_tells_truth, update_answers
from spec.claims import (
    Claims,
    names_blockers,
    nothing,
    ready_work_retired,
    refusal_explained,
    retries_are_lookups,
    says_controls,
    says_declines,
    says_pages,
    says_ranks,
    with_concerns,
)
from spec.concern import Part
from spec.errors import UnknownNameError
from spec.protocol import Protocol
from spec.terms import BoolTerm, conj, disj, implies, neg, total
from spec.tla import Always, EachStep, FinitelyOften, LeadsTo, Spec

__all__ = ["Claims", "Part", "Property", "catalogue", "chosen"]


@dataclass(frozen=True)
class Property:
    """One entry of the catalogue."""

    id: str
    kind: str
    """safety or liveness."""
    statement: str
    claims: Claims
    needs_request: bool = False
    """Whether its claims follow one request."""
    applies: Callable[[Protocol], str | None] = lambda _protocol: None
    """None, or the reason why the property has no meaning in this configuration."""


def catalogue() -> Mapping[str, Property]:
    """Every property by its id, in the order in which they are shown."""
    return {p.id: p for p in _EVERY}


def chosen(ids: Iterable[str]) -> list[Property]:
    """The properties of these ids, or all. Raises UnknownNameError."""
    every = catalogue()
    wanted = list(dict.fromkeys(ids)) or list(every)
    for name in wanted:
        if name not in every:
            raise UnknownNameError("property", name, every)
    return [every[name] for name in wanted]


# ---- where a property has a meaning


def _retract_only(p: Protocol) -> str | None:
    if not p.mode.sets_flag:
        return "mode abort never sets the scheduler's flag"
    return None if "requeue" in p.mode.steps else f"mode {p.configuration.mode} keeps its running work"


def _pauses(p: Protocol) -> str | None:
    return None if p.mode.sets_flag else "mode abort never sets the scheduler's flag"


def _records(p: Protocol) -> str | None:
    return _pauses(p) or (None if p.loop.honours_pause else "this loop does not look at the flag: it serves on")


def _has_storage(p: Protocol) -> str | None:
    return _pauses(p) or (None if p.storage else "no storage: there are no lookups")


def _requests_kept(p: Protocol) -> str | None:
    return None if "abort_all" not in p.mode.steps else "mode abort ends requests by intent"


# ---- the claims


def _paused_flush_succeeds(p: Protocol, spec: Spec) -> Iterable[Part]:
    gate = spec.definitions["flush"]
    yield Part(LeadsTo(pending=conj(p.now.paused, p.now.flush_wanted), goal=disj(gate, neg(p.now.paused))))
    # New work is what is looked up in storage, and a request that enters a ledger: while paused a waiting request by
    # itself does not close the gate.
    calm = [_next(p, "lookups") == p.now.lookups] if p.storage else []
    if any(ledger.facts.created_by in ("arrive", "queue") for ledger in p.ledgers.values()):
        calm.append(_next(p, "arrived") == p.now.arrived)
    yield Part(EachStep(implies(conj(gate, p.now.paused, _next(p, "paused"), *calm), spec.primed(gate))))


def _update_flushes(p: Protocol, _spec: Spec) -> Iterable[Part]:
    asked = disj(p.now.update_waiting, p.now.update_refused)
    at_once = implies(_next(p, "loads") > p.now.loads, _next(p, "updates_ok") > p.now.updates_ok)
    yield Part(LeadsTo(pending=asked, goal=neg(asked)), instead=EachStep(at_once))


def _deferred_flush_agrees(_p: Protocol, spec: Spec) -> Iterable[Part]:
    flush, deferred = spec.definitions["flush"], spec.definitions["deferred_flush"]
    yield Part(Always(implies(flush, deferred)))
    yield Part(Always(implies(deferred, flush)), "no more")


def _ledgers_drain(p: Protocol, _spec: Spec) -> Iterable[Part]:
    for name, ledger in p.ledgers.items():
        marked = ledger.is_marked(p.now)
        yield Part(LeadsTo(pending=marked, goal=neg(marked)), name)


def _paused_work_ends(p: Protocol, _spec: Spec) -> Iterable[Part]:
    yield Part(FinitelyOften(during=p.now.paused, event=_next(p, "works") > p.now.works))


def _no_new_lookup(p: Protocol, _spec: Spec) -> Iterable[Part]:
    # What arrives late is looked up by the handler of its message, in ingest, not by a step of the paused pass.
    unchanged = _next(p, "lookups") == p.now.lookups
    yield Part(EachStep(implies(conj(p.now.paused, _next(p, "paused")), unchanged), but=frozenset({"ArriveLate"})))


def _control_answered(p: Protocol, _spec: Spec) -> Iterable[Part]:
    yield Part(LeadsTo(pending=p.now.deferred_pending, goal=neg(p.now.deferred_pending)))
    if p.update_waits():  # else it is answered in the handler that received it
        yield Part(LeadsTo(pending=p.now.update_waiting, goal=neg(p.now.update_waiting)), "update")


def _abort_answered(p: Protocol, _spec: Spec) -> Iterable[Part]:
    yield Part(LeadsTo(pending=p.now.mine_abort, goal=neg(p.now.mine_abort)))


def _requests_return(p: Protocol, _spec: Spec) -> Iterable[Part]:
    admitted = disj(p.now.mine_waiting, p.now.mine_running)
    # It stays resumed in the end: a run that pauses again is not what this speaks of.
    yield Part(LeadsTo(pending=admitted, goal=disj(neg(admitted), p.now.gate_closed)))
    parked = p.now.mine_parked
    yield Part(
        LeadsTo(pending=conj(parked, neg(p.now.gate_closed)), goal=disj(neg(parked), p.now.gate_closed)), "parked"
    )


def _requests_conserved(p: Protocol, _spec: Spec) -> Iterable[Part]:
    s = p.now
    yield Part(Always(s.arrived == total(s.waiting, s.running, s.answered)))
    if "refused" in s:
        yield Part(Always(s.refused == 0), "refused")


def _no_forward_while_paused(p: Protocol, _spec: Spec) -> Iterable[Part]:
    yield Part(EachStep(implies(p.now.paused, _next(p, "forwards") == p.now.forwards)))


def _no_forward_during_load(p: Protocol, _spec: Spec) -> Iterable[Part]:
    if "forward_busy" in p.now:
        yield Part(EachStep(implies(_next(p, "loads") > p.now.loads, neg(p.now.forward_busy))))
    else:
        # A loop without a result queue has no forward on the device between two passes, where updates are handled.
        yield Part(EachStep(implies(_next(p, "loads") > p.now.loads, _next(p, "forwards") == p.now.forwards)))


def _flush_only_when_quiescent(p: Protocol, _spec: Spec) -> Iterable[Part]:
    s = p.now
    dropped = p.profile.flush.drops
    flying = [one for name, one in p.ledgers.items() if name not in dropped and not one.facts.own_pages]
    busy = [s.running > 0, *(ledger.entries(s) > 0 for ledger in flying)]
    if "result_pending" in s:
        busy.append(s.result_pending)
    yield Part(EachStep(implies(_next(p, "flushes") > s.flushes, neg(disj(*busy)))))


def _no_stale_kv(p: Protocol, _spec: Spec) -> Iterable[Part]:
    stale = [p.now[f"stale_{tier}"] for tier in _tiers(p)]
    yield Part(EachStep(implies(_next(p, "forwards") > p.now.forwards, neg(disj(*stale, p.now.stale_running)))))


def _update_tells_truth(p: Protocol, spec: Spec) -> Iterable[Part]:
    old = disj(*(spec.primed(p.now[f"stale_{tier}"]) for tier in _tiers(p)))
    yield Part(EachStep(implies(_next(p, "updates_ok") > p.now.updates_ok, neg(old))))
    yield Part(EachStep(implies(_next(p, "forwards") > p.now.forwards, neg(p.now.unflushed))))
    yield from update_answers(p, spec)


def _versions_agree(p: Protocol, _spec: Spec) -> Iterable[Part]:
    yield Part(Always(neg(p.now.version_split)))


def _idle_is_true(p: Protocol, spec: Spec) -> Iterable[Part]:
    others = frozenset(a.name for a in spec.actions) - {"PausedPass"}
    idle = spec.primed(spec.definitions["deferred_flush"])
    yield Part(EachStep(_next(p, "recorded_idle") == idle, but=others))


def _engine_survives(p: Protocol, _spec: Spec) -> Iterable[Part]:
    s = p.now
    # A loop that goes on while paused counts on.
    if p.loop.honours_pause:
        yield Part(Always(neg(conj(s.paused, s.watched))), "watchdog")
    if p.storage and p.profile.flush.joins_storage_threads:
        # A reset joins the storage threads for ten seconds and raises where one is still in a call.
        yield Part(EachStep(implies(_next(p, "flushes") > s.flushes, s.prefetch_orphan == 0)), "prefetch")


def _next(p: Protocol, name: str) -> BoolTerm:
    return p.variables[name].next


def _tiers(p: Protocol) -> list[str]:
    return [tier for tier in ("device", "host", "storage", *p.profile.tiers) if f"stale_{tier}" in p.now]


_PROPERTIES = (
    Property(
        "paused-flush-succeeds",
        "liveness",
        "paused by retract and a flush wanted ~> the flush gate opens, or the engine resumes;"
        " and once open it stays open until new work arrives",
        _paused_flush_succeeds,
        applies=_retract_only,
    ),
    Property(
        "update-flushes",
        "liveness",
        "an update with flush_cache=True while paused by retract ~> it is answered with success",
        _update_flushes,
        applies=_retract_only,
    ),
    Property(
        "deferred-flush-agrees",
        "safety",
        "a flush with a time-out is granted in every state in which one without is",
        _deferred_flush_agrees,
    ),
    Property(
        "ledgers-drain",
        "liveness",
        "every entry of every ledger is retired, paused or not",
        _ledgers_drain,
    ),
    Property(
        "paused-work-ends",
        "liveness",
        "the background work started while paused is finite",
        _paused_work_ends,
        applies=_records,
    ),
    Property(
        "no-new-lookup-while-paused",
        "safety",
        "no paused step starts a storage lookup",
        _no_new_lookup,
        applies=_has_storage,
    ),
    Property(
        "control-answered",
        "liveness",
        "every control request that has a reply is answered",
        _control_answered,
    ),
    Property(
        "abort-answered",
        "liveness",
        "an aborted request ends with an output, also while paused or parked",
        _abort_answered,
        needs_request=True,
    ),
    Property(
        "requests-return",
        "liveness",
        "admitted, and the engine in the end stays resumed ~> finished, or aborted by its client",
        _requests_return,
        needs_request=True,
    ),
    Property(
        "requests-conserved",
        "safety",
        "no request vanishes, is duplicated, or is refused because of a pause",
        _requests_conserved,
        applies=_requests_kept,
    ),
    Property(
        "no-forward-while-paused",
        "safety",
        "no batch is launched from the scheduler's pause flag until continue",
        _no_forward_while_paused,
        applies=_pauses,
    ),
    Property(
        "no-forward-during-load",
        "safety",
        "no forward runs on the device while weights are written",
        _no_forward_during_load,
    ),
    Property(
        "flush-only-when-quiescent",
        "safety",
        "the caches are reset only when nothing reads or writes their pages",
        _flush_only_when_quiescent,
    ),
    Property(
        "no-stale-kv",
        "safety",
        "at each forward every page read, in any tier that fed it, has the current epoch",
        _no_stale_kv,
    ),
    Property(
        "update-tells-truth",
        "safety",
        "success: weights and caches are new. Failure: no forward before a successful retry or reset",
        _update_tells_truth,
    ),
    Property(
        "versions-agree",
        "safety",
        "after every reply scheduler and tokenizer report the same version",
        _versions_agree,
    ),
    Property(
        "pages-conserved",
        "safety",
        "free + cached + owned + in flight = total",
        nothing,
        applies=says_pages,
    ),
    Property(
        "ranks-aligned",
        "safety",
        "all ranks enter the same collectives in the same order",
        nothing,
        applies=says_ranks,
    ),
    Property(
        "idle-is-true",
        "safety",
        "the idle/active record is taken after the reap, and on the ledger terms it agrees with the gate",
        _idle_is_true,
        applies=_records,
    ),
    Property(
        "engine-survives",
        "safety",
        "no handler raises and no watchdog fires because of a pause, an update or a flush",
        _engine_survives,
    ),
    Property(
        "refusal-explained",
        "safety",
        "a refused flush names at least one of the things that block it",
        refusal_explained,
        applies=names_blockers,
    ),
    Property(
        "ready-work-retired",
        "safety",
        "what is ready when a running pass begins goes on in that pass: it is retired, or handed to the next stage",
        ready_work_retired,
    ),
    Property(
        "retries-are-lookups",
        "safety",
        "an attempt of a lookup is spent only where a lookup is sent",
        retries_are_lookups,
        applies=says_declines,
    ),
    Property(
        "flush-tells-truth",
        "safety",
        "a flush is refused, or waits, only where its gate is closed; granted, it leaves nothing in what it clears",
        flush_tells_truth,
    ),
    Property(
        "abort-flush-succeeds",
        "liveness",
        "paused by abort and no request left ~> the flush gate opens, or requests come again",
        abort_flush_succeeds,
        applies=aborts,
    ),
    Property(
        "paused-controls-succeed",
        "liveness",
        "paused by retract and a release, attach, detach or clear wanted ~> its gate opens, or the engine resumes",
        nothing,
        applies=lambda p: _retract_only(p) or says_controls(p),
    ),
)
_EVERY = tuple(replace(p, claims=with_concerns(p.id, p.claims)) for p in _PROPERTIES)
