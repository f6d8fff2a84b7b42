"""How the steps of a profile are run: a primitive by its name, where its condition holds; the moves of the ledgers.

A step is the name of a primitive, or `NAME if CONDITION`: `waiting` (a request waits), `admitted` (this pass admitted
one), `work` (a request waits or runs).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from spec.concern import Concern
from spec.draft import Draft
from spec.errors import SpecError
from spec.facts import Configuration, Loop, Move, PauseMode
from spec.ledger import RETIRED, Ledger
from spec.profile import Profile
from spec.requests import MarkedRequest
from spec.split import split
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, least, minus, nat, neg, total
from spec.tla import Variable


@dataclass
class Flow:
    """What one primitive of a pass hands to a later one."""

    result: BoolTerm | None = None
    """A launched batch whose result can be processed now; None where the loop has no such thing yet."""
    batch: NatTerm | None = None
    """How many requests are in that batch."""
    admitted: BoolTerm | None = None
    """Whether this pass has admitted a request; None before it schedules."""
    skipped: BoolTerm | None = None
    """Whether nothing was launched since all that run end with the result that waits; None where no loop asks."""
    others: bool = False
    """Whether all that run are of other micro-batches than the one whose turn it is."""


class Steps(ABC):
    """How a step of a profile becomes an update of the draft."""

    profile: Profile
    configuration: Configuration
    loop: Loop
    mode: PauseMode
    storage: bool
    ledgers: Mapping[str, Ledger]
    variables: Mapping[str, Variable]
    mine: MarkedRequest | None
    concerns: Sequence[Concern]
    now: Draft

    @abstractmethod
    def gate_term(self, s: Draft, term: str) -> list[BoolTerm]:
        """The conjuncts that one name in `waits_for` stands for."""

    @abstractmethod
    def gate(self, s: Draft, name: str) -> BoolTerm:
        """Whether the gate of this name is open in `s`."""

    def primitive(self, name: str, s: Draft, flow: Flow) -> None:
        """Run one primitive by its name in the profile; one of the profile's own moves the ledgers that name it."""
        plain, condition = split(name)
        if condition:
            self.primitive_if(plain, self.condition(condition, s, flow), s, flow)
        elif plain in (own := self.own_primitives()):
            own[plain](s, flow)
        elif added := [x.primitives()[plain] for x in self.concerns if plain in x.primitives()]:
            added[0](s)
        else:
            self.advance(s, plain)

    @abstractmethod
    def own_primitives(self) -> Mapping[str, Callable[[Draft, Flow], None]]:
        """The primitives of the protocol itself, by the names in a profile."""

    @abstractmethod
    def readable(self, s: Draft) -> list[BoolTerm]:
        """What a request waits for at the tokenizer's gate besides the pause."""

    @abstractmethod
    def reset(self, s: Draft) -> None:
        """A flush is granted: the tiers that it clears hold nothing."""

    @abstractmethod
    def may_retry(self, s: Draft, revoked: NatTerm) -> None:
        """Some of what was revoked is kept to be looked up again."""

    def primitive_if(self, name: str, condition: BoolTerm, s: Draft, flow: Flow) -> None:
        """Run one primitive where the condition holds; else what it does is not done."""
        before = {variable: s[variable] for variable in self.variables}
        self.primitive(name, s, flow)
        for variable, value in before.items():
            if not s[variable].eq(value):
                s[variable] = ite(condition, s[variable], value)

    def condition(self, name: str, s: Draft, flow: Flow) -> BoolTerm:
        """What stands behind `if` in a step of a profile. Raises SpecError where it stands too early."""
        if name == "admitted":
            if flow.admitted is None:
                raise SpecError(f"{self.profile.name}: a step 'if admitted' stands before schedule")
            return flow.admitted
        return s.waiting > 0 if name == "waiting" else total(s.waiting, s.running) > 0

    def advance(self, s: Draft, primitive: str) -> Mapping[str, NatTerm]:
        """Every move that this primitive makes, a stage at a time. Returns how many entries of each ledger retired."""
        retired: dict[str, NatTerm] = {}
        for ledger in self.ledgers.values():
            for move in ledger.moves_by(primitive):
                moved = self.move(s, ledger, move)
                if move.to == RETIRED:
                    retired[ledger.name] = moved
                if move.starts is not None and move.starts in self.ledgers:
                    self.go_on(s, self.ledgers[move.starts], self.parts(s, ledger, moved) if move.fragments else moved)
        return retired

    def parts(self, s: Draft, ledger: Ledger, count: NatTerm) -> NatTerm:
        """Of how many fragments so many entries are: one and more each. How often a node is split is not modelled."""
        more = s.choose(s.unpicked(f"{ledger.name}_split"), meaning="fragments beyond the first of each node")
        return total(count, ite(count > 0, more, nat(0)))

    def go_on(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """`count` entries go on in this ledger; a read that waits for its request only where the request waits too."""
        if ledger.facts.created_by != "prefetch":
            self.begin(s, ledger, count)
            return
        begun = least(count, minus(s.waiting, ledger.entries(s)))
        self.begin(s, ledger, begun)
        for concern in self.concerns:
            concern.left(s, ledger, count - begun, "retire")

    def move(self, s: Draft, ledger: Ledger, move: Move) -> NatTerm:
        """One move of all entries of a stage, or of as many as may. Returns how many left the stage."""
        taken = None
        source = s[ledger.counter(move.from_)]
        if move.or_to is not None:
            meaning = "lookups that read on"
            taken = s.choose(f"{ledger.name}_taken", high=source, witness=source, meaning=meaning)
            if move.retried:
                self.may_retry(s, source - taken)
        limits = [most for x in self.concerns if (most := x.most(s, ledger, move)) is not None]
        moved = ledger.move_some(s, move, reduce(least, limits)) if limits else ledger.move_all(s, move, taken)
        if move.from_ == ledger.facts.stages[0] and move.to != RETIRED:
            self.submit(s, ledger, moved)
        for concern in self.concerns:
            if taken is not None:
                concern.left(s, ledger, source - taken, "revoke")
            if move.to == RETIRED:
                concern.left(s, ledger, moved, "retire")
        return moved

    def begin(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """`count` new entries, of which every concern is told; none in a storage that nothing is attached to."""
        if ledger.facts.needs == "storage":
            count = self.stored(s, count)
        ledger.create(s, count)
        for concern in self.concerns:
            concern.created(s, ledger, count)

    def held_back(self, s: Draft, gates: Sequence[BoolTerm] = ()) -> NatTerm | None:
        """How many waiting requests may not be admitted yet, at most; None where none is held.

        A followed request that nothing gates may always be: whether its own lookup ends is what its gate says.
        """
        found = [(x, x.facts.holds_back) for x in self.ledgers.values() if x.facts.holds_back]
        if self.profile.lookup_wait and self.storage:
            found.append((self.ledgers["prefetch"], ()))
        if not found:
            return None
        held = total(*(ledger.entries(s, stages) for ledger, stages in found))
        return ite(self.admissible(s, gates) > 0, nat(0), held) if self.mine else held

    def admissible(self, s: Draft, gates: Sequence[BoolTerm]) -> NatTerm:
        """1 where the followed request waits and nothing gates it."""
        return ite(conj(s.mine_waiting, neg(disj(*gates))), nat(1), nat(0)) if self.mine else nat(0)

    @property
    def loses_prefixes(self) -> bool:
        """Whether an admission looks up again what a flush took from a waiting request."""
        return self.storage and self.profile.prefetch.again_on_loss

    def end_with(self, s: Draft, event: str) -> None:
        """Every entry of the ledgers that end with this event."""
        for ledger in self.ledgers.values():
            if event in ledger.facts.ends_with:
                ledger.clear(s)

    def submit(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """Every concern is told of `count` entries that a pass has handed to a device."""
        for concern in self.concerns:
            concern.submitted(s, ledger, count)

    def stored(self, s: Draft, count: NatTerm) -> NatTerm:
        """`count`, or none where no storage is attached."""
        attached = [part for concern in self.concerns if (part := concern.stores(s)) is not None]
        return ite(conj(*attached), count, nat(0)) if attached else count

    def start(self, s: Draft, event: str, most: NatTerm | None, *, when: BoolTerm | None = None) -> None:
        """New entries of the profile's own ledgers that this event starts: up to `most`, or any number."""
        for ledger in self.ledgers.values():
            if ledger.facts.created_by in (event, "queue" if event in ("arrive", "requeue") else event):
                if ledger.facts.each and most is not None:
                    self.begin(s, ledger, most)
                    continue
                count = s.choose(s.unpicked(f"{ledger.name}_new"), high=most, meaning=ledger.facts.entry)
                self.begin(s, ledger, count if when is None else ite(when, count, nat(0)))

    def reap_reaches_tiers(self, s: Draft, retired: Mapping[str, NatTerm]) -> None:
        """What was retired is now part of the tier that it was copied to, with the weights that filled it."""
        device, host = s.stale_device, s.stale_host
        if "write_through" in retired:
            copied = retired["write_through"] > 0
            s.has_host = disj(s.has_host, copied)
            s.stale_host = disj(s.stale_host, conj(copied, device))
        if "prefetch" in retired:
            read = retired["prefetch"] > 0
            s.has_host = disj(s.has_host, read)
            s.stale_host = disj(s.stale_host, conj(read, s.stale_storage))
        if "load_back" in retired:
            loaded = retired["load_back"] > 0
            s.has_device = disj(s.has_device, loaded)
            s.stale_device = disj(s.stale_device, conj(loaded, host))
