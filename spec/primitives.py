"""The primitives that the steps of a profile are made of. Each updates the draft it is given, in order.

Names are those of DESIGN.md: reap, retry, schedule, launch, process, record; and for a pause: process, requeue,
abort_all, drain. Each docstring names the engine's function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spec.draft import Draft
from spec.lookups import Lookups
from spec.steps import Flow
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, least, minus, nat, neg, total


class Primitives(Lookups):
    """What `Protocol` does in its passes and handlers."""

    def own_primitives(self) -> Mapping[str, Callable[[Draft, Flow], None]]:
        """What this class does, by the names in a profile."""
        return {
            "reap": self.reap,
            "retry": self.retry,
            "schedule": self.schedule,
            "adopt": self.adopt,
            "launch": self.launch,
            "process": self.process,
            "record": self.record,
            "requeue": self.requeue,
            "abort_all": self.abort_all,
            "drain": self.drain,
        }

    # ---- the passes

    def reap(self, s: Draft, _flow: Flow) -> None:
        """`check_hicache_events`: submit what is queued, retire what is ready, allocate or revoke what was found."""
        for concern in self.concerns:
            concern.reaped(s)
        self.reap_reaches_tiers(s, self.advance(s, "reap"))

    def retry(self, s: Draft, _flow: Flow) -> None:
        """`_process_storage_prefetch_retries`: look up again what is due after some passes, within the attempts."""
        if not self.storage:
            return
        bounded = self.profile.prefetch.retry_attempts > 0
        due = self.stored(s, least(s.prefetch_retry, s.prefetch_budget) if bounded else s.prefetch_retry)
        again = s.choose("again", high=due, meaning="lookups that are retried")
        s.prefetch_retry -= again
        sent = again
        if declines := self.profile.prefetch.declines:
            sent -= s.choose("declined", high=again, meaning="retries with too little left to look up")
        if bounded:
            s.prefetch_budget -= sent if declines == "free" else again
        s.lookups += sent
        self.send(s, sent)

    def schedule(self, s: Draft, flow: Flow) -> None:
        """`get_next_batch_to_run`: admit waiting requests in order, at least one of those that no lookup keeps.

        Memory is not modelled.
        """
        flow.batch = s.running
        if self.storage and self.profile.prefetch.cut_at_admission:
            self.cut(s)
        for concern in self.concerns:
            concern.polled(s)
        gates = [gate for x in self.concerns if (gate := x.gated(s)) is not None]
        able = s.waiting - ite(disj(*gates), nat(1), nat(0)) if gates else s.waiting
        ready = self.admission_waits(s)
        lost, unsent = self.look_up_lost(s, minus(able, ready + self.admissible(s, gates)))
        held = self.held_back(s, gates)
        sure = minus(able, unsent if held is None else held + unsent)
        some = conj(able > lost, disj(sure > 0, ready > 0))
        low, high = ite(some, nat(1), nat(0)), able - lost
        admitted = s.choose("admitted", low=low, high=high, meaning="requests admitted")
        if load_back := self.ledgers.get("load_back"):
            hits = ite(s.has_host, admitted, nat(0))
            loads = s.choose("load_backs", high=hits, meaning="admitted requests with a hit in host memory")
            self.begin(s, load_back, loads)
        if self.mine:
            self.mine.schedule(s, admitted, *gates)
        s.waiting -= admitted
        s.running += admitted
        self.waits_no_more(s, admitted)
        flow.admitted = admitted > 0
        self.admission_ends(s, admitted)
        for concern in self.concerns:
            concern.admitted(s, admitted)

    def admission_ends(self, s: Draft, admitted: NatTerm) -> None:
        """The moves of `schedule`: each admitted request ends at most one entry."""
        retired: dict[str, NatTerm] = {}
        for ledger in self.ledgers.values():
            for move in ledger.moves_by("schedule"):
                # In order, as requests are served: what comes later ends none that came before.
                ended = ledger.move_some(s, move, least(s[ledger.counter(move.from_)], admitted))
                retired[ledger.name] = ended
                for concern in self.concerns:
                    concern.left(s, ledger, ended, "retire")
        self.reap_reaches_tiers(s, retired)

    def cut(self, s: Draft) -> None:
        """`check_prefetch_progress`: admission ends a lookup or a read whose time is over; its thread goes on."""
        prefetch = self.ledgers["prefetch"]
        for stage in ("query", "loading"):
            count = s.choose(f"cut_{stage}", high=s[prefetch.counter(stage)], meaning=f"cut off while in {stage}")
            prefetch.drop(s, stage, count)
            s.prefetch_orphan += count
            for concern in self.concerns:
                concern.cut(s, count)

    def waits_no_more(self, s: Draft, admitted: NatTerm) -> None:
        """What a request has while it waits and no longer: its retry, its attempts, and that its prefix may be gone."""
        if self.storage:
            most = least(s.prefetch_retry, s.waiting)
            # Of those that still wait, the head of the queue loses its retry (`StoragePrefetchRetries.pop_ready`).
            low = minus(most, admitted + 1)
            s.prefetch_retry = s.choose("still", low=low, high=most, witness=most, meaning="retries of those that wait")
        if self.loses_prefixes:
            s.prefix_lost = conj(s.prefix_lost, s.waiting > 0)
        if self.storage and (attempts := self.profile.prefetch.retry_attempts):
            s.prefetch_budget = least(s.prefetch_budget, attempts * s.waiting)

    def admission_waits(self, s: Draft) -> NatTerm:
        """How many entries wait for nothing but the admission of their request."""
        moves = [(ledger, move) for ledger in self.ledgers.values() for move in ledger.moves_by("schedule")]
        return total(nat(0), *(s[ledger.counter(move.from_)] for ledger, move in moves))

    def launch(self, s: Draft, flow: Flow) -> None:
        """`run_batch`: a forward starts if any request runs, of several micro-batches in the one whose turn it is."""
        batch = self.runs(s)
        if flow.others:
            batch = disj() if flow.admitted is None else flow.admitted
        if self.loop.skips_finishing:
            flow.skipped = self.all_finish(s, flow)
            batch = conj(batch, neg(flow.skipped))
        if load_back := self.ledgers.get("load_back"):
            for move in load_back.moves_by("launch"):
                self.submit(s, load_back, load_back.move_all(s, move))
        s.forwards = ite(batch, s.forwards + 1, s.forwards)
        # Of several micro-batches that whose result is processed now is the last one still.
        s.last_batch = disj(batch, s.result_pending) if self.loop.micro_batches else batch
        s.watched = s.last_batch
        if self.loop.result_queue:
            flow.result = s.result_pending
            s.result_pending = batch
            s.forward_busy = batch
        else:
            flow.result, flow.batch = batch, s.running
        for concern in self.concerns:
            concern.launched(s)

    def runs(self, s: Draft) -> BoolTerm:
        """Somebody runs, of several micro-batches even one whose result is in flight: a prefill may have chunks."""
        return s.running > 0

    def let_end(self, s: Draft) -> None:
        """Nothing is launched in this turn, since a pause has come (`pause_waits`): what was launched before ends."""
        flow = Flow(result=s.result_pending, batch=s.running)
        s.last_batch = s.result_pending
        s.watched = s.last_batch
        s.result_pending = False
        s.forward_busy = False
        self.process(s, flow)

    def all_finish(self, s: Draft, flow: Flow) -> BoolTerm:
        """`_reqs_finishing_inflight`: all that run end, by length, with the result that waits; none was admitted."""
        all_old = conj(s.result_pending, s.running > 0, *([] if flow.admitted is None else [neg(flow.admitted)]))
        if self.mine:
            all_old = conj(all_old, disj(neg(s.mine_running), s.mine_todo <= 1))
        return s.choose("skipped", high=ite(all_old, nat(1), nat(0)), meaning="every request that runs ends now") > 0

    def chain(self, s: Draft) -> None:
        """`_launch_chained`: one more forward of the same batch; each of its requests gets a token."""
        s.forwards += 1
        s.forward_busy = True
        if self.mine:
            s.mine_todo = ite(s.mine_running, minus(s.mine_todo, nat(1)), s.mine_todo)
        for concern in self.concerns:
            concern.launched(s)

    def process(self, s: Draft, flow: Flow) -> None:
        """`process_batch_result`: requests finish, finished prefixes enter the tree and are copied to the host."""
        if flow.result is None or flow.batch is None:
            return  # the loop has no queued result here
        batch = ite(flow.result, flow.batch, nat(0))
        low, high = self.mine.process(s, batch, flow.result) if self.mine else (nat(0), batch)
        if flow.skipped is not None:
            low = ite(flow.skipped, batch, low)
        finished = s.choose("finished", low=low, high=high, meaning="requests that finish")
        inserted = nat(0)
        if self.profile.tree:
            inserted = ite(batch > 0, s.choose("inserted", meaning="prefixes that enter the tree"), nat(0))
        s.running -= finished
        s.answered += finished
        self.insert(s, inserted)
        s.stale_running = conj(s.stale_running, s.running > 0)
        if write_through := self.ledgers.get("write_through"):
            for move in write_through.moves_by("process"):
                self.submit(s, write_through, write_through.move_all(s, move, when=flow.result))
        for concern in self.concerns:
            concern.finished(s, finished)
        self.start(s, "process", None, when=batch > 0)

    def adopt(self, s: Draft, _flow: Flow) -> None:
        """`process_batch_result_prebuilt`: KV that a peer has computed enters the tree as its request is admitted."""
        if self.profile.tree:
            self.insert(s, s.choose("adopted", meaning="prefixes received that enter the tree"))

    def insert(self, s: Draft, inserted: NatTerm) -> None:
        """So many prefixes enter the tree, and are to be copied to the host."""
        s.has_device = disj(s.has_device, inserted > 0)
        s.stale_device = disj(s.stale_device, conj(inserted > 0, s.stale_running))
        if write_through := self.ledgers.get("write_through"):
            self.begin(s, write_through, inserted)

    def record(self, s: Draft, _flow: Flow) -> None:
        """`_record_scheduler_state_for_paused_engine`: idle or active, as `is_fully_idle()` says."""
        s.recorded_idle = self.gate(s, "deferred_flush")

    # ---- the pause handler

    def requeue(self, s: Draft, _flow: Flow) -> None:
        """`pause_generation(retract)`: running requests give up their KV and queue again, which may look up storage."""
        every, again = self.at_hand(s)
        retracted = every
        if self.profile.requests.queue_limit:
            retracted -= self.turn_away(s, every, again)
        if self.mine:
            self.mine.requeue(s, retracted, again)
            if self.profile.prefetch.on_requeue:
                for concern in self.concerns:
                    concern.followed(s, again)
        if self.storage and self.profile.prefetch.on_requeue:
            tokens = self.profile.prefetch.threshold_tokens
            meaning = f"retracted requests with {tokens} or more uncached tokens"
            self.look_up(s, s.choose("long", high=retracted, meaning=meaning), retracted)
        self.end_with(s, "retract")
        self.start(s, "requeue", retracted)
        for concern in self.concerns:
            concern.retracted(s, every)
            concern.requeued(s, retracted)
        s.waiting += retracted
        self.leaves_running(s, every)

    def at_hand(self, s: Draft) -> tuple[NatTerm, BoolTerm]:
        """Whom a retract takes back, and whether the followed request is among them.

        All that run; of several micro-batches those of one, and a result in flight is of another, with its requests.
        """
        if not self.loop.micro_batches or self.loop.pause_waits:
            return s.running, s.mine_running if self.mine else conj()
        others = ite(s.result_pending, nat(1), nat(0))
        every = s.choose(
            "at_hand", high=minus(s.running, others), meaning="running requests of the micro-batch at hand"
        )
        if not self.mine:
            return every, conj()
        low = ite(every == s.running, nat(1), nat(0))
        high = ite(conj(s.mine_running, every > 0), nat(1), nat(0))
        own = s.choose("mine_at_hand", low=least(low, high), high=high, meaning="the followed request is one of them")
        return every, own > 0

    def leaves_running(self, s: Draft, every: NatTerm) -> None:
        """Those that were taken back run no more; with nobody left, no batch was the last one, and no result waits."""
        micro = self.loop.micro_batches and not self.loop.pause_waits
        s.running = s.running - every if micro else 0
        flags = ["stale_running", "last_batch", "watched"]
        if self.loop.result_queue:
            flags += ["result_pending", "forward_busy"]  # the handler waited for the result, where it takes all back
        for name in flags:
            s[name] = conj(s[name], s.running > 0) if micro else False

    def turn_away(self, s: Draft, retracted: NatTerm, mine: BoolTerm) -> NatTerm:
        """`_abort_on_queued_limit`: requests that ran are now counted among the queued, and may be one too many."""
        most = retracted - ite(mine, nat(1), nat(0)) if self.mine else retracted
        refused = s.choose("refused", high=most, meaning="retracted requests that the queue has no room for")
        s.answered += refused
        s.refused += refused
        return refused

    def abort_all(self, s: Draft, _flow: Flow) -> None:
        """`abort_request(abort_all)`: waiting requests leave at once, and their lookups with them."""
        if self.storage:
            for ledger, stage in self.lookup_stages():
                self.release_aborted(s, ledger, stage, s[ledger.counter(stage)])
            s.prefetch_retry = 0
        self.end_with(s, "abort")
        if self.mine:
            self.mine.abort_all(s)
        s.answered += s.waiting
        s.waiting = 0

    def drain(self, s: Draft, _flow: Flow) -> None:
        """The rejected design: block the handler until nothing is in flight."""
        for ledger in self.ledgers.values():
            ended = ledger.entries(s)
            ledger.clear(s)
            for concern in self.concerns:
                concern.left(s, ledger, ended, "retire")

    # ---- caches and versions

    def reaches_storage(self, s: Draft) -> None:
        """`backup_thread_func`: a page of the host tier is written under its key."""
        s.has_storage = True
        if self.profile.storage.key == "tokens":
            s.stale_storage = disj(s.stale_storage, s.stale_host)

    def load(self, s: Draft) -> None:
        """Weights are written: what any tier holds is now of an older epoch; the scheduler's version is stamped."""
        s.loads += 1
        if not self.profile.update.tags_tree:  # else a page of older weights is never matched again
            s.stale_device = disj(s.stale_device, s.has_device)
            s.stale_host = disj(s.stale_host, s.has_host)
        if self.storage and self.profile.storage.key == "tokens":
            s.stale_storage = disj(s.stale_storage, s.has_storage)
        s.stale_running = disj(s.stale_running, s.running > 0)
        if self.profile.update.stamps == "before-flush":
            s.version_split = True
        for concern in self.concerns:
            concern.loaded(s)

    def reset(self, s: Draft) -> None:
        """`flush_cache`, granted: the tiers that it clears hold nothing, and no retry is left."""
        s.flushes += 1
        for tier in self.profile.flush.clears:
            s[f"has_{tier}"] = False
            s[f"stale_{tier}"] = False
        s.unflushed = False
        s.flush_wanted = False
        s.last_batch = False
        s.watched = False
        for name in self.profile.flush.drops:
            if name in self.ledgers:
                self.ledgers[name].clear(s)
        if self.loses_prefixes:
            s.prefix_lost = s.waiting > 0
        if self.storage:
            s.prefetch_retry = 0
            if self.profile.flush.joins_storage_threads:
                s.prefetch_orphan = 0
        for concern in self.concerns:
            concern.flushed(s)

    def answer_update(self, s: Draft) -> None:
        """The update is answered with success: the tokenizer takes the new version too."""
        s.updates_ok += 1
        s.version_split = False
        s.update_refused = False
        s.update_waiting = False

    def want_flush(self, s: Draft) -> None:
        """A flush is wanted from its first refusal since the pause until it is granted or the engine resumes."""
        s.flush_wanted = disj(s.flush_wanted, s.paused)
