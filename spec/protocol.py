"""The protocol of pause, update, flush and continue, built from a profile for one configuration.

Atomicity: one pass of an event loop is one action (its primitives in order), each control message is one action (the
engine handles them in ingest, between passes), and each move of a device or a storage is one action.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spec.concern import EVENT_LOOP, Rule
from spec.concerns import concerns_of
from spec.draft import Draft
from spec.facts import ACTORS, LOOKUP_ENDS, Configuration, Move
from spec.ledger import Ledger
from spec.profile import Profile
from spec.requests import MarkedRequest
from spec.steps import Flow
from spec.terms import NEXT, BoolTerm, conj, disj, ite, minus, nat, neg, total
from spec.tla import Action, Fairness, Sort, Spec, Variable
from spec.updates import Updates

_HANDLED = ("scheduler", "trainer", "client", "tokenizer")
"""Whose steps the scheduler takes or answers: none of them while it is kept in a handler."""


class Protocol(Updates):
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
        # A reap counts what lookups gave back before it looks at any that gives more back.
        first = sorted(profile.ledgers.items(), key=lambda item: item[1].created_by != LOOKUP_ENDS)
        self.ledgers = {
            name: Ledger(name, facts)
            for name, facts in first
            if facts.needs is None or {"storage": self.storage, "host": configuration.host_mode != "none"}[facts.needs]
        }
        self.mine = MarkedRequest(profile.requests) if follow_request else None
        self.concerns = concerns_of(self)
        self.variables = {variable.name: variable for variable in self._variables()}
        self.now = Draft(self.variables, "now")
        self.after = Draft({name: Variable(name + NEXT, v.sort) for name, v in self.variables.items()}, "after")

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
            flags += ["prefix_lost"] if self.loses_prefixes else []
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
        yield from self.update_variables()
        for concern in self.concerns:
            yield from concern.variables()

    def spec(self) -> Spec:
        """The state machine: an idle engine that serves nothing yet, and every action of this configuration."""
        return Spec(
            name=self.profile.name,
            variables=tuple(self.variables.values()),
            init={v.name: False if v.sort is Sort.BOOL else 0 for v in self.variables.values()},
            actions=tuple(self._draft(rule) for rule in self._rules()),
            definitions={name: self.gate(self.now, name) for name in self.profile.gates},
        )

    def _draft(self, rule: Rule) -> Action:
        draft = Draft(self.variables, rule.name)
        if rule.actor in _HANDLED:
            draft.when(*(neg(part) for concern in self.concerns for part in concern.halts(draft)))
        rule.body(draft)
        return draft.finish(actor=rule.actor, engine=rule.engine, fairness=rule.fair, unit=rule.unit, help=rule.help)

    def _rules(self) -> Iterable[Rule]:
        f, weak = self.profile, Fairness.WEAK
        ingest = "srt/managers/scheduler.py:process_input_requests"
        wrapper = f.gates["deferred_flush"].source
        yield Rule("Arrive", "client", "srt/managers/tokenizer_manager.py:generate_request", self.Arrive)
        yield Rule("ArriveLate", "client", ingest, self.ArriveLate)
        yield Rule("Pause", "trainer", self.mode.source, self.Pause)
        yield Rule("Continue", "trainer", "srt/managers/scheduler.py:continue_generation", self.Continue, help=True)
        yield from self._pass_rules()
        if "abort_all" in self.mode.steps:
            yield Rule("AbortAgain", "tokenizer", self.mode.source, self.AbortAgain, weak)
        yield Rule("FlushGranted", "trainer", f.flush.source, self.FlushGranted)
        yield Rule("FlushRefused", "trainer", f.flush.source, self.FlushRefused)
        yield Rule("DeferFlush", "trainer", wrapper, self.DeferFlush)
        yield Rule("DeferredFlushGranted", "scheduler", wrapper, self.DeferredFlushGranted, weak)
        yield Rule("DeferredFlushTimesOut", "clock", wrapper, self.DeferredFlushTimesOut, weak)
        yield from self.update_rules()
        if self.loop.result_queue:
            yield Rule("ForwardDone", "device", f.primitives["launch"], self.ForwardDone, weak)
        if self.storage:
            yield Rule("OrphanDone", "storage", f.prefetch.source, self.OrphanDone, weak)
        for ledger in self.ledgers.values():
            for move in ledger.facts.moves:
                if move.by in ACTORS:
                    yield self._environment_rule(ledger, move)
        yield from self._request_rules()
        for concern in self.concerns:
            yield from concern.rules()

    def _pass_rules(self) -> Iterable[Rule]:
        weak = Fairness.WEAK
        # The loop goes round, paused or not: a trainer that pauses and continues for ever does not stop it.
        yield Rule("RunningPass", "scheduler", self.loop.source, self.RunningPass, weak, EVENT_LOOP)
        if self.loop.chains:
            # Not fair: a chain ends, since each request has a last token, and then the other pass is what comes next.
            yield Rule("ChainedPass", "scheduler", self.loop.source, self.ChainedPass)
        if self.loop.micro_batches:
            # Not fair: the turn of those that run comes.
            yield Rule("OthersPass", "scheduler", self.loop.source, self.OthersPass)
        if self.loop.pause_waits:
            # Not fair: nobody has to pause.
            yield Rule("WaitingPass", "scheduler", self.loop.source, self.WaitingPass)
        if (self.mode.sets_flag or self.stopped(self.now)) and self.loop.honours_pause:
            yield Rule("PausedPass", "scheduler", self.loop.source, self.PausedPass, weak, EVENT_LOOP)

    def _request_rules(self) -> Iterable[Rule]:
        weak = Fairness.WEAK
        if self.profile.requests.clocks_count_pause:
            yield Rule("WaitingTimesOut", "clock", self.profile.requests.source, self.WaitingTimesOut)
        if self.mine:
            mine = self.mine
            tokenizer = "srt/managers/tokenizer_manager.py:generate_request"
            yield Rule("Park", "client", tokenizer, mine.Park)
            yield Rule("Unpark", "tokenizer", tokenizer, lambda s: mine.Unpark(s, self), weak)
            aborts = "srt/managers/tokenizer_manager.py:abort_request"
            yield Rule("AbortMine", "client", aborts, lambda s: mine.AbortMine(s, self))

    def _environment_rule(self, ledger: Ledger, move: Move) -> Rule:

        def body(s: Draft) -> None:
            s.when(*self.allowed(s, move.by))
            ledger.move_first(s, move)
            if ledger.name == "backup":
                self.reaches_storage(s)

        name = f"{ACTORS[move.by]}({ledger.name}.{move.from_})"
        return Rule(name, move.by, move.source, body, Fairness(move.fair))

    # ---- requests

    def Arrive(self, s: Draft) -> None:
        """A request passes the tokenizer's gate and is queued (`_add_request_to_queue`)."""
        s.when(neg(s.gate_closed), *self.readable(s))
        self.queue_one(s)

    def ArriveLate(self, s: Draft) -> None:
        """A request that passed the tokenizer's gate before the pause reaches the scheduler."""
        s.when(s.late > 0)
        s.late -= 1
        self.queue_one(s)

    # ---- control

    def Pause(self, s: Draft) -> None:
        """`pause_generation` of this mode; some requests are still between the tokenizer's gate and the scheduler."""
        s.when(neg(s.gate_closed), *self.allowed(s, "pause"))
        if self.loop.pause_waits and self.mode.sets_flag:
            s.when(neg(s.last_batch), neg(s.result_pending))
        s.late += s.choose("late", meaning="requests past the tokenizer's gate")
        s.gate_closed = True
        s.paused = self.mode.sets_flag
        queued = self.loop.result_queue and not self.loop.micro_batches
        for step in self.mode.steps:
            self.primitive(step, s, Flow(result=s.result_pending if queued else None, batch=s.running))
        if self.mine:
            self.mine.pause(s)
        if self.profile.watchdog.knows_pause:
            s.watched = conj(s.watched, neg(s.paused))

    def Continue(self, s: Draft) -> None:
        """`continue_generation`: nothing is checked. It waits for the answer of an update (`is_pause_cond`)."""
        s.when(s.gate_closed, *self.resumable(s), *(p for c in self.concerns for p in c.may_continue(s)))
        s.gate_closed = False
        s.paused = False
        s.flush_wanted = False
        for concern in self.concerns:
            concern.continued(s)
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
            s.when(neg(disj(s.paused, *self.stopped(s))))
        self.run_pass(s, self.loop.running)

    def ChainedPass(self, s: Draft) -> None:
        """A decode is launched on top of the last one (`_launch_chained`), whose tokens are then read; nobody ends."""
        if self.loop.honours_pause:
            s.when(neg(disj(s.paused, *self.stopped(s))))
        s.when(s.result_pending, s.running > 0, s.waiting == 0, *([neg(self.mine.ends(s))] if self.mine else []))
        self.chain(s)

    def OthersPass(self, s: Draft) -> None:
        """A turn of a micro-batch in which nobody runs yet, while others' result is in flight, or after a pause."""
        if self.loop.honours_pause:
            s.when(neg(disj(s.paused, *self.stopped(s))))
        s.when(s.running > 0, disj(s.result_pending, *([neg(s.last_batch)] if self.loop.pause_waits else [])))
        self.run_pass(s, self.loop.running, others=True)

    def WaitingPass(self, s: Draft) -> None:
        """A pause has come and waits until no micro-batch is under way: this turn launches none."""
        s.when(neg(disj(s.paused, *self.stopped(s))), s.last_batch)
        for concern in self.concerns:
            concern.pass_begins(s, ())
        self.let_end(s)

    def PausedPass(self, s: Draft) -> None:
        """One pass of the loop, paused: what stands before its `continue`."""
        s.when(disj(s.paused, *self.stopped(s)))
        self.run_pass(s, self.loop.paused)

    def stopped(self, s: Draft) -> list[BoolTerm]:
        """What stops the loop besides the pause."""
        return [part for concern in self.concerns for part in concern.stops_loop(s)]

    def run_pass(self, s: Draft, steps: Sequence[str], *, others: bool = False) -> None:
        """The steps of one pass, in order; `others` as in Flow."""
        for concern in self.concerns:
            concern.pass_begins(s, steps)
        # A loop that reads the queued result before it launches.
        first = self.loop.result_queue and "process" in steps and "launch" in steps[steps.index("process") :]
        flow = Flow(result=s.result_pending, batch=s.running) if first else Flow(others=others)
        for step in steps:
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

    # ---- device and storage

    def ForwardDone(self, s: Draft) -> None:
        """The forward that the overlap loop launched has left the device; its result may still wait."""
        s.when(s.forward_busy)
        s.forward_busy = False

    def OrphanDone(self, s: Draft) -> None:
        """A read that admission had cut off leaves the storage call."""
        s.when(*self.allowed(s, "storage"), s.prefetch_orphan > 0)
        s.prefetch_orphan -= 1
        for concern in self.concerns:
            concern.thread_left(s)

    def allowed(self, s: Draft, actor: str) -> list[BoolTerm]:
        """What the profile's own concerns demand before this actor moves."""
        return [part for concern in self.concerns for part in concern.may(s, actor)]

    def gate(self, s: Draft, name: str) -> BoolTerm:
        """Whether the gate is open (`Scheduler.is_fully_idle` with the caller's flags)."""
        facts = self.profile.gates[name]
        parts: list[BoolTerm] = [part for term in facts.waits_for for part in self.gate_term(s, term)]
        if self.storage and self.profile.flush.outwaits_threads:
            parts.append(s.prefetch_orphan == 0)
        if facts.waiting != "never":
            parts.append(self.nobody_waits(s, always=facts.waiting == "always"))
        return conj(*parts)

    def nobody_waits(self, s: Draft, *, always: bool) -> BoolTerm:
        """No request waits that a gate sees: paused and not `always`, only those that own KV."""
        unseen = [part for concern in self.concerns if (part := concern.unseen(s)) is not None]
        holding = [part for concern in self.concerns if (part := concern.holding(s)) is not None]
        seen = minus(s.waiting, total(*unseen)) if unseen else s.waiting
        return seen == 0 if always else ite(s.paused, total(*holding) if holding else nat(0), seen) == 0

    def gate_term(self, s: Draft, term: str) -> list[BoolTerm]:
        """The conjuncts that one name in `waits_for` stands for; none where this configuration lacks it."""
        if term in self.profile.ledgers:
            ledger = self.ledgers.get(term)
            return [s[ledger.counter(stage)] == 0 for stage in ledger.facts.stages] if ledger else []
        name, _, stage = term.partition(".")
        if stage:
            ledger = self.ledgers.get(name)
            return [s[ledger.counter(stage)] == 0] if ledger else []
        if term not in self.variables:
            return []
        return [s[term] == 0 if self.variables[term].sort is Sort.NAT else neg(s[term])]
