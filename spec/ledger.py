"""One ledger: counters for its stages, and the moves of its entries. A reap moves all, a device moves the first.

One entry is followed: `mark_NAME_STAGE` says where it is, `mark_NAME_ahead` how many entries of that stage are before
it. New entries queue behind it, so that claims about each entry need no bound on how many arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec.draft import Draft
from spec.facts import LedgerFacts, Move
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, least, minus, nat, neg, total
from spec.tla import Sort, Variable

RETIRED = "retired"


@dataclass(frozen=True)
class Ledger:
    """The counters `NAME_STAGE` of one kind of in-flight work."""

    name: str
    facts: LedgerFacts

    def variables(self) -> list[Variable]:
        """Its counters, and the marked entry where one is followed."""
        found = [Variable(self.counter(stage), Sort.NAT) for stage in self.facts.stages]
        found += [Variable(self.mark(stage), Sort.BOOL, ghost=True) for stage in self.facts.stages]
        found.append(Variable(self.ahead, Sort.NAT, ghost=True))
        return found

    def counter(self, stage: str) -> str:
        """The variable that counts the entries in `stage`."""
        return f"{self.name}_{stage}"

    def mark(self, stage: str) -> str:
        """The variable that says that the followed entry is in `stage`."""
        return f"mark_{self.name}_{stage}"

    @property
    def ahead(self) -> str:
        """The variable that counts the entries before the followed one."""
        return f"mark_{self.name}_ahead"

    def entries(self, s: Draft, stages: Sequence[str] = ()) -> NatTerm:
        """How many entries are in flight, in these stages or in all."""
        return total(*(s[self.counter(stage)] for stage in stages or self.facts.stages))

    def is_marked(self, s: Draft) -> BoolTerm:
        """The marked entry is in flight."""
        return disj(*(s[self.mark(stage)] for stage in self.facts.stages))

    def moves_by(self, actor: str) -> list[Move]:
        """The moves that this actor or primitive makes, from the last stage to the first: one reap, one hop."""
        order = self.facts.stages
        return sorted((m for m in self.facts.moves if m.by == actor), key=lambda m: -order.index(m.from_))

    def create(self, s: Draft, count: NatTerm) -> None:
        """`count` new entries enter the first stage; the environment may mark one of them."""
        counter = self.counter(self.facts.stages[0])
        first = self.facts.stages[0]
        # 0 marks none, i marks the i-th new entry. Never in the action in which another one ends: its end must be seen.
        busy = disj(self.is_marked(s), *(s.before(self.mark(stage)) for stage in self.facts.stages))
        # A step may start entries of one ledger twice: lookups that are retried, and those of lost prefixes.
        name = s.unpicked(f"follow_{self.name}")
        mark = s.choose(name, high=ite(busy, nat(0), count), meaning="the entry followed")
        s[self.ahead] = ite(mark > 0, s[counter] + mark - 1, s[self.ahead])
        s[self.mark(first)] = disj(s[self.mark(first)], mark > 0)
        s[counter] += count
        s.works = ite(s.paused, s.works + count, s.works)

    def move_all(self, s: Draft, move: Move, count: NatTerm | None = None, *, when: BoolTerm | None = None) -> NatTerm:
        """Everything in `move.from_` goes on (`count` of it, the rest to `or_to`). Returns how many left the stage."""
        source = self.counter(move.from_)
        moving = s[source] if when is None else ite(when, s[source], nat(0))
        going = moving if count is None else count
        self._mark_all(s, move, moving, going)
        if move.to != RETIRED:
            s[self.counter(move.to)] += going
        s[source] = s[source] - moving
        return moving

    def _mark_all(self, s: Draft, move: Move, moving: NatTerm, going: NatTerm) -> None:
        here = conj(s[self.mark(move.from_)], moving > 0)
        kept: BoolTerm = here
        if move.or_to is not None:
            taken = s.choose(
                f"follow_{self.name}_{move.from_}",
                low=ite(conj(going == moving, going > 0), nat(1), nat(0)),
                high=ite(going > 0, nat(1), nat(0)),
                meaning="whether the followed entry goes on",
            )
            kept = conj(here, taken > 0)
        s[self.mark(move.from_)] = conj(s[self.mark(move.from_)], neg(here))
        if move.to != RETIRED:
            before = s[self.counter(move.to)]
            # Where some are turned away, the followed entry is taken to be the last of those that go on.
            ahead = before + (s[self.ahead] if move.or_to is None else going - 1)
            s[self.ahead] = ite(kept, ahead, s[self.ahead])
            s[self.mark(move.to)] = disj(s[self.mark(move.to)], kept)

    def move_some(self, s: Draft, move: Move, count: NatTerm) -> NatTerm:
        """The first `count` entries of `move.from_` go on, in order. Returns `count`."""
        here = s[self.mark(move.from_)]
        goes = conj(here, s[self.ahead] < count)
        behind = s[self.counter(move.to)] if move.to != RETIRED else nat(0)
        s[self.ahead] = ite(goes, behind + s[self.ahead], ite(here, minus(s[self.ahead], count), s[self.ahead]))
        s[self.mark(move.from_)] = conj(here, neg(goes))
        s[self.counter(move.from_)] -= count
        if move.to != RETIRED:
            s[self.mark(move.to)] = disj(s[self.mark(move.to)], goes)
            s[self.counter(move.to)] += count
        return count

    def move_first(self, s: Draft, move: Move) -> None:
        """The first entry of `move.from_` goes on: a device or a storage works in order."""
        s.when(s[self.counter(move.from_)] > 0)
        here = s[self.mark(move.from_)]
        goes = conj(here, s[self.ahead] == 0)
        behind = s[self.counter(move.to)] if move.to != RETIRED else nat(0)
        s[self.ahead] = ite(goes, behind, ite(here, minus(s[self.ahead], nat(1)), s[self.ahead]))
        if move.to != RETIRED:
            s[self.mark(move.to)] = disj(s[self.mark(move.to)], goes)
        s[self.mark(move.from_)] = conj(here, neg(goes))
        s[self.counter(move.from_)] -= 1
        if move.to != RETIRED:
            s[self.counter(move.to)] += 1

    def drop(self, s: Draft, stage: str, count: NatTerm) -> None:
        """`count` entries leave `stage` for good; the followed one is the last of them to go."""
        counter = self.counter(stage)
        left = s[counter] - count
        here = s[self.mark(stage)]
        s[self.ahead] = ite(conj(here, left > 0), least(s[self.ahead], left - 1), s[self.ahead])
        s[self.mark(stage)] = conj(here, left > 0)
        s[counter] = left

    def clear(self, s: Draft) -> None:
        """Nothing is in flight any more."""
        for stage in self.facts.stages:
            s[self.counter(stage)] = 0
            s[self.mark(stage)] = False
