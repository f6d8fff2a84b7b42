"""The claims of those properties that only some profiles say enough for, and where they have a meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from spec.concern import Part
from spec.protocol import Protocol
from spec.terms import BoolTerm, conj, disj, implies, neg
from spec.tla import Always, EachStep, Spec

RUNNING = "RunningPass"


Claims = Callable[[Protocol, Spec], Iterable[Part]]


def names_blockers(p: Protocol) -> str | None:
    """Whether the profile says what a refusal reports."""
    return None if p.profile.gates["flush"].names else "this profile does not say what a refused flush reports"


def refusal_explained(p: Protocol, spec: Spec) -> Iterable[Part]:
    """Where the gate is closed, one of the things that a refusal names is what closes it."""
    named = [neg(part) for term in p.profile.gates["flush"].names for part in _term(p, term)]
    yield Part(Always(implies(neg(spec.definitions["flush"]), disj(*named))))


def _term(p: Protocol, term: str) -> list[BoolTerm]:
    return [p.now.waiting == 0] if term == "waiting" else p.gate_term(p.now, term)


def ready_work_retired(p: Protocol, spec: Spec) -> Iterable[Part]:
    """The followed entry, ready when a running pass begins, is elsewhere when it ends."""
    others = frozenset(a.name for a in spec.actions) - {RUNNING}
    for name, ledger in p.ledgers.items():
        stages = [stage for stage in ledger.facts.stages if ledger.facts.metric[stage] == "ready"]
        stays = [conj(p.now[ledger.mark(s)], spec.primed(p.now[ledger.mark(s)])) for s in stages]
        yield Part(EachStep(neg(disj(*stays)), but=others), name)


def says_declines(p: Protocol) -> str | None:
    """Whether there are retries that are not sent."""
    if not p.storage:
        return "no storage: there are no lookups"
    return None if p.profile.prefetch.declines else "this profile sends every retry"


def retries_are_lookups(p: Protocol, _spec: Spec) -> Iterable[Part]:
    """No more attempts are spent than lookups are sent; those of a request that waits no longer are gone unspent."""
    after = p.after
    spent = p.now.prefetch_budget - after.prefetch_budget
    most = p.profile.prefetch.retry_attempts * after.waiting
    yield Part(EachStep(disj(spent <= after.lookups - p.now.lookups, after.prefetch_budget >= most)))


def nothing(_p: Protocol, _spec: Spec) -> Iterable[Part]:
    """A property of which only the concerns that a profile adds say anything."""
    return ()


def with_concerns(property_id: str, claims: Claims) -> Claims:
    """These claims, and what the concerns that a profile adds say of this property."""
    return lambda p, spec: chain(claims(p, spec), *(concern.claims(property_id) for concern in p.concerns))


def says_controls(p: Protocol) -> str | None:
    """Whether the profile speaks of control requests with a gate beside the flush."""
    if any(True for concern in p.concerns for _ in concern.claims("paused-controls-succeed")):
        return None
    return "this profile speaks of no control request with a gate beside the flush"


def says_pages(p: Protocol) -> str | None:
    """Whether the profile speaks of who owns pages."""
    if any(True for concern in p.concerns for _ in concern.claims("pages-conserved")):
        return None
    return "this model has no pages, only ledgers, tiers and requests"


def says_ranks(p: Protocol) -> str | None:
    """Whether there is another rank to be aligned with."""
    return "one rank: there is no collective to align" if p.configuration.ranks == 1 else None
