"""The protocol of pause, update, flush and continue, built from a profile for one configuration.

Atomicity: one pass of an event loop is one action (its primitives in order), each control message is one action (the
engine handles them in ingest, between passes), and each move of a device or a storage is one action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spec.checks import ACTORS
from spec.facts import Configuration, Move
from spec.ledger import Ledger
from spec.primitives import Flow, Primitives
from spec.profile import Profile
from spec.requests import MarkedRequest
from spec.terms import BoolTerm, conj, ite, nat, neg, total
from spec.tla import Action, Draft, Fairness, Sort, Spec, Variable

EVENT_LOOP = "EventLoop"


@dataclass(frozen=True)
class _Rule:
    """An action before it is drafted."""

    name: str
    actor: str
    engine: str
    body: Callable[[Draft], None]
    fair: Fairness = Fairness.NONE
    unit: str = ""
    help: bool = False


class Protocol(Primitives):
    """The state machine of one configuration.

    One entry of each ledger is followed; with `follow_request` also one request.
    """

    def __init__(self, profile: Profile, configuration: Configuration, *, follow_request: bool = False) -> None:
        """Choose what exists in this configuration. Raises SpecError where the profile contradicts itself."""
        self.profile = profile
        self.configuration = configuration
        self.loop = profile.loops[configuration.loop]
        self.mode = profile.pause[configuration.mode]
        self.storage = configuration.storage != "none"
        self.ledgers = {
            name: Ledger(name, facts)
            for name, facts in profile.ledgers.items()
            if facts.needs is None or (facts.needs == "storage" and self.storage)
        }
        self.mine = MarkedRequest() if follow_request else None
        self.variables = {variable.name: variable for variable in self._variables()}
        self.now = Draft(self.variables, "now")

    def _variables(self) -> Iterable[Variable]:
        flags = ["paused", "gate_closed", "flush_wanted", "deferred_pending", "last_batch", "watched", "recorded_idle"]
        if self.loop.result_queue:
            flags += ["result_pending", "forward_busy"]
        tiers = ["device", "host", *(["storage"] if self.storage else [])]
        ghosts = ["update_refused", "update_waiting", "unflushed", "version_split", "stale_running"]
        ghosts += [f"stale_{tier}" for tier in tiers]
        flags += [f"has_{tier}" for tier in tiers]
        counts = ["late", "waiting", "running"]
        counters = ["arrived", "answered", "forwards", "flushes", "loads", "updates_ok", "works"]
        if self.storage:
            counts += ["prefetch_retry", "prefetch_budget", "prefetch_orphan"]
            counters.append("lookups")
        if self.profile.requests.queue_limit or self.profile.requests.clocks_count_pause:
            counters.append("refused")
        yield from (Variable(name, Sort.BOOL) for name in flags)
        yield from (Variable(name, Sort.BOOL, ghost=True) for name in ghosts)
        yield from (Variable(name, Sort.NAT) for name in counts)
        yield from (Variable(name, Sort.NAT, ghost=True) for name in counters)
        for ledger in self.ledgers.values():
            yield from ledger.variables()
        if self.mine:
            yield from self.mine.variables()

    def spec(self) -> Spec:
        """The state machine: an idle engine that serves nothing yet, and every action of this configuration."""
        return Spec(
            name=self.profile.name,
            variables=tuple(self.variables.values()),
            init={v.name: False if v.sort is Sort.BOOL else 0 for v in self.variables.values()},
            actions=tuple(self._draft(rule) for rule in self._rules()),
            definitions={name: self.gate(self.now, name) for name in self.profile.gates},
        )

    def _draft(self, rule: _Rule) -> Action:
        draft = Draft(self.variables, rule.name)
        rule.body(draft)
        return draft.finish(actor=rule.actor, engine=rule.engine, fairness=rule.fair, unit=rule.unit, help=rule.help)

    def _rules(self) -> Iterable[_Rule]:
        f, weak = self.profile, Fairness.WEAK
        ingest = "srt/managers/scheduler.py:process_input_requests"
        wrapper = f.gates["deferred_flush"].source
        yield _Rule("Arrive", "client", "srt/managers/tokenizer_manager.py:generate_request", self.Arrive)
        yield _Rule("ArriveLate", "client", ingest, self.ArriveLate)
        yield _Rule("Pause", "trainer", self.mode.source, self.Pause)
        yield _Rule("Continue", "trainer", "srt/managers/scheduler.py:continue_generation", self.Continue, help=True)
        # The loop goes round, paused or not: a trainer that pauses and continues for ever does not stop it.
        yield _Rule("RunningPass", "scheduler", self.loop.source, self.RunningPass, weak, EVENT_LOOP)
        if self.mode.sets_flag and self.loop.honours_pause:
            yield _Rule("PausedPass", "scheduler", self.loop.source, self.PausedPass, weak, EVENT_LOOP)
        if "abort_all" in self.mode.steps:
            yield _Rule("AbortAgain", "tokenizer", self.mode.source, self.AbortAgain, weak)
        yield _Rule("FlushGranted", "trainer", f.flush.source, self.FlushGranted)
        yield _Rule("FlushRefused", "trainer", f.flush.source, self.FlushRefused)
        yield _Rule("DeferFlush", "trainer", wrapper, self.DeferFlush)
        yield _Rule("DeferredFlushGranted", "scheduler", wrapper, self.DeferredFlushGranted, weak)
        yield _Rule("DeferredFlushTimesOut", "clock", wrapper, self.DeferredFlushTimesOut, weak)
        yield from self._update_rules()
        if self.loop.result_queue:
            yield _Rule("ForwardDone", "device", f.primitives["launch"], self.ForwardDone, weak)
        if self.storage:
            yield _Rule("OrphanDone", "storage", f.prefetch.source, self.OrphanDone, weak)
        for ledger in self.ledgers.values():
            for move in ledger.facts.moves:
                if move.by in ACTORS:
                    yield self._environment_rule(ledger, move)
        if self.profile.requests.clocks_count_pause:
            yield _Rule("WaitingTimesOut", "clock", f.requests.source, self.WaitingTimesOut)
        if self.mine:
            mine = self.mine
            tokenizer = "srt/managers/tokenizer_manager.py:generate_request"
            yield _Rule("Park", "client", tokenizer, mine.Park)
            yield _Rule("Unpark", "tokenizer", tokenizer, lambda s: mine.Unpark(s, self), weak)
            yield _Rule("AbortMine", "client", "srt/managers/tokenizer_manager.py:abort_request", mine.AbortMine)

    def _update_rules(self) -> Iterable[_Rule]:
        source = self.profile.update.source
        if self.profile.update.flush == "immediate":
            # A second update is a new request of the trainer: help, as seen from the first.
            yield _Rule("UpdateFlushed", "trainer", source, self.UpdateFlushed, help=True)
            yield _Rule("UpdateRefused", "trainer", source, self.UpdateRefused)
        else:
            yield _Rule("UpdateAsked", "trainer", source, self.UpdateAsked)
            yield _Rule("UpdateAnswered", "scheduler", source, self.UpdateAnswered, Fairness.WEAK)

    def _environment_rule(self, ledger: Ledger, move: Move) -> _Rule:

        def body(s: Draft) -> None:
            ledger.move_first(s, move)
            if ledger.name == "backup":
                self.reaches_storage(s)

        name = f"{ACTORS[move.by]}({ledger.name}.{move.from_})"
        return _Rule(name, move.by, move.source, body, Fairness(move.fair))

    # ---- requests

    def Arrive(self, s: Draft) -> None:
        """A request passes the tokenizer's gate and is queued (`_add_request_to_queue`)."""
        s.when(neg(s.gate_closed))
        self.queue_one(s)

    def ArriveLate(self, s: Draft) -> None:
        """A request that passed the tokenizer's gate before the pause reaches the scheduler."""
        s.when(s.late > 0)
        s.late -= 1
        self.queue_one(s)

    # ---- control

    def Pause(self, s: Draft) -> None:
        """`pause_generation` of this mode; some requests are still between the tokenizer's gate and the scheduler."""
        s.when(neg(s.gate_closed))
        s.late += s.choose("late", meaning="requests past the tokenizer's gate")
        s.gate_closed = True
        s.paused = self.mode.sets_flag
        for step in self.mode.steps:
            self.primitive(step, s, Flow(result=s.result_pending if self.loop.result_queue else None, batch=s.running))
        if self.profile.watchdog.knows_pause:
            s.watched = conj(s.watched, neg(s.paused))

    def Continue(self, s: Draft) -> None:
        """`continue_generation`: nothing is checked. It waits for the answer of an update (`is_pause_cond`)."""
        s.when(s.gate_closed, neg(s.update_waiting))
        s.gate_closed = False
        s.paused = False
        s.flush_wanted = False
        if self.profile.watchdog.knows_pause:
            s.watched = s.last_batch

    def AbortAgain(self, s: Draft) -> None:
        """The abort mode repeats its abort until no request is left (`TokenizerManager.pause_generation`)."""
        s.when(s.gate_closed, s.waiting > 0)
        self.primitive("abort_all", s, Flow())

    def WaitingTimesOut(self, s: Draft) -> None:
        """`_poll_timeout_aborts`, in each ingest: requests that waited too long are aborted, the pause included."""
        behind = ite(s.mine_waiting, s.waiting - s.mine_ahead - 1, s.waiting) if self.mine else s.waiting
        s.when(s.paused, behind > 0)
        late = s.choose("late", low=1, high=behind, meaning="requests whose time is over")
        s.waiting -= late
        s.answered += late
        s.refused += late

    # ---- passes of the event loop

    def RunningPass(self, s: Draft) -> None:
        """One pass of the loop: not paused, where the loop looks at the flag."""
        if self.loop.honours_pause:
            s.when(neg(s.paused))
        flow = Flow()
        for step in self.loop.running:
            self.primitive(step, s, flow)

    def PausedPass(self, s: Draft) -> None:
        """One pass of the loop, paused: what stands before its `continue`."""
        s.when(s.paused)
        flow = Flow()
        for step in self.loop.paused:
            self.primitive(step, s, flow)

    # ---- flush

    def FlushGranted(self, s: Draft) -> None:
        """`/flush_cache` finds the gate open: the caches are reset."""
        s.when(neg(s.deferred_pending), self.gate(s, "flush"))
        self.reset(s)

    def FlushRefused(self, s: Draft) -> None:
        """`/flush_cache` finds the gate closed; from now on a flush is wanted."""
        s.when(neg(s.deferred_pending), neg(self.gate(s, "flush")))
        self.want_flush(s)

    def DeferFlush(self, s: Draft) -> None:
        """`/flush_cache?timeout=s` finds its gate closed and waits."""
        s.when(neg(s.deferred_pending), neg(self.gate(s, "deferred_flush")))
        s.deferred_pending = True

    def DeferredFlushGranted(self, s: Draft) -> None:
        """`check_pending`, in each ingest, finds the gate of the deferred flush open."""
        s.when(s.deferred_pending, self.gate(s, "deferred_flush"))
        s.deferred_pending = False
        self.reset(s)

    def DeferredFlushTimesOut(self, s: Draft) -> None:
        """The deadline of the deferred flush passes."""
        s.when(s.deferred_pending)
        s.deferred_pending = False
        self.want_flush(s)

    # ---- update

    def can_update(self, s: Draft) -> BoolTerm:
        """When an update reaches the scheduler: after the pause, or once no request is left (the writer lock)."""
        nobody = total(s.waiting, s.running, s.late) == 0
        return s.paused if self.mode.sets_flag else conj(s.gate_closed, nobody)

    def UpdateFlushed(self, s: Draft) -> None:
        """An update with `flush_cache=True` loads the weights and its one flush is granted."""
        s.when(self.can_update(s), self.gate(s, "flush"))
        self.load(s)
        self.reset(s)
        self.answer_update(s)

    def UpdateRefused(self, s: Draft) -> None:
        """An update with `flush_cache=True` loads the weights, then its one flush is refused: `success=False`."""
        s.when(self.can_update(s), neg(self.gate(s, "flush")))
        self.load(s)
        s.unflushed = True
        s.update_refused = True
        self.want_flush(s)

    def UpdateAsked(self, s: Draft) -> None:
        """An update arrives and waits for the gate (a profile whose update waits)."""
        s.when(self.can_update(s), neg(s.update_waiting))
        s.update_waiting = True

    def UpdateAnswered(self, s: Draft) -> None:
        """The waiting update finds the gate open: weights and caches change together."""
        s.when(s.update_waiting, self.gate(s, "flush"))
        self.load(s)
        self.reset(s)
        self.answer_update(s)

    # ---- device and storage

    def ForwardDone(self, s: Draft) -> None:
        """The forward that the overlap loop launched has left the device; its result may still wait."""
        s.when(s.forward_busy)
        s.forward_busy = False

    def OrphanDone(self, s: Draft) -> None:
        """A read that admission had cut off leaves the storage call."""
        s.when(s.prefetch_orphan > 0)
        s.prefetch_orphan -= 1

    def gate(self, s: Draft, name: str) -> BoolTerm:
        """Whether the gate is open (`Scheduler.is_fully_idle` with the caller's flags)."""
        facts = self.profile.gates[name]
        parts: list[BoolTerm] = [part for term in facts.waits_for for part in self.gate_term(s, term)]
        parts.append(s.waiting == 0 if facts.waiting == "always" else ite(s.paused, nat(0), s.waiting) == 0)
        return conj(*parts)

    def gate_term(self, s: Draft, term: str) -> list[BoolTerm]:
        """The conjuncts that one name in `waits_for` stands for; none where this configuration lacks it."""
        if term in self.profile.ledgers:
            ledger = self.ledgers.get(term)
            return [s[ledger.counter(stage)] == 0 for stage in ledger.facts.stages] if ledger else []
        if term not in self.variables:
            return []
        return [s[term] == 0 if self.variables[term].sort is Sort.NAT else neg(s[term])]
