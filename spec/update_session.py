"""Weights that come in parts from a sender: a begin, loads that the scheduler waits for, an end.

`session`: one is open. `loading`: the handler waits for the sender, and with it the whole scheduler. `partial`: a load
failed, and the weights are in part new. The tokenizer holds the pause until the reply, so that a pass of the loop lies
between two loads (`turn`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spec.concern import EVENT_LOOP, Concern, Part, Rule
from spec.draft import Draft
from spec.terms import BoolTerm, disj, implies, neg
from spec.tla import EachStep, Fairness, LeadsTo, Sort, Variable

if TYPE_CHECKING:
    from spec.facts_controls import UpdateSession
    from spec.updates import Updates

TRUTH = "update-tells-truth"


class SessionUpdates(Concern):
    """`begin_weight_update`, `update_weights_from_distributed` and `_tensor`, `end_weight_update`."""

    def __init__(self, steps: Updates, facts: UpdateSession) -> None:
        """`facts` say how long the handler waits, and what a continue does with what is unfinished."""
        self.steps = steps
        self.facts = facts

    def variables(self) -> Iterable[Variable]:
        """Four flags."""
        return [
            Variable("session", Sort.BOOL),
            Variable("loading", Sort.BOOL),
            Variable("turn", Sort.BOOL),
            Variable("partial", Sort.BOOL, ghost=True),
        ]

    def rules(self) -> Iterable[Rule]:
        """What a trainer sends, and what becomes of it."""
        source = self.facts.source
        yield Rule("SessionBegins", "trainer", source, self.SessionBegins)
        yield Rule("SessionEnds", "trainer", source, self.SessionEnds)
        yield Rule("LoadBegins", "trainer", source, self.LoadBegins)
        # Nothing makes a sender send: it may be gone.
        yield Rule("LoadFlushed", "sender", source, self.LoadFlushed)
        if self.steps.profile.update.flush != "waits":
            yield Rule("LoadRefused", "sender", source, self.LoadRefused)
        if self.facts.waits == "deadline":
            # The scheduler's next step, since it does nothing else.
            yield Rule("LoadFails", "clock", source, self.LoadFails, Fairness.WEAK, EVENT_LOOP)
        else:
            yield Rule("LoadFails", "sender", source, self.LoadFails)

    def claims(self, property_id: str) -> Iterable[Part]:
        """A load is answered; no forward runs on weights that are in part new, or not yet processed."""
        s, variables = self.steps.now, self.steps.variables
        if property_id == "control-answered":
            yield Part(LeadsTo(s.loading, neg(s.loading)), "load")
        if property_id == TRUTH:
            forward = variables["forwards"].next > s.forwards
            yield Part(EachStep(implies(forward, neg(s.partial))), "partial")
            yield Part(EachStep(implies(forward, neg(s.session))), "session")

    def halts(self, s: Draft) -> Iterable[BoolTerm]:
        """The handler waits in a broadcast: the scheduler does nothing else."""
        return [s.loading]

    def may_continue(self, s: Draft) -> Iterable[BoolTerm]:
        """Nothing looks at it, or what is unfinished keeps the pause."""
        return [neg(s.session), neg(s.partial)] if self.facts.unfinished == "refused" else []

    def loaded(self, s: Draft) -> None:
        """The weights are whole again, whichever way they came."""
        s.partial = False

    def pass_begins(self, s: Draft, steps: Sequence[str]) -> None:  # noqa: ARG002 - in every pass
        """The next message may come."""
        s.turn = True

    def SessionBegins(self, s: Draft) -> None:
        """`begin_weight_update`: the weights are laid out as they are loaded."""
        s.when(self.steps.can_update(s), neg(s.session))
        s.session = True

    def SessionEnds(self, s: Draft) -> None:
        """`end_weight_update`: they are laid out as they are used. A session with a failed load may be ended too."""
        s.when(s.session)
        s.session = False

    def LoadBegins(self, s: Draft) -> None:
        """`update_weights_from_distributed`, rejected unless a session is open: the handler waits for the sender."""
        waits = self.steps.profile.update.flush == "waits"
        # One that waits holds the pause.
        gate = [self.steps.gate(s, "flush")] if waits else []
        s.when(s.session, s.turn, neg(s.update_waiting), self.steps.can_update(s), *gate)
        s.loading = True
        s.turn = False

    def LoadFlushed(self, s: Draft) -> None:
        """All has come, and the flush behind it is granted."""
        s.when(s.loading, self.steps.gate(s, "flush"))
        s.loading = False
        self.steps.load(s)
        self.steps.reset(s)
        self.steps.answer_update(s)

    def LoadRefused(self, s: Draft) -> None:
        """All has come, and the flush behind it is refused."""
        s.when(s.loading, neg(self.steps.gate(s, "flush")))
        s.loading = False
        self.steps.load(s)
        s.unflushed = True
        s.update_refused = True
        self.steps.want_flush(s)

    def LoadFails(self, s: Draft) -> None:
        """A part has not come: a failure, no version, no flush; what was written stays."""
        s.when(s.loading)
        s.loading = False
        s.partial = True
        for tier in ("device", "host"):
            s[f"stale_{tier}"] = disj(s[f"stale_{tier}"], s[f"has_{tier}"])
        s.stale_running = disj(s.stale_running, s.running > 0)
