"""One request, followed from the tokenizer's gate to its last token, for claims about each request.

The queue is served in order of arrival (SGLang's policy `fcfs`), so that it suffices to know how many are ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spec.draft import Draft
from spec.terms import BoolTerm, NatTerm, conj, disj, ite, minus, nat, neg
from spec.tla import Sort, Variable

if TYPE_CHECKING:
    from spec.facts import RequestFacts
    from spec.primitives import Primitives


class MarkedRequest:
    """Where the followed request is, and how many tokens it still lacks."""

    def __init__(self, facts: RequestFacts) -> None:
        """`facts` say whom an abort reaches."""
        self.facts = facts

    def variables(self) -> list[Variable]:
        """`mine_parked` at the tokenizer's gate, `mine_waiting` with `mine_ahead`, `mine_running` with `mine_todo`."""
        flags = ("mine_parked", "mine_waiting", "mine_running", "mine_abort")
        counts = ("mine_ahead", "mine_todo")
        return [Variable(n, Sort.BOOL, ghost=True) for n in flags] + [Variable(n, Sort.NAT, ghost=True) for n in counts]

    def somewhere(self, s: Draft) -> BoolTerm:
        """The request is inside the engine or parked at its gate."""
        return disj(s.mine_parked, s.mine_waiting, s.mine_running)

    def Park(self, s: Draft) -> None:
        """A request arrives while the gate is closed and waits there, without a time-out."""
        s.when(s.gate_closed, neg(self.somewhere(s)))
        s.mine_parked = True

    def Unpark(self, s: Draft, protocol: Primitives) -> None:
        """The gate is open again: the parked request goes on. Nothing reads whether it was aborted meanwhile."""
        s.when(neg(s.gate_closed), s.mine_parked, *protocol.readable(s))
        s.mine_parked = False
        s.mine_waiting = True
        s.mine_ahead = s.waiting
        protocol.queue_one(s)

    def AbortMine(self, s: Draft, protocol: Primitives) -> None:
        """`abort_request`: a waiting request ends at once, a running one with its next result, a parked one not."""
        s.when(self.somewhere(s), neg(s.mine_abort))
        protocol.end_lookup(s, s.mine_waiting)
        waits, runs, parked = s.mine_waiting, conj(s.mine_running, s.paused), s.mine_parked
        gone = disj(
            waits,
            *([runs] if self.facts.aborts_paused else []),
            *([parked] if self.facts.aborts_parked else []),
        )
        s.waiting = ite(waits, s.waiting - 1, s.waiting)
        if self.facts.aborts_paused:
            s.running = ite(runs, s.running - 1, s.running)
            s.mine_running = conj(s.mine_running, neg(gone))
        if self.facts.aborts_parked:  # it came, and is answered
            s.arrived = ite(parked, s.arrived + 1, s.arrived)
            s.mine_parked = False
        s.answered = ite(gone, s.answered + 1, s.answered)
        s.mine_abort = neg(gone)
        s.mine_waiting = False

    def arrive(self, s: Draft) -> BoolTerm:
        """The environment may follow the request that arrives. Returns whether it does."""
        mark = s.choose("follow", high=ite(self.somewhere(s), nat(0), nat(1)), meaning="follow this request")
        s.mine_ahead = ite(mark > 0, s.waiting, s.mine_ahead)
        s.mine_waiting = disj(s.mine_waiting, mark > 0)
        return mark > 0

    def schedule(self, s: Draft, admitted: NatTerm, gated: BoolTerm | None = None) -> None:
        """The first `admitted` waiting requests run, not the followed one while `gated`; each has tokens to make."""
        goes = conj(s.mine_waiting, s.mine_ahead < admitted, *([] if gated is None else [neg(gated)]))
        s.mine_todo = ite(goes, s.choose("todo", low=1, meaning="tokens the followed request has to make"), s.mine_todo)
        # Not in the batch whose result an overlap loop processes in this pass: one token more, to be safe.
        s.mine_running = disj(s.mine_running, goes)
        s.mine_waiting = conj(s.mine_waiting, neg(goes))
        s.mine_ahead = minus(s.mine_ahead, admitted)

    def ends(self, s: Draft) -> BoolTerm:
        """It runs, and ends with the next result."""
        return conj(s.mine_running, disj(s.mine_todo <= 1, s.mine_abort))

    def process(self, s: Draft, batch: NatTerm, result: BoolTerm) -> tuple[NatTerm, NatTerm]:
        """It makes a token, and ends with its last or when aborted. Returns the range of how many requests finish."""
        inside = conj(s.mine_running, result, batch > 0)
        ends = conj(inside, disj(s.mine_todo <= 1, s.mine_abort))
        stays = conj(inside, neg(ends))
        s.mine_todo = ite(inside, minus(s.mine_todo, nat(1)), s.mine_todo)
        s.mine_running = conj(s.mine_running, neg(ends))
        s.mine_abort = conj(s.mine_abort, neg(ends))
        return ite(ends, nat(1), nat(0)), batch - ite(stays, nat(1), nat(0))

    def requeue(self, s: Draft, retracted: NatTerm, again: BoolTerm) -> None:
        """A retract puts it back into the queue, if `again`: behind all that wait and the retracted ones before it."""
        place = s.choose("place", high=minus(retracted, nat(1)), meaning="retracted requests before the followed one")
        s.mine_ahead = ite(again, s.waiting + place, s.mine_ahead)
        s.mine_waiting = disj(s.mine_waiting, again)
        s.mine_running = conj(s.mine_running, neg(again))

    def pause(self, s: Draft) -> None:
        """What was aborted before, and has not ended, ends with the pause, where an abort ends the paused at once."""
        if self.facts.aborts_paused:
            ended = conj(s.paused, s.mine_abort, disj(s.mine_running, s.mine_waiting))
            s.running = ite(conj(ended, s.mine_running), s.running - 1, s.running)
            s.waiting = ite(conj(ended, s.mine_waiting), s.waiting - 1, s.waiting)
            s.answered = ite(ended, s.answered + 1, s.answered)
            for name in ("mine_running", "mine_waiting", "mine_abort"):
                s[name] = conj(s[name], neg(ended))

    def abort_all(self, s: Draft) -> None:
        """It leaves with all that wait, or with its next result if it runs."""
        s.mine_abort = disj(conj(s.mine_abort, neg(s.mine_waiting)), s.mine_running)
        s.mine_waiting = False
