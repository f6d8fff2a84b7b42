"""A second rank or replica: what it does by itself, and what the two have to agree on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spec.concern import Concern, Part, Rule
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, least, minus, nat, neg
from spec.tla import Always, Draft, EachStep, Fairness, Sort, Variable

if TYPE_CHECKING:
    from spec.facts import Move, Peers, Waves
    from spec.ledger import Ledger
    from spec.steps import Steps

ALIGNED = "ranks-aligned"


class Peer(Concern):
    """The other rank of a pair that takes the same steps.

    Of the ledger that each has of its own the other has `peer_lacks` entries fewer; `peer_busy` of those submitted are
    not done there, among them, for ever, those that it lacks. Each rank counts the collectives that it `entered` and
    the events that it `consumed`.
    """

    def __init__(self, steps: Steps, facts: Peers) -> None:
        """`facts` say what the ranks agree on."""
        self.steps = steps
        self.facts = facts
        self.ledger = steps.ledgers[facts.ledger]

    def variables(self) -> Iterable[Variable]:
        """What the other rank has, and what has gone apart."""
        counts = ("peer_busy", "peer_lacks", "peer_short")
        yield from (Variable(name, Sort.NAT) for name in counts)
        yield Variable("peer_forward", Sort.BOOL)
        ghosts = ("entered", "peer_entered", "consumed", "peer_consumed")
        yield from (Variable(name, Sort.NAT, ghost=True) for name in ghosts)

    def claims(self, property_id: str) -> Iterable[Part]:
        """Both enter the same collectives, consume the same events, have the same entries and the same batch."""
        if property_id != ALIGNED:
            return
        s = self.steps.now
        yield Part(Always(s.entered == s.peer_entered), "collectives")
        yield Part(Always(s.consumed == s.peer_consumed), "events")
        yield Part(Always(s.peer_lacks == 0), "entries")
        yield Part(Always(s.peer_short == 0), "batch")
        loads = self.steps.variables["loads"].next
        yield Part(EachStep(disj(loads == s.loads, neg(s.peer_forward))), "update")

    def rules(self) -> Iterable[Rule]:
        """What the other rank's device does, and its clock."""
        weak = Fairness.WEAK
        yield Rule("PeerCopyDone", "device", self.facts.source, self.PeerCopyDone, weak)
        yield Rule("PeerForwardDone", "device", self.facts.source, self.PeerForwardDone, weak)
        yield Rule("WaitsTooLong", "clock", self.facts.source, self.WaitsTooLong)

    def PeerCopyDone(self, s: Draft) -> None:
        """A copy that was submitted on both ranks is done on the other."""
        s.when(s.peer_busy > s.peer_lacks)
        s.peer_busy -= 1

    def PeerForwardDone(self, s: Draft) -> None:
        """Its forward has left its device."""
        s.when(s.peer_forward)
        s.peer_forward = False

    def WaitsTooLong(self, s: Draft) -> None:
        """A waiting request is ended: by one rank for both, or by the clock of the other rank, for itself."""
        mine = self.steps.mine  # the followed request is not one of them, so that those ahead of it are counted right
        others = ite(s.mine_waiting, s.waiting - s.mine_ahead - 1, s.waiting) if mine else s.waiting
        s.when(others > s.peer_short, neg(s.gate_closed))
        if self.facts.clocks == "per-rank":
            s.peer_short += 1
        else:
            s.waiting -= 1
            s.answered += 1

    def created(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """The other rank may lack room for some."""
        if ledger.name == self.ledger.name and self.facts.copies == "per-rank":
            s.peer_lacks += s.choose("lacks", high=count, meaning="entries that the other rank has no room for")

    def most(self, s: Draft, ledger: Ledger, move: Move) -> NatTerm | None:
        """A reap ends as many as are done on both."""
        if ledger.name != self.ledger.name or move.to != "retired" or self.facts.acks != "agreed":
            return None
        return least(s[ledger.counter(move.from_)], self._done(s))

    def left(self, s: Draft, ledger: Ledger, count: NatTerm, how: str) -> None:
        """The other rank consumes what it consumes, if it enters at all."""
        if ledger.name != self.ledger.name or how != "retire":
            return
        done = self._done(s) + count  # as it was before
        s.consumed += count
        if self.facts.acks == "agreed":
            s.peer_consumed += least(count, done)
        else:
            s.peer_consumed += done
            s.peer_busy = self.ledger.entries(s, ("submitted", "ready"))

    def submitted(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """The copies begin on both ranks."""
        if ledger.name == self.ledger.name:
            s.peer_busy += count

    def _done(self, s: Draft) -> NatTerm:
        """How many copies are done on the other rank."""
        return minus(self.ledger.entries(s, ("submitted", "ready")), s.peer_busy)

    def pass_begins(self, s: Draft, steps: Sequence[str]) -> None:
        """Each rank decides by itself whether it enters the collective of the reap."""
        if "reap" not in steps:
            return
        one, mine = nat(1), self.ledger.entries(s)
        always = self.facts.enters == "always"
        s.entered += one if always else ite(mine > 0, one, nat(0))
        s.peer_entered += one if always else ite(mine > s.peer_lacks, one, nat(0))

    def launched(self, s: Draft) -> None:
        """Both launch."""
        if self.steps.loop.result_queue:
            s.peer_forward = s.running > 0

    def retracted(self, s: Draft, count: NatTerm) -> None:
        """The handler waited for the result, on each rank."""
        s.peer_forward = conj(s.peer_forward, count < 0)

    def may_update(self, s: Draft) -> Iterable[BoolTerm]:
        """With a barrier behind each rank's own stream, no rank is late."""
        return [neg(s.peer_forward)] if self.facts.update_barrier else []


class Wave(Concern):
    """Replicas that step together: `wakes` counts the messages under way with which a busy one wakes the others."""

    def __init__(self, steps: Steps, facts: Waves) -> None:
        """`facts` say when a pause is acknowledged."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """One counter."""
        return [Variable("wakes", Sort.NAT)]

    def rules(self) -> Iterable[Rule]:
        """A busy replica sends, this one is woken."""
        yield Rule("PeerHasWork", "peer", self.facts.source, self.PeerHasWork)
        yield Rule("Woken", "scheduler", self.facts.source, self.Woken)

    def PeerHasWork(self, s: Draft) -> None:
        """Another replica got a request; after an agreed pause none is served."""
        s.when(*([neg(s.paused)] if self.facts.pause == "agreed" else []))
        s.wakes += 1

    def Woken(self, s: Draft) -> None:
        """The message arrives: the replica steps, with an empty batch where it has none."""
        s.when(s.wakes > 0)
        s.wakes -= 1
        s.forwards += 1

    def may(self, s: Draft, actor: str) -> Iterable[BoolTerm]:
        """Agreed: no wake is under way when the pause is acknowledged."""
        return [s.wakes == 0] if actor == "pause" and self.facts.pause == "agreed" else []
