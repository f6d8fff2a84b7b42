"""What waits for what else: a request for its lookup, storage threads for the interpreter, a pause for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from spec.concern import Concern, Part, Rule
from spec.draft import Draft
from spec.pages import CONSERVED
from spec.terms import BoolTerm, conj, disj, ite, nat, neg
from spec.tla import Always, Fairness, Sort, Variable

if TYPE_CHECKING:
    from spec.facts import LookupWait, Merge
    from spec.facts_controls import Requeue
    from spec.steps import Steps
    from spec.terms import NatTerm


class FollowedLookup(Concern):
    """The lookup of the followed request, which is admitted only when that has ended.

    `mine_out`: the storage works for it. `mine_told`: it has said how much it has, or was not asked. `mine_found`: that
    waits for a reap. `mine_landed`: its KV is read, and another pool not yet. `mine_revoked`: too little was found.
    `mine_lost`: a flush took its prefix while it waited, which the next poll of it sees.

    No retry of what was revoked keeps it: the pass that revokes admits, and the head of the queue is never retried
    (`StoragePrefetchRetries.pop_ready`).
    """

    def __init__(self, steps: Steps, facts: LookupWait) -> None:
        """`facts` say what ends it."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """The flags that these facts need."""
        names = ["mine_out", "mine_told", "mine_found"]
        names += ["mine_landed"] if self.facts.side_pool else []
        names += [] if self.facts.revoke_ends else ["mine_revoked"]
        names += ["mine_lost"] if self.steps.loses_prefixes else []
        return [Variable(name, Sort.BOOL, ghost=True) for name in names]

    def rules(self) -> Iterable[Rule]:
        """What the storage does for it, and the clock."""
        source, weak = self.facts.source, Fairness.WEAK
        yield Rule("MineAnswered", "storage", source, self.MineAnswered, weak)
        yield Rule("MineRead", "storage", source, self.MineRead, weak)
        if self.facts.side_pool:
            # Nothing is assumed of its speed.
            yield Rule("MineSideRead", "storage", source, self.MineSideRead)
        if self.facts.deadline != "nothing":
            yield Rule("MineTimesOut", "clock", source, self.MineTimesOut, weak)

    def MineAnswered(self, s: Draft) -> None:
        """The storage says how much it has."""
        s.when(s.mine_out, neg(s.mine_told))
        s.mine_out = False
        s.mine_told = True
        s.mine_found = True

    def MineRead(self, s: Draft) -> None:
        """Its KV has been read."""
        s.when(s.mine_out, s.mine_told, *self._not_landed(s))
        if self.facts.side_pool:
            s.mine_landed = True
        else:
            s.mine_out = False

    def MineSideRead(self, s: Draft) -> None:
        """The other pool has been filled too."""
        s.when(s.mine_out, s.mine_landed)
        s.mine_out = False

    def MineTimesOut(self, s: Draft) -> None:
        """Its time is over, and an admission poll sees it, whatever the storage or a reap has not done yet."""
        s.when(disj(s.mine_out, s.mine_found), *(self._not_landed(s) if self.facts.deadline == "main" else ()))
        s.mine_out = False
        s.mine_found = False

    def _not_landed(self, s: Draft) -> list[BoolTerm]:
        return [neg(s.mine_landed)] if self.facts.side_pool else []

    def gated(self, s: Draft) -> BoolTerm:
        """It waits, and its lookup has not ended."""
        revoked = [] if self.facts.revoke_ends else [s.mine_revoked]
        return conj(s.mine_waiting, disj(s.mine_out, s.mine_found, *revoked))

    def followed(self, s: Draft, started: BoolTerm) -> None:
        """It may have something to look up."""
        asks = s.choose("asks", high=1, meaning="whether the followed request looks up storage")
        s.mine_out = ite(started, asks > 0, s.mine_out)
        s.mine_told = ite(started, asks == 0, s.mine_told)
        for variable in self.variables():
            if variable.name not in ("mine_out", "mine_told"):
                s[variable.name] = conj(s[variable.name], neg(started))

    def flushed(self, s: Draft) -> None:
        """What it had in the tree when it was queued is gone."""
        if self.steps.loses_prefixes:
            s.mine_lost = disj(s.mine_lost, s.mine_waiting)

    def polled(self, s: Draft) -> None:
        """It is looked up again, once for each loss; one with too little left to look up waits no longer than that."""
        if self.steps.loses_prefixes:
            seen = conj(s.mine_lost, s.mine_waiting, neg(self.gated(s)))
            again = s.choose("mine_again", high=ite(seen, nat(1), nat(0)), meaning="the followed request lost a prefix")
            s.mine_out = disj(s.mine_out, again > 0)
            s.mine_told = conj(s.mine_told, again == 0)
            s.mine_lost = conj(s.mine_lost, neg(seen))

    def reaped(self, s: Draft) -> None:
        """The reap of a pass takes over the answer: it reads, or revokes."""
        enough = s.choose("enough", high=1, meaning="whether the storage has enough for the followed request")
        s.mine_out = disj(s.mine_out, conj(s.mine_found, enough > 0))
        if not self.facts.revoke_ends:
            s.mine_revoked = disj(s.mine_revoked, conj(s.mine_found, enough == 0))
        s.mine_found = False


class SharedInterpreter(Concern):
    """Storage threads run only when the loop lets go of the interpreter: in a forward, or where it yields."""

    def __init__(self, source: str) -> None:
        """`source` is where the engine starts its threads."""
        self.source = source

    def variables(self) -> Iterable[Variable]:
        """`spinning`: the last pass let nobody else run."""
        return [Variable("spinning", Sort.BOOL)]

    def primitives(self) -> Mapping[str, Callable[[Draft], None]]:
        """`yield`, the loop's `time.sleep(0)`."""
        return {"yield": self._yield}

    def may(self, s: Draft, actor: str) -> Iterable[BoolTerm]:
        """Storage threads need the interpreter."""
        return [neg(s.spinning)] if actor == "storage" else []

    def pass_begins(self, s: Draft, steps: Sequence[str]) -> None:  # noqa: ARG002 - it does so in every pass
        """The loop takes it."""
        s.spinning = True

    def launched(self, s: Draft) -> None:
        """A forward lets go of it."""
        s.spinning = conj(s.spinning, s.running == 0)

    def _yield(self, s: Draft) -> None:
        s.spinning = False


class Merging(Concern):
    """A pause that merges the last batch into the running one."""

    def __init__(self, steps: Steps, facts: Merge) -> None:
        """`facts` say what it takes for granted."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """`counted_twice`: some requests stand in two batches."""
        return [Variable("counted_twice", Sort.BOOL, ghost=True)]

    def primitives(self) -> Mapping[str, Callable[[Draft], None]]:
        """`merge`, a step of a pause."""
        return {"merge": self._merge}

    def claims(self, property_id: str) -> Iterable[Part]:
        """No request stands in two batches."""
        if property_id == CONSERVED:
            yield Part(Always(neg(self.steps.now.counted_twice)), "two batches")

    def _merge(self, s: Draft) -> None:
        if self.facts.needs_running:
            s.raised = disj(s.raised, conj(s.last_batch, s.running == 0))
        if self.facts.keeps_last:
            s.counted_twice = disj(s.counted_twice, conj(s.last_batch, s.running > 0))


class Staying(Concern):
    """Retracted requests that stay in a queue of their own, and come to it again: `doubled`."""

    def __init__(self, steps: Steps, facts: Requeue) -> None:
        """`facts` say in which."""
        self.steps = steps
        self.ledger = steps.ledgers[facts.ledger]

    def variables(self) -> Iterable[Variable]:
        """One flag."""
        return [Variable("doubled", Sort.BOOL, ghost=True)]

    def requeued(self, s: Draft, count: NatTerm) -> None:
        """They wait, and stand there still."""
        s.doubled = disj(s.doubled, conj(count > 0, self.ledger.entries(s) > 0))

    def admitted(self, s: Draft, count: NatTerm) -> None:
        """The queue finds the request in it already."""
        s.raised = disj(s.raised, conj(count > 0, s.doubled))


class Raising(Concern):
    """Handlers that raise: `raised`, which the protocol sets where a profile says so."""

    def __init__(self, steps: Steps) -> None:
        """`steps` is the protocol that this is a part of."""
        self.steps = steps

    def variables(self) -> Iterable[Variable]:
        """One flag."""
        return [Variable("raised", Sort.BOOL, ghost=True)]

    def claims(self, property_id: str) -> Iterable[Part]:
        """None of them does."""
        if property_id == "engine-survives":
            yield Part(Always(neg(self.steps.now.raised)), "raised")
