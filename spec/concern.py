"""What a profile may add to the protocol: one concern in one class, told of what happens in passes and handlers.

A concern has variables of its own, mostly ghosts. It is told after the protocol's own updates of that moment, unless
its method says otherwise. A profile that does not speak of it does not have it, and its state machine is as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec.draft import Draft
from spec.tla import Claim, Fairness, Variable

if TYPE_CHECKING:
    from spec.facts import Move
    from spec.ledger import Ledger
    from spec.terms import BoolTerm, NatTerm

EVENT_LOOP = "EventLoop"
"""The unit of what the scheduler does next."""


@dataclass(frozen=True)
class Part:
    """One claim of a property; `about` is the ledger or the concern it speaks of, or empty.

    `instead` says what is to hold where nothing that `claim` speaks of ever comes: a wait that never begins is no proof
    that waits end, and no defect either.
    """

    claim: Claim
    about: str = ""
    instead: Claim | None = None


@dataclass(frozen=True)
class Rule:
    """An action before it is drafted."""

    name: str
    actor: str
    engine: str
    body: Callable[[Draft], None]
    fair: Fairness = Fairness.NONE
    unit: str = ""
    help: bool = False


class Concern:
    """One concern; every method here does nothing."""

    def variables(self) -> Iterable[Variable]:
        """What the state machine has besides."""
        return ()

    def rules(self) -> Iterable[Rule]:
        """The actions that it has besides."""
        return ()

    def claims(self, _property_id: str) -> Iterable[Part]:
        """What it adds to a property."""
        return ()

    def primitives(self) -> Mapping[str, Callable[[Draft], None]]:
        """Primitives of passes and handlers, by their names in a profile."""
        return {}

    def may(self, _s: Draft, _actor: str) -> Iterable[BoolTerm]:
        """What must hold for this actor outside the loop to make its move."""
        return ()

    def may_update(self, _s: Draft) -> Iterable[BoolTerm]:
        """What must hold for weights to be written."""
        return ()

    def may_continue(self, _s: Draft) -> Iterable[BoolTerm]:
        """What must hold for the engine to be resumed."""
        return ()

    def halts(self, _s: Draft) -> Iterable[BoolTerm]:
        """What keeps the scheduler inside one handler: no pass runs, and no other message is handled."""
        return ()

    def stops_loop(self, _s: Draft) -> Iterable[BoolTerm]:
        """What stops the loop's running passes besides the pause."""
        return ()

    def unseen(self, _s: Draft) -> NatTerm | None:
        """Waiting requests that no gate sees; None: nothing here hides one."""
        return None

    def holding(self, _s: Draft) -> NatTerm | None:
        """Waiting requests that own KV, which close a gate while paused too; None: none does."""
        return None

    def stores(self, _s: Draft) -> BoolTerm | None:
        """Whether lookups and backups start; None: nothing here keeps them."""
        return None

    def gated(self, _s: Draft) -> BoolTerm | None:
        """The followed request may not be admitted yet; None: nothing here keeps it."""
        return None

    def followed(self, s: Draft, started: BoolTerm) -> None:
        """The followed request is queued, where `started`."""

    def most(self, _s: Draft, _ledger: Ledger, _move: Move) -> NatTerm | None:
        """How many entries this move may take, at most; None: all."""
        return None

    def pass_begins(self, s: Draft, steps: Sequence[str]) -> None:
        """A pass of the loop begins, which has these steps."""

    def reaped(self, s: Draft) -> None:
        """`check_hicache_events` is about to run."""

    def polled(self, s: Draft) -> None:
        """An admission is about to look at each waiting request."""

    def admitted(self, s: Draft, count: NatTerm) -> None:
        """`count` requests run from now on."""

    def launched(self, s: Draft) -> None:
        """A forward starts if any request runs."""

    def finished(self, s: Draft, count: NatTerm) -> None:
        """`count` requests have ended with a result."""

    def retracted(self, s: Draft, count: NatTerm) -> None:
        """`count` requests, all that run, are about to give up their KV."""

    def requeued(self, s: Draft, count: NatTerm) -> None:
        """`count` of them, those that are not turned away, are about to queue again."""

    def continued(self, s: Draft) -> None:
        """The engine is resumed."""

    def aborted(self, s: Draft, ledger: Ledger, count: NatTerm, *, reads: bool) -> None:
        """`count` lookups have ended with their requests; `reads`: their threads may still be in the storage call."""

    def loaded(self, s: Draft) -> None:
        """Weights were written."""

    def flushed(self, s: Draft) -> None:
        """The caches were reset."""

    def looked_up(self, s: Draft, count: NatTerm) -> None:
        """`count` lookups of the storage tier were sent."""

    def created(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """`count` new entries of this ledger."""

    def submitted(self, s: Draft, ledger: Ledger, count: NatTerm) -> None:
        """`count` entries of this ledger have gone from its first stage to a device."""

    def left(self, s: Draft, ledger: Ledger, count: NatTerm, how: str) -> None:
        """`count` entries ended: `retire`, `revoke`, `detach`. An abort, a cut and a flush tell of their own."""

    def cut(self, s: Draft, count: NatTerm) -> None:
        """Admission ended `count` lookups whose threads go on."""

    def thread_left(self, s: Draft) -> None:
        """The thread of one lookup that was cut off has left the storage call."""
