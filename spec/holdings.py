"""What lookups of the storage tier hold while they are in flight, and the ways in which they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spec.concern import Concern, Part, Rule
from spec.draft import Draft
from spec.facts import LOOKUP_ENDS
from spec.pages import CONSERVED
from spec.terms import NatTerm, minus, nat, neg, total
from spec.tla import Always, Sort, Variable

if TYPE_CHECKING:
    from spec.facts import Holding
    from spec.ledger import Ledger
    from spec.steps import Steps


class Holdings(Concern):
    """What lookups hold, e.g. host pages: `held_NAME` units, as the pool counts them."""

    def __init__(self, steps: Steps, name: str, facts: Holding) -> None:
        """`facts` say what gives a unit back."""
        self.steps = steps
        self.name = name
        self.facts = facts

    @property
    def counter(self) -> str:
        """The variable that counts the units."""
        return f"held_{self.name}"

    def variables(self) -> Iterable[Variable]:
        """One counter."""
        return [Variable(self.counter, Sort.NAT, ghost=True)]

    def claims(self, property_id: str) -> Iterable[Part]:
        """Each unit is held by an entry in flight, or by a thread that is still in the storage call."""
        if property_id == CONSERVED:
            s = self.steps.now
            held = [self.steps.ledgers[name].entries(s) for name in self.facts.of if name in self.steps.ledgers]
            threads = [s.prefetch_orphan] if "threads" in self.facts.of else []
            yield Part(Always(s[self.counter] == total(*held, *threads)), self.name)

    def looked_up(self, s: Draft, count: NatTerm) -> None:
        """Each lookup takes one."""
        s[self.counter] += count

    def left(self, s: Draft, ledger: Ledger, count: NatTerm, how: str) -> None:
        """Each that ends gives one back, if this way to end does so; one that goes on in another ledger keeps it."""
        on = {m.starts for m in ledger.facts.moves if how == "retire" and m.starts} & {*self.facts.of}
        if ledger.name in self.facts.of and not on and how in self.facts.released_by:
            self._give(s, count)

    def cut(self, s: Draft, count: NatTerm) -> None:
        """The entry is gone; its thread may still read."""
        if not self.facts.until_io_ends:
            self._give(s, count)

    def aborted(self, s: Draft, ledger: Ledger, count: NatTerm, *, reads: bool) -> None:
        """Entries whose thread reads are cut off, the others end."""
        if reads and "abort" in self.facts.released_by:
            self.cut(s, count)
        elif not reads:
            self.left(s, ledger, count, "abort")

    def thread_left(self, s: Draft) -> None:
        """Its last acknowledgement gives back what it held."""
        if self.facts.until_io_ends:
            self._give(s, nat(1))

    def flushed(self, s: Draft) -> None:
        """The pool is cleared."""
        s[self.counter] = 0

    def _give(self, s: Draft, count: NatTerm) -> None:
        s[self.counter] = minus(s[self.counter], count)


class Releases(Concern):
    """The queue of what a lookup gives back when it ends, however it ends; the next reap works it off."""

    def __init__(self, steps: Steps) -> None:
        """Its entries are of each ledger that is `created_by` the end of a lookup."""
        self.steps = steps

    def left(self, s: Draft, ledger: Ledger, count: NatTerm, how: str) -> None:
        """The pages of what was not read, or is in the tree already."""
        if ledger.name == "prefetch" and how != "detach":  # the detachment frees them itself
            self.cut(s, count)

    def cut(self, s: Draft, count: NatTerm) -> None:
        """Those that are read by then; the others come with the last acknowledgement."""
        self.steps.start(s, LOOKUP_ENDS, count)

    def aborted(self, s: Draft, ledger: Ledger, count: NatTerm, *, reads: bool) -> None:  # noqa: ARG002 - every concern is told
        """As one that is cut off; what was staged is another queue's."""
        if ledger.name == "prefetch":
            self.cut(s, count)

    def thread_left(self, s: Draft) -> None:
        """The rest of a lookup that was cut off."""
        self.cut(s, nat(1))


class Detaching(Concern):
    """The detachment of a storage backend while lookups are in flight."""

    def __init__(self, steps: Steps) -> None:
        """The profile says what it waits for and what it clears."""
        self.steps = steps

    def rules(self) -> Iterable[Rule]:
        """One control request."""
        facts = self.steps.profile.detach
        if facts:
            yield Rule("Detach", "trainer", facts.source, self.Detach)

    def Detach(self, s: Draft) -> None:
        """`detach_hicache_storage_wrapped`: the threads stop, and what they leave behind is dropped."""
        facts = self.steps.profile.detach
        if facts is None:
            return
        s.when(*(part for term in facts.waits_for for part in self.steps.gate_term(s, term)))
        for ledger in (self.steps.ledgers[name] for name in facts.clears if name in self.steps.ledgers):
            for concern in self.steps.concerns:
                concern.left(s, ledger, ledger.entries(s), "detach")
            ledger.clear(s)


class Rejecting(Concern):
    """Requests that are turned away after their lookup was sent, e.g. those longer than the pool."""

    def __init__(self, steps: Steps) -> None:
        """`steps` is the protocol that this is a part of."""
        self.steps = steps

    def rules(self) -> Iterable[Rule]:
        """A request that is looked up and then turned away."""
        yield Rule("RejectLate", "client", self.steps.profile.requests.source, self.RejectLate)

    def RejectLate(self, s: Draft) -> None:
        """Its thread may still read; what the lookup holds is given back on the way out, or by nobody."""
        s.when(neg(s.gate_closed))
        s.lookups += 1
        holdings = [concern for concern in self.steps.concerns if isinstance(concern, Holdings)]
        for holding in holdings:
            holding.looked_up(s, nat(1))
        # A profile in which they differ about it is refused.
        if all("reject" in holding.facts.released_by for holding in holdings):
            s.prefetch_orphan += 1
            for holding in holdings:
                holding.cut(s, nat(1))
