"""What the tables for concerns beyond the core may say: names that refer to something, values that are modelled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from spec.facts import ACTORS
from spec.split import split

if TYPE_CHECKING:
    from spec.facts_controls import Clear, Gated
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
    yield from _of_controls(profile)


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
    if profile.resend:
        yield ("resend", "starts"), profile.resend.starts, profile.ledgers
    if profile.waves:
        yield ("waves", "pause"), profile.waves.pause, ["alone", "agreed"]


def gates_of_controls(profile: Profile) -> list[str]:
    """The gates of its own that each control request of the profile needs."""
    return [name for name, facts in _gated(profile) if facts.gate == name]


def _gated(profile: Profile) -> Iterator[tuple[str, Gated | Clear]]:
    controls = profile.controls
    if controls:
        found = (("release", controls.release), ("attach", controls.attach), ("detach", controls.detach))
        yield from ((name, one) for name, one in (*found, ("clear", controls.clear)) if one is not None)


def _of_controls(profile: Profile) -> Iterator[Reference]:
    for name, one in _gated(profile):
        yield ("controls", name, "gate"), one.gate, [name, *([""] if name == "clear" else ["flush", "deferred_flush"])]
    controls = profile.controls
    if controls and controls.release:
        yield ("controls", "release", "refused"), controls.release.refused, ["raises", "fails"]
    if controls and controls.resume:
        yield ("controls", "resume", "refused"), controls.resume.refused, ["raises", "fails"]
    if session := profile.update_session:
        yield ("update_session", "waits"), session.waits, ["for-ever", "deadline"]
        yield ("update_session", "unfinished"), session.unfinished, ["served", "refused"]
    if profile.requeue:
        yield ("requeue", "ledger"), profile.requeue.ledger, profile.ledgers
    for name, ledger in profile.ledgers.items():
        yield from ((("ledgers", name, "ends_with"), event, ["abort", "retract"]) for event in ledger.ends_with)
    for name, tier in profile.tiers.items():
        yield from ((("tiers", name, "filled_by"), event, ["admit", "finish", "retract"]) for event in tier.filled_by)


_PASSES = ("paused", "running")
Problem = tuple[tuple[str, ...], str]
# Whose moves of a ledger another primitive of the model itself makes, and the one ledger that it makes them of.
_MOVES_OF = {"launch": "load_back", "process": "write_through", "retry": "", "record": ""}


# Whose moves start no entry of another ledger in the model.
_START_NOTHING = {"schedule", "process", "launch", *ACTORS}


def problems(profile: Profile) -> Iterator[Problem]:
    """What is said and would do nothing, or less than it says: where it stands, and what is wrong with it."""
    steps = [(("loops", name, key), getattr(loop, key)) for name, loop in profile.loops.items() for key in _PASSES]
    steps += [(("pause", name, "steps"), mode.steps) for name, mode in profile.pause.items()]
    for keys, names in steps:
        yield from ((keys, text) for step in names if (text := _of_step(profile, *split(step))))
        plain = [split(step)[0] for step in names]
        yield from ((keys, f"{one} stands twice") for one in dict.fromkeys(plain) if plain.count(one) > 1)
    for name, ledger in profile.ledgers.items():
        for move in ledger.moves:
            if move.by in _START_NOTHING and move.starts:
                yield ("ledgers", name, "moves"), f"a move by {move.by} starts nothing"
            if move.fragments and not move.starts:
                yield ("ledgers", name, "moves"), "fragments says how many are started, and nothing is: needs starts"
            if _MOVES_OF.get(move.by, name) != name:
                yield ("ledgers", name, "moves"), f"{move.by} makes no move of this ledger"
    yield from _of_controls_problems(profile)
    yield from _of_tiers_problems(profile)
    released = {"reject" in holding.released_by for holding in profile.holdings.values()}
    if profile.requests.rejected_after_lookup and len(released) > 1:
        yield ("holdings",), "must agree about reject: a lookup that is rejected has one thread"
    if profile.update.flush == "waits" and profile.update.lock in {"pause", "requests", "one-shot"}:
        yield ("update", "lock"), f"{profile.update.lock!r} is asked before a flush, and this one waits for its gate"


def _of_tiers_problems(profile: Profile) -> Iterator[Problem]:
    for name in profile.tiers:
        if not name.isidentifier() or name in {"device", "host", "storage", "held", "running"}:
            yield ("tiers", name), "names variables: letters, digits and underscores, and no tier of the model's own"


def _of_controls_problems(profile: Profile) -> Iterator[Problem]:
    controls = profile.controls
    if controls is None:
        return
    if controls.resume and not controls.release:
        yield ("controls", "resume"), "needs controls.release: nothing else releases memory"
    if controls.attach and not controls.detach:
        yield ("controls", "attach"), "needs controls.detach: a storage is attached from the start"
    stored = "detach" if controls.detach else "clear" if controls.clear else ""
    if stored and profile.configuration.storage != ("file",):
        yield ("controls", stored), "needs configuration.storage to be file alone"
    if controls.detach and profile.requests.rejected_after_lookup:
        yield ("controls", "detach"), "is not modelled beside requests.rejected_after_lookup"


def _of_step(profile: Profile, plain: str, condition: str) -> str:
    if plain == "yield" and not profile.threads:
        return "yield needs the table threads"
    if plain == "merge" and not profile.merge:
        return "merge needs the table merge"
    if condition and plain in {"schedule", "launch"}:
        return f"{plain} takes no condition: what it hands to the next step has none"
    apart = profile.peers is not None and profile.peers.enters == "in-flight"
    if condition and plain == "reap" and apart:
        return "reap takes no condition beside peers that enter in-flight"
    return ""
