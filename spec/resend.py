"""Retracted requests of a decode worker: in no queue until the engine is resumed, then sent again by their peer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from spec.concern import Concern
from spec.draft import Draft
from spec.terms import minus, total
from spec.tla import Sort, Variable

if TYPE_CHECKING:
    from spec.facts_controls import Resend
    from spec.steps import Steps
    from spec.terms import NatTerm

HELD = "pd_held"


class HeldBack(Concern):
    """Those of the waiting requests that no queue holds (`held_rebootstrap_reqs`): no gate sees them."""

    def __init__(self, steps: Steps, facts: Resend) -> None:
        """`facts` say what each of them starts when the engine is resumed."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """How many are held."""
        return (Variable(HELD, Sort.NAT),)

    def primitives(self) -> Mapping[str, Callable[[Draft], None]]:
        """What a paused pass does with KV that arrives after a retract."""
        return {"hold": self.hold}

    def unseen(self, s: Draft) -> NatTerm:
        """See `Concern`: `is_fully_idle` does not look at them."""
        return s[HELD]

    def holding(self, s: Draft) -> NatTerm:
        """See `Concern`: who waits, is not held, and has no entry with the peer any more has its KV."""
        entries = [ledger.entries(s) for ledger in self.steps.ledgers.values() if ledger.facts.holds_back]
        return minus(s.waiting, total(s[HELD], *entries))

    def hold(self, s: Draft) -> None:
        """The retract is done once more, for those whose KV has arrived since; after another pause they keep it."""
        if "requeue" in self.steps.mode.steps:
            s[HELD] += self.holding(s)

    def requeued(self, s: Draft, count: NatTerm) -> None:
        """`hold_rebootstrap`: all that ran, and who has its KV and waits for a place in the batch."""
        s[HELD] += total(count, self.holding(s))

    def continued(self, s: Draft) -> None:
        """`enqueue_held_rebootstrap`."""
        self.steps.begin(s, self.steps.ledgers[self.facts.starts], s[HELD])
        s[HELD] = 0
