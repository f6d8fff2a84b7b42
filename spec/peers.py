"""Other ranks or replicas: what each does by itself, and what all have to agree on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spec.concern import Concern, Part, Rule
from spec.draft import Draft
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, least, nat, neg
from spec.tla import Always, EachStep, Fairness, Sort, Variable

if TYPE_CHECKING:
    from spec.facts import Move, Peers, Waves
    from spec.ledger import Ledger
    from spec.steps import Steps

ALIGNED = "ranks-aligned"
FIRST_PEER = 2


class Peer(Concern):
    """One other rank of those that take the same steps: rank 2, 3 or 4.

    Of the ledger that each has of its own the other has `lacks` entries fewer; `done` copies are done there and not
    retired, of those submitted, among which are, for ever, those that it lacks. Each rank counts the collectives that
    it `entered` and the events that it `consumed`. Names begin with `peer`, of ranks 3 and 4 with `peer3` and `peer4`.
    """

    def __init__(self, steps: Steps, facts: Peers, rank: int) -> None:
        """`facts` say what the ranks agree on."""
        self.steps = steps
        self.facts = facts
        self.ledger = steps.ledgers[facts.ledger]
        self.first = rank == FIRST_PEER
        self._prefix = "peer" if self.first else f"peer{rank}"

    def name(self, what: str) -> str:
        """The variable of this rank."""
        return f"{self._prefix}_{what}"

    def variables(self) -> Iterable[Variable]:
        """What this rank has, and what has gone apart."""
        yield from (Variable(self.name(what), Sort.NAT) for what in ("done", "lacks", "short"))
        yield Variable(self.name("forward"), Sort.BOOL)
        ghosts = [*(["entered", "consumed"] if self.first else []), self.name("entered"), self.name("consumed")]
        yield from (Variable(name, Sort.NAT, ghost=True) for name in ghosts)

    def claims(self, property_id: str) -> Iterable[Part]:
        """Both enter the same collectives, consume the same events, have the same entries and the same batch."""
        if property_id != ALIGNED:
            return
        s = self.steps.now
        yield Part(Always(s.entered == s[self.name("entered")]), "collectives")
        yield Part(Always(s.consumed == s[self.name("consumed")]), "events")
        yield Part(Always(s[self.name("lacks")] == 0), "entries")
        yield Part(Always(s[self.name("short")] == 0), "batch")
        loads = self.steps.variables["loads"].next
        yield Part(EachStep(disj(loads == s.loads, neg(s[self.name("forward")]))), "update")

    def rules(self) -> Iterable[Rule]:
        """What this rank's device does, and the clocks: one for all ranks, or one of each."""
        weak, source, title = Fairness.WEAK, self.facts.source, self._prefix.capitalize()
        yield Rule(f"{title}CopyDone", "device", source, self.PeerCopyDone, weak)
        yield Rule(f"{title}ForwardDone", "device", source, self.PeerForwardDone, weak)
        if self.first:
            yield Rule("WaitsTooLong", "clock", source, self.WaitsTooLong)
        elif self.facts.clocks == "per-rank":
            yield Rule(f"{title}WaitsTooLong", "clock", source, self.WaitsTooLong)

    def PeerCopyDone(self, s: Draft) -> None:
        """A copy that was submitted on all ranks is done on this one."""
        s.when(s[self.name("done")] + s[self.name("lacks")] < self._copied(s))
        s[self.name("done")] += 1

    def PeerForwardDone(self, s: Draft) -> None:
        """Its forward has left its device."""
        s.when(s[self.name("forward")])
        s[self.name("forward")] = False

    def WaitsTooLong(self, s: Draft) -> None:
        """A waiting request is ended: by one rank for all, or by the clock of this rank, for itself."""
        mine = self.steps.mine  # the followed request is not one of them, so that those ahead of it are counted right
        others = ite(s.mine_waiting, s.waiting - s.mine_ahead - 1, s.waiting) if mine else s.waiting
        s.when(others > s[self.name("short")], neg(s.gate_closed))
        if self.facts.clocks == "per-rank":
            s[self.name("short")] += 1
        else:
            s.waiting -= 1
            s.answered += 1

    def created(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """This rank may lack room for some."""
        if ledger.name == self.ledger.name and self.facts.copies == "per-rank":
            meaning = "entries that the other rank has no room for"
            s[self.name("lacks")] += s.choose(
                "lacks" if self.first else self.name("lacks"), high=count, meaning=meaning
            )

    def most(self, s: Draft, ledger: Ledger, move: Move) -> NatTerm | None:
        """A reap ends as many as are done on all ranks."""
        if ledger.name != self.ledger.name or move.to != "retired" or self.facts.acks != "agreed":
            return None
        return least(s[ledger.counter(move.from_)], s[self.name("done")])

    def left(self, s: Draft, ledger: Ledger, count: NatTerm, how: str) -> None:
        """This rank consumes what it consumes, if it enters at all."""
        if ledger.name != self.ledger.name or how != "retire":
            return
        if self.first:
            s.consumed += count
        done = s[self.name("done")]
        taken = least(count, done) if self.facts.acks == "agreed" else done
        s[self.name("consumed")] += taken
        s[self.name("done")] -= taken

    def _copied(self, s: Draft) -> NatTerm:
        """How many copies were submitted and are not retired."""
        return self.ledger.entries(s, ("submitted", "ready"))

    def pass_begins(self, s: Draft, steps: Sequence[str]) -> None:
        """Each rank decides by itself whether it enters the collective of the reap."""
        if "reap" not in steps:
            return
        one, mine = nat(1), self.ledger.entries(s)
        always = self.facts.enters == "always"
        if self.first:
            s.entered += one if always else ite(mine > 0, one, nat(0))
        s[self.name("entered")] += one if always else ite(mine > s[self.name("lacks")], one, nat(0))

    def launched(self, s: Draft) -> None:
        """All launch."""
        if self.steps.loop.result_queue:
            s[self.name("forward")] = s.running > 0

    def retracted(self, s: Draft, count: NatTerm) -> None:
        """The handler waited for the result, on each rank."""
        s[self.name("forward")] = conj(s[self.name("forward")], count < 0)

    def may_update(self, s: Draft) -> Iterable[BoolTerm]:
        """With a barrier behind each rank's own stream, no rank is late."""
        return [neg(s[self.name("forward")])] if self.facts.update_barrier else []


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
