"""Claims about the spec itself: without them the catalogue would say less than it seems to.

They are no properties of an engine and have no ids: no metric, no page. `bookkeeping` must be proved: what is followed
is one of what is counted, and counters that only claims read count what they say. `reachable` must be refuted: each is
the claim that something never happens, so that its counterexample is a run in which it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from spec.concern import Part
from spec.facts import ACTORS
from spec.ledger import RETIRED, Ledger
from spec.protocol import Protocol
from spec.split import split
from spec.terms import BoolTerm, conj, disj, implies, ite, nat, neg, same, total
from spec.tla import Action, Always, EachStep, Spec

PASSES = ("RunningPass", "OthersPass", "WaitingPass", "PausedPass")


def bookkeeping(p: Protocol, spec: Spec) -> Iterator[Part]:
    """Claims that must be proved: of the ledgers, or of the followed request where there is one."""
    if p.storage:
        yield from _of_lookups(p, spec)
    if p.mine:
        yield from _of_request(p)
        yield from (_is_counted(p, ledger) for ledger in _from_arrivals(p))
        return
    for ledger in p.ledgers.values():
        yield from _of_entry(p, spec, ledger)
    yield Part(Always(implies(p.now.flush_wanted, p.now.paused)), "wanted while paused")
    yield Part(Always(implies(p.now.stale_running, p.now.running > 0)), "who runs is stale")
    yield Part(Always(implies(conj(p.now.last_batch, neg(p.now.paused)), p.now.watched)), "what is served is watched")
    yield from _of_tiers(p, spec)
    yield from _of_loads(p, spec)
    yield from _of_closed_gates(p, spec)
    # TypeOK is assumed by every proof, and checked where one is made: here, of those that no ledger has.
    names = ("late", "waiting", "running", "prefetch_retry", "prefetch_budget", "prefetch_orphan")
    yield from (Part(Always(p.now[name] >= 0), f"{name} is natural") for name in names if name in p.now)


def _from_arrivals(p: Protocol) -> list[Ledger]:
    """The ledgers in which a request starts an entry when it is queued."""
    return [x for name, x in p.ledgers.items() if name == "prefetch" or x.facts.created_by == "arrive"]


def _is_counted(p: Protocol, ledger: Ledger) -> Part:
    s, stages = p.now, ledger.facts.stages
    inside = [implies(s[ledger.mark(x)], s[ledger.ahead] < s[ledger.counter(x)]) for x in stages]
    alone = [neg(conj(a, b)) for a, b in combinations([s[ledger.mark(x)] for x in stages], 2)]
    return Part(Always(conj(*inside, *alone)), f"{ledger.name} is counted")


def _of_entry(p: Protocol, spec: Spec, ledger: Ledger) -> Iterator[Part]:
    """The followed entry is one of those that are counted, and none that is followed vanishes."""
    s, after, name = p.now, p.after, ledger.name
    yield _is_counted(p, ledger)
    moved = [m for m in ledger.facts.moves if m.by in ACTORS and m.to != RETIRED]
    for move in moved:
        holds = implies(ledger.is_marked(s), ledger.is_marked(after))
        yield from _only(spec, f"{ACTORS[move.by]}({name}.{move.from_})", holds, f"{name} is kept")
    detach = p.profile.detach
    if detach and name in detach.waits_for:
        kept = implies(ledger.is_marked(s), ledger.is_marked(after))
        yield from _only(spec, "Detach", kept, f"{name} is not dropped")
    begins = conj(neg(ledger.is_marked(s)), ledger.is_marked(after))
    yield Part(EachStep(implies(conj(begins, after.paused), after.works > s.works)), f"{name} is work")


def _of_lookups(p: Protocol, spec: Spec) -> Iterator[Part]:
    """Each lookup is counted, and each request that is queued has its attempts."""
    s, after, prefetch = p.now, p.after, p.ledgers["prefetch"]
    begins = conj(neg(prefetch.is_marked(s)), after[prefetch.mark(prefetch.facts.stages[0])])
    yield Part(EachStep(implies(begins, after.lookups > s.lookups)), "lookups")
    attempts = p.profile.prefetch.retry_attempts
    if attempts > 1 and not p.profile.prefetch.declines:
        sent, budget = after.lookups - s.lookups, after.prefetch_budget - s.prefetch_budget
        queued = ite(after.waiting > s.waiting, after.waiting - s.waiting, nat(0))
        given = conj(same(budget, attempts * queued), sent <= queued)
        yield Part(EachStep(given, frozenset(PASSES) | {"RejectLate"}), "attempts")
        most = attempts * after.waiting  # what is left of the requests that wait
        for name in PASSES:
            yield from _only(spec, name, disj(same(-budget, sent), same(after.prefetch_budget, most)), "attempts")


def _of_tiers(p: Protocol, spec: Spec) -> Iterator[Part]:
    """What a copy brings is there, and is no younger than what it was copied from."""
    s, after = p.now, p.after
    ways = {"write_through": ("host", "device"), "load_back": ("device", "host"), "prefetch": ("host", "storage")}
    for name, (to, source) in ways.items():
        if name not in p.ledgers:
            continue
        ledger = p.ledgers[name]
        for stage in (m.from_ for m in ledger.facts.moves if m.to == RETIRED and m.by == "reap"):
            came = conj(s[ledger.mark(stage)], neg(ledger.is_marked(after)))
            old = implies(s[f"stale_{source}"], after[f"stale_{to}"])
            for one in PASSES:
                yield from _only(spec, one, implies(came, conj(after[f"has_{to}"], old)), f"{name} arrives")
    if p.storage and p.profile.storage.key == "tokens":
        kept = conj(after.has_storage, implies(s.stale_host, after.stale_storage))
        for move in p.ledgers["backup"].facts.moves:
            if move.by == "storage":
                yield from _only(spec, f"StorageDone(backup.{move.from_})", kept, "backup arrives")


def _of_loads(p: Protocol, spec: Spec) -> Iterator[Part]:
    """What a tier, or a running request, holds when weights are written is old afterwards, but for what is cleared."""
    s, after = p.now, p.after
    kept = [tier for tier in ("device", "host") if not p.profile.update.tags_tree]
    kept += ["storage"] if p.storage and p.profile.storage.key == "tokens" else []
    for name in ("UpdateRefused", "UpdateUnflushed", "UpdateFlushed", "UpdateAnswered"):
        cleared = () if name in ("UpdateRefused", "UpdateUnflushed") else p.profile.flush.clears
        old = [implies(s[f"has_{tier}"], after[f"stale_{tier}"]) for tier in kept if tier not in cleared]
        yield from _only(spec, name, conj(implies(s.running > 0, after.stale_running), *old), f"what {name} makes old")


def _of_closed_gates(p: Protocol, spec: Spec) -> Iterator[Part]:
    """What is for a closed gate touches nobody who comes once it is open; weights are written under a lock."""
    s, after = p.now, p.after
    for name in ("AbortAgain", "WaitingTimesOut"):
        yield from _only(spec, name, implies(after.answered > s.answered, after.gate_closed), f"{name} comes in time")
    if not p.profile.update.lock:  # the others are about who holds it
        nobody = conj(s.gate_closed, total(s.waiting, s.running, s.late) == 0)
        yield Part(EachStep(implies(after.loads > s.loads, disj(s.paused, nobody))), "weights are locked")


def _of_request(p: Protocol) -> Iterator[Part]:
    """The followed request is one of those that are counted, and ends only with an answer."""
    s, after = p.now, p.after
    places = [s.mine_parked, s.mine_waiting, s.mine_running]
    alone = [neg(conj(a, b)) for a, b in combinations(places, 2)]
    counted = [
        implies(s.mine_waiting, s.mine_ahead < s.waiting),
        implies(s.mine_running, conj(s.running > 0, s.mine_todo > 0)),
        implies(s.mine_abort, disj(s.mine_parked, s.mine_running, s.mine_waiting)),
    ]
    yield Part(Always(conj(*alone, *counted)), "the request is counted")
    yield Part(Always(s.arrived == total(s.waiting, s.running, s.answered)), "requests")
    inside, later = disj(*places), disj(after.mine_parked, after.mine_waiting, after.mine_running)
    yield Part(EachStep(implies(conj(inside, neg(later)), after.answered > s.answered)), "the request is answered")


def reachable(p: Protocol, spec: Spec) -> Iterator[Part]:
    """Claims that must be refuted: each action can be taken and changes something; what is followed can go its way."""
    if p.mine:
        yield from _ways_of_request(p, spec)
        unpark = [action for action in spec.actions if action.name == "Unpark"]
        yield from (part for ledger in _from_arrivals(p) for part in _starts(p, spec, ledger, unpark))
        return
    for action in spec.actions:
        yield from _only(spec, action.name, _changes_nothing(action, spec), action.name)
    for ledger in p.ledgers.values():
        yield from _starts(p, spec, ledger, spec.actions)
        yield from _ways_of_entry(p, spec, ledger)


def _changes_nothing(action: Action, spec: Spec) -> BoolTerm:
    return conj(*(same(v.next, v.now) for v in spec.variables if v.name in action.updates))


def _starts(p: Protocol, spec: Spec, ledger: Ledger, actions: Iterable[Action]) -> Iterator[Part]:
    """A new entry can be followed from each action that starts one, and there can be others before it."""
    s, after = p.now, p.after
    for action in actions:
        if any(choice.name == f"follow_{ledger.name}" for choice in action.choices):
            starts = conj(neg(ledger.is_marked(s)), ledger.is_marked(after), after[ledger.ahead] > 0)
            yield from _only(spec, action.name, neg(starts), f"{ledger.name} starts in {action.name}")


def _ways_of_entry(p: Protocol, spec: Spec, ledger: Ledger) -> Iterator[Part]:
    """It goes each way, in each pass that has the way."""
    s, after = p.now, p.after
    steps = {"RunningPass": p.loop.running, "PausedPass": p.loop.paused}
    for name, run in steps.items():
        made = {split(step)[0] for step in run}
        for move in ledger.facts.moves:
            if move.by in made and move.to != RETIRED:
                goes = conj(s[ledger.mark(move.from_)], after[ledger.mark(move.to)])
                yield from _only(spec, name, neg(goes), f"{ledger.name} {move.from_} in {name}")


def _ways_of_request(p: Protocol, spec: Spec) -> Iterator[Part]:
    """A request can be followed from each action in which one comes; it goes each way."""
    s, after = p.now, p.after
    waits = conj(neg(s.mine_waiting), after.mine_waiting)
    ways = [(name, conj(waits, after.mine_ahead > 0)) for name in ("Arrive", "ArriveLate", "Unpark")]
    ways += [("Pause", conj(waits, after.mine_ahead > 0))] if "requeue" in p.mode.steps else []
    ways.append(("RunningPass", conj(s.mine_waiting, after.mine_running)))
    ways.append(("RunningPass", conj(s.mine_running, neg(after.mine_running))))
    ways.append(("RunningPass", conj(s.mine_running, after.mine_running, after.mine_todo < s.mine_todo)))
    for number, (name, way) in enumerate(ways):
        yield from _only(spec, name, neg(way), f"the request, way {number} in {name}")
    for action in spec.actions:
        if action.name in ("Park", "Unpark", "AbortMine"):
            yield from _only(spec, action.name, _changes_nothing(action, spec), action.name)


def _only(spec: Spec, name: str, holds: BoolTerm, about: str) -> Iterable[Part]:
    names = frozenset(action.name for action in spec.actions)
    if name in names:
        yield Part(EachStep(holds, but=names - {name}), about)
