"""What the tables for concerns beyond the core may say: names that refer to something, values that are modelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spec.split import split

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
        yield ("peers", "ledger"), peers.ledger, ["write_through"]
        yield ("peers", "copies"), peers.copies, ["agreed", "per-rank"]
        yield ("peers", "acks"), peers.acks, ["agreed", "per-rank"]
        yield ("peers", "enters"), peers.enters, ["always", "in-flight"]
        yield ("peers", "clocks"), peers.clocks, ["one", "per-rank"]
    if profile.waves:
        yield ("waves", "pause"), profile.waves.pause, ["alone", "agreed"]


_PASSES = ("paused", "running")
Problem = tuple[tuple[str, ...], str]
# Whose moves of a ledger another primitive of the model itself makes, and the one ledger that it makes them of.
_MOVES_OF = {"launch": "load_back", "process": "write_through", "retry": "", "record": ""}


def problems(profile: Profile) -> Iterator[Problem]:
    """What is said and would do nothing, or less than it says: where it stands, and what is wrong with it."""
    steps = [(("loops", name, key), getattr(loop, key)) for name, loop in profile.loops.items() for key in _PASSES]
    steps += [(("pause", name, "steps"), mode.steps) for name, mode in profile.pause.items()]
    for keys, names in steps:
        yield from ((keys, text) for step in names if (text := _of_step(profile, *split(step))))
    for name, ledger in profile.ledgers.items():
        for move in ledger.moves:
            if _MOVES_OF.get(move.by, name) != name:
                yield ("ledgers", name, "moves"), f"{move.by} makes no move of this ledger"
    if profile.update.flush == "waits" and profile.update.lock in {"pause", "requests", "one-shot"}:
        yield ("update", "lock"), f"{profile.update.lock!r} is asked before a flush, and this one waits for its gate"


def _of_step(profile: Profile, plain: str, condition: str) -> str:
    if plain == "yield" and not profile.threads:
        return "yield needs the table threads"
    if plain == "merge" and not profile.merge:
        return "merge needs the table merge"
    if condition and plain in {"schedule", "launch"}:
        return f"{plain} takes no condition: what it hands to the next step has none"
    apart = profile.peers is not None and profile.peers.enters == "in-flight"
    if condition and plain == "reap" and (profile.lookup_wait or apart):
        return "reap takes no condition beside lookup_wait, or peers that enter in-flight"
    return ""
