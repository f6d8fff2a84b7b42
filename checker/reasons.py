"""Why a property is refuted, in one line and in the words of the engine, read off the confirmed counterexample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from checker.confirm import Confirmed
from spec.ledger import RETIRED
from spec.protocol import Protocol
from spec.split import split

State = Mapping[str, int | bool]


@dataclass(frozen=True)
class Reason:
    """One line; the ledger and the engine's function that it names, where it names one."""

    text: str
    ledger: str | None = None
    function: str | None = None


@dataclass(frozen=True)
class Case:
    """What a reason is read from."""

    protocol: Protocol
    run: Confirmed
    about: str
    method: str

    @property
    def before_last(self) -> State:
        """The state in which the last step was taken."""
        return self.run.steps[-2].state if len(self.run.steps) > 1 else self.run.initial

    def in_flight(self, state: State) -> list[str]:
        """The ledgers with entries, in the order of the profile."""
        return [
            name
            for name, ledger in self.protocol.ledgers.items()
            if any(state[ledger.counter(stage)] for stage in ledger.facts.stages)
        ]


def why(property_id: str, case: Case) -> Reason:
    """The reason; for a property without a rule of its own, its last step."""
    rule = _RULES.get(property_id)
    if rule is not None:
        return rule(case)
    return Reason(f"broken by {case.run.steps[-1].action}" if case.run.steps else "broken in the initial state")


def _stuck(case: Case) -> Reason:
    ledgers = case.in_flight(case.run.last)
    name = case.about or (ledgers[0] if ledgers else "")
    if not name:
        unheeded = "this loop does not look at the pause flag: requests are admitted, and run on, while paused"
        stopped = case.protocol.loop.honours_pause
        return Reason("nothing that can still move opens the gate" if stopped else unheeded)
    reaper = case.protocol.ledgers[name].facts.reaper
    loop = case.protocol.loop
    moves = case.protocol.ledgers[name].facts.moves
    reapers = {m.by for m in moves if m.to == RETIRED and m.by in case.protocol.profile.primitives}
    steps = {split(step)[0] for step in (*loop.paused, *loop.running)}
    here = loop.paused if case.run.last["paused"] else loop.running
    if "spinning" in case.run.last and "yield" not in here:
        return Reason(f"{name}: the loop spins and no storage thread gets the interpreter", name, reaper)
    if not reapers & steps:
        return Reason(f"{name} is reaped by no step of this loop", name, reaper)
    if loop.honours_pause and not reapers & set(loop.paused) and case.run.last["paused"]:
        return Reason(f"{name} is reaped by no paused step", name, reaper)
    if "retry" in case.protocol.loop.paused:
        return Reason(f"{name}: a paused pass looks up storage again and again, without a limit", name, reaper)
    return Reason(f"{name} never drains", name, reaper)


def _refused_control(case: Case) -> Reason:
    protocol, state = case.protocol, case.run.last
    gate = protocol.profile.gates[case.about]
    blocking = [name for name in case.in_flight(state) if name in gate.waits_for]
    if not blocking and state["waiting"]:
        return Reason(f"waiting requests block {case.about}, paused or not", None, gate.source)
    name = blocking[0] if blocking else ""
    return Reason(f"{case.about} waits for what no paused step retires: {name}", name or None, gate.source)


def _update_flushes(case: Case) -> Reason:
    state: State = case.run.initial
    for step in case.run.steps:
        if step.action == "UpdateRefused":
            ledgers = case.in_flight(state)
            name = ledgers[0] if ledgers else None
            what = f"{name} is in flight" if name else "the gate is closed"
            return Reason(f"the flush of an update is one immediate attempt, refused while {what}", name)
        state = step.state
    return _stuck(case)


def _abort(case: Case) -> Reason:
    if case.run.last["mine_parked"]:
        function = "srt/managers/tokenizer_manager.py:abort_request"
        return Reason("an abort of a request parked at the tokenizer's gate has no effect", None, function)
    text = "a running request's abort is resolved by its next result, and none comes"
    return Reason(text, None, case.protocol.profile.primitives["process"])


def _old(case: Case, state: State) -> list[str]:
    """The tiers that hold what older weights computed."""
    every = ("device", "host", "storage", *case.protocol.profile.tiers)
    return [tier for tier in every if state.get(f"stale_{tier}")]


def _stale(case: Case) -> Reason:
    state = case.before_last
    tiers = _old(case, state)
    if state["stale_running"]:
        tiers.append("running requests")
    refused = ", since the flush of the update was refused" if state["unflushed"] else ""
    return Reason(f"a forward may read KV of the old weights from {', '.join(tiers)}{refused}")


def _truth(case: Case) -> Reason:
    unfinished = {
        "partial": "a forward runs on weights that a failed update has written in part",
        "session": "a forward runs while a weight-update session is open: the weights are not yet laid out for use",
    }
    if case.about in unfinished:
        return Reason(unfinished[case.about])
    if case.about:
        return Reason(f"what the update answers is not what it did: {case.about}, in {case.run.steps[-1].action}")
    if case.run.steps[-1].action in ("UpdateFlushed", "UpdateAnswered"):
        tiers = _old(case, case.run.last)
        return Reason(f"the update is answered with success while {', '.join(tiers)} still holds the old weights' KV")
    if not case.run.last["update_refused"] and not case.before_last["update_refused"]:
        return Reason("the update is answered with success although its flush was refused")
    return Reason("a forward runs after an update whose flush was refused")


def _versions(_case: Case) -> Reason:
    text = "the scheduler stamps the new version before a flush that is refused; the tokenizer keeps the old one"
    return Reason(text)


def _deferred(case: Case) -> Reason:
    if case.about:
        return Reason("a deferred flush is granted what an immediate one is refused")
    return Reason("a waiting request blocks the deferred flush, and while paused not the immediate one")


_RAISED: Mapping[str, str] = {
    "UpdateRefused": "the update asserts that its flush is granted",
    "ReleaseRefused": "the release of memory asserts that the engine is idle",
    "RunningPass": "a retracted request comes again to a queue that it never left",
    "ResumeRefused": "the resume of memory takes back what was not released",
}


def _survives(case: Case) -> Reason:
    if case.about == "raised":
        last = case.run.steps[-1].action
        if last in _RAISED:
            return Reason(_RAISED[last], None, case.protocol.spec().action(last).engine)
        return Reason("the pause merges into a running batch that is not there", None, case.protocol.mode.source)
    if case.about == "released":
        return Reason("a forward is launched while the memory of weights and KV is released", None)
    if case.about == "watchdog":
        return Reason("the watchdog takes a paused batch for a hang", None, case.protocol.profile.watchdog.source)
    text = "a reset joins a storage thread that is still in a call which admission had cut off, and raises"
    return Reason(text, "prefetch", case.protocol.profile.flush.source)


def _lookup(case: Case) -> Reason:
    return Reason("a paused pass retries storage lookups", "prefetch", case.protocol.profile.primitives["retry"])


def _work(case: Case) -> Reason:
    paused = case.protocol.loop.paused
    if "retry" in paused and case.protocol.storage:
        return _lookup(case)
    text = f"paused passes begin work without end: they run {', '.join(paused)}"
    return Reason(text, None, case.protocol.loop.source)


def _idle(case: Case) -> Reason:
    return Reason("the idle record is taken before the reap", None, case.protocol.profile.primitives["record"])


def _load(case: Case) -> Reason:
    source = case.protocol.profile.update.source
    return Reason("weights are written while the launched forward is still on the device", None, source)


def _quiescent(case: Case) -> Reason:
    ledgers = case.in_flight(case.before_last)
    what = ledgers[0] if ledgers else "the running batch"
    return Reason(f"the caches are reset while {what} is in flight", ledgers[0] if ledgers else None)


def _conserved(case: Case) -> Reason:
    source = case.protocol.profile.requests.source
    if case.run.steps[-1].action == "WaitingTimesOut":
        return Reason("the time-out of waiting requests counts the pause", None, source)
    return Reason("a retract counts running requests among the queued and turns some away", None, source)


def _forward(case: Case) -> Reason:
    if case.run.steps[-1].action == "Woken":
        return Reason("a replica that has acknowledged the pause is woken by another", None)
    return Reason("this loop does not look at the pause flag", None, case.protocol.loop.source)


def _unexplained(case: Case) -> Reason:
    ledgers = case.in_flight(case.run.last)
    what = ledgers[0] if ledgers else "the running batch"
    gate = case.protocol.profile.gates["flush"]
    text = f"a refusal reports only {', '.join(gate.names)}, while {what} is in flight"
    return Reason(text, ledgers[0] if ledgers else None, gate.source)


def _not_at_once(case: Case) -> Reason:
    facts, loop = case.protocol.ledgers[case.about].facts, case.protocol.loop
    movers = {move.by for move in facts.moves if facts.metric[move.from_] == "ready"}
    when = dict(split(step) for step in loop.running)
    for mover in sorted(movers & set(when)):
        if when[mover]:
            return Reason(f"{case.about} is reaped only {_WHILE[when[mover]]}", case.about, facts.reaper)
    return Reason(f"{case.about}: a running pass leaves behind what was ready when it began", case.about, facts.reaper)


_WHILE: Mapping[str, str] = {
    "waiting": "while a request waits",
    "admitted": "in a pass that admits a request",
    "work": "while there is work",
}


def _declined(case: Case) -> Reason:
    source = case.protocol.profile.prefetch.source
    return Reason("a retry that is not sent uses up an attempt of its budget", "prefetch", source)


def _flush(case: Case) -> Reason:
    texts = {
        "empties": "a granted flush leaves something behind",
        "refused": "a flush is refused while its gate is open",
        "waits": "a flush with a time-out waits while its gate is open",
        "clear": "a clear is answered with success while the storage holds pages, or a write to it is under way",
    }
    text = texts.get(case.about, f"what a flush answers is not what it did: {case.about}")
    return Reason(f"{text}, in {case.run.steps[-1].action}", None, case.protocol.profile.flush.source)


def _pages(case: Case) -> Reason:
    last = case.run.steps[-1].action
    texts = {
        "owned": "the allocator counts pages that no request owns, or owns",
        "freed twice": "pages of a request that had ended are freed again",
        "in use": "pages are freed while an entry copies them",
        "two batches": "requests of the last batch stand in two batches",
    }
    text = texts.get(case.about, f"{case.about}: what lookups hold is not what is in flight")
    return Reason(f"{text}, after {last}")


def _apart(case: Case) -> Reason:
    texts = {
        "collectives": "one rank enters the collective of the reap, the other does not",
        "events": "the ranks consume different numbers of events in one pass",
        "entries": "an entry is made on one rank only",
        "batch": "one rank has ended a request by its own clock",
        "update": "an update begins while the forward of another rank is on its device",
    }
    return Reason(texts[case.about], None)


def _control(case: Case) -> Reason:
    if case.about == "load":
        return Reason("an update waits for a sender that sends nothing more, and the scheduler with it", None)
    if case.about != "update":
        return Reason("a deferred flush is never answered")
    update = case.protocol.profile.update
    if update.lock:
        return Reason("an update waits for a lock that paused requests hold", None, update.source)
    return Reason("an update waits for a gate that paused requests keep closed", None, update.source)


def _returns(case: Case) -> Reason:
    if case.about == "parked":
        return Reason("a request parked at the tokenizer's gate stays there when the gate is open")
    if case.run.last.get("mine_landed"):
        return Reason("a request waits for the read of a side pool, which its time-out does not end", "prefetch")
    if case.run.last.get("mine_revoked"):
        return Reason("a request waits for a lookup that was revoked", "prefetch")
    return Reason(f"broken by {case.run.steps[-1].action}")


_RULES: Mapping[str, Callable[[Case], Reason]] = {
    "paused-flush-succeeds": _stuck,
    "ledgers-drain": _stuck,
    "paused-controls-succeed": _refused_control,
    "update-flushes": _update_flushes,
    "abort-answered": _abort,
    "no-stale-kv": _stale,
    "update-tells-truth": _truth,
    "versions-agree": _versions,
    "deferred-flush-agrees": _deferred,
    "engine-survives": _survives,
    "no-new-lookup-while-paused": _lookup,
    "paused-work-ends": _work,
    "idle-is-true": _idle,
    "no-forward-during-load": _load,
    "flush-only-when-quiescent": _quiescent,
    "requests-conserved": _conserved,
    "no-forward-while-paused": _forward,
    "pages-conserved": _pages,
    "ranks-aligned": _apart,
    "control-answered": _control,
    "requests-return": _returns,
    "refusal-explained": _unexplained,
    "ready-work-retired": _not_at_once,
    "retries-are-lookups": _declined,
    "flush-tells-truth": _flush,
    "abort-flush-succeeds": _stuck,
}
