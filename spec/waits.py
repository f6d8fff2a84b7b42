"""What waits for what else: a request for its lookup, storage threads for the interpreter, a pause for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from spec.extra import Extra, Part, Rule
from spec.pages import CONSERVED
from spec.terms import BoolTerm, conj, disj, neg
from spec.tla import Always, Draft, Fairness, Sort, Variable

if TYPE_CHECKING:
    from spec.facts import LookupWait, Merge
    from spec.steps import Steps


class FollowedLookup(Extra):
    """The lookup of the followed request, which is admitted only when that has ended.

    `mine_asked`: the storage is asked; `mine_found`: its answer waits for a reap; `mine_reading` and `mine_side`: the
    two reads; `mine_revoked`: too little was found.
    """

    _FLAGS = ("mine_asked", "mine_found", "mine_reading", "mine_side", "mine_revoked")

    def __init__(self, steps: Steps, facts: LookupWait) -> None:
        """`facts` say what ends it."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """Five flags."""
        return [Variable(name, Sort.BOOL, ghost=True) for name in self._FLAGS]

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
        s.when(s.mine_asked)
        s.mine_asked = False
        s.mine_found = True

    def MineRead(self, s: Draft) -> None:
        """Its KV has been read."""
        s.when(s.mine_reading)
        s.mine_reading = False

    def MineSideRead(self, s: Draft) -> None:
        """The other pool has been filled too."""
        s.when(s.mine_side)
        s.mine_side = False

    def MineTimesOut(self, s: Draft) -> None:
        """Its time is over, and an admission poll sees it."""
        over = s.mine_reading if self.facts.deadline == "main" else disj(s.mine_reading, s.mine_side)
        s.when(over)
        s.mine_reading = False
        s.mine_side = False

    def gated(self, s: Draft) -> BoolTerm:
        """It waits, and its lookup has not ended."""
        return conj(s.mine_waiting, disj(*(s[name] for name in self._FLAGS)))

    def followed(self, s: Draft, started: BoolTerm) -> None:
        """It may have something to look up."""
        asks = s.choose("asks", high=1, meaning="whether the followed request looks up storage")
        s.mine_asked = disj(conj(s.mine_asked, neg(started)), conj(started, asks > 0))
        for name in self._FLAGS[1:]:
            s[name] = conj(s[name], neg(started))

    def pass_begins(self, s: Draft, steps: Sequence[str]) -> None:
        """The reap of a pass takes over the answer: it reads, or revokes."""
        if "reap" not in steps:
            return
        enough = s.choose("enough", high=1, meaning="whether the storage has enough for the followed request")
        reads = conj(s.mine_found, enough > 0)
        if not self.facts.revoke_ends:
            s.mine_revoked = disj(s.mine_revoked, conj(s.mine_found, enough == 0))
        s.mine_reading = disj(s.mine_reading, reads)
        if self.facts.side_pool:
            s.mine_side = disj(s.mine_side, reads)
        s.mine_found = False


class SharedInterpreter(Extra):
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


class Merging(Extra):
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


class Raising(Extra):
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
