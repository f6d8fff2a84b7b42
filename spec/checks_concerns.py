"""What the tables for concerns beyond the core may say: names that refer to something, values that are modelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec.profile import Profile

Reference = tuple[tuple[str, ...], str, Iterable[str]]
_PAGES = ("device", "host", "request")


def added_references(profile: Profile) -> Iterator[Reference]:
    """Where a name stands, the name, and what it may be."""
    update = profile.update
    yield from ((("flush", "drops"), name, profile.ledgers) for name in profile.flush.drops)
    yield ("update", "refused"), update.refused, ["fails", "asserts", "succeeds"]
    yield ("update", "lock"), update.lock, ["", "abort", "pause", "requests", "one-shot"]
    for name, ledger in profile.ledgers.items():
        for key in ("touches", "locks"):
            yield from ((("ledgers", name, key), pages, _PAGES) for pages in getattr(ledger, key))
    yield from _of_pages(profile)
    yield from _of_lookups(profile)
    yield from _of_others(profile)


def _of_pages(profile: Profile) -> Iterator[Reference]:
    if profile.accounts:
        yield from ((("accounts", "frees"), part, ["committed", "ahead"]) for part in profile.accounts.frees)
        yield from ((("accounts", "covers"), part, ["running", "fresh"]) for part in profile.accounts.covers)
    if profile.eviction:
        yield from ((("eviction", "tiers"), tier, ["device", "host"]) for tier in profile.eviction.tiers)


def _of_lookups(profile: Profile) -> Iterator[Reference]:
    for name, holding in profile.holdings.items():
        yield from ((("holdings", name, "of"), one, [*profile.ledgers, "threads"]) for one in holding.of)
        ends = ["retire", "revoke", "abort", "reject", "detach"]
        yield from ((("holdings", name, "released_by"), one, ends) for one in holding.released_by)
    if profile.detach:
        terms = ["running", "last_batch", "result_pending", *profile.ledgers]
        yield from ((("detach", "waits_for"), term, terms) for term in profile.detach.waits_for)
        yield from ((("detach", "clears"), one, profile.ledgers) for one in profile.detach.clears)
    if profile.lookup_wait:
        yield ("lookup_wait", "deadline"), profile.lookup_wait.deadline, ["nothing", "main", "all"]


def _of_others(profile: Profile) -> Iterator[Reference]:
    if peers := profile.peers:
        yield ("peers", "ledger"), peers.ledger, profile.ledgers
        yield ("peers", "copies"), peers.copies, ["agreed", "per-rank"]
        yield ("peers", "acks"), peers.acks, ["agreed", "per-rank"]
        yield ("peers", "enters"), peers.enters, ["always", "in-flight"]
        yield ("peers", "clocks"), peers.clocks, ["one", "per-rank"]
    if profile.waves:
        yield ("waves", "pause"), profile.waves.pause, ["alone", "agreed"]
