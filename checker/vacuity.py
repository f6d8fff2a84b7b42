"""Whether a claim speaks of anything: `pending ~> goal` of a state that is pending, an implication of its antecedent.

What the guard rails tell from an invariant (`proof/guardrails`) is decided here like any other claim, so that both
answers are certain: a run that shows it, or a proof that it never comes.
"""

from __future__ import annotations

import z3

from checker.confirm import over
from checker.subject import Subject
from checker.verdict import Verdict
from checker.workbench import decide_part
from spec.concern import Part
from spec.terms import conj, neg
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo


def speaks_of(claim: Claim) -> Always | EachStep | None:
    """That what the claim speaks of never comes; None where it speaks of every state or step."""
    if isinstance(claim, LeadsTo):
        return Always(neg(claim.pending))
    if isinstance(claim, FinitelyOften):
        return EachStep(neg(conj(claim.during, claim.event)))
    if not z3.is_implies(claim.holds):
        return None
    antecedent = neg(claim.holds.arg(0))
    return Always(antecedent) if isinstance(claim, Always) else EachStep(antecedent, claim.but)


def is_empty(subject: Subject, claim: Claim) -> bool:
    """It is proved that what the claim speaks of never comes. A random run that shows it is the cheap answer."""
    never = speaks_of(claim)
    if never is None or _seen(subject, never):
        return False
    return decide_part(subject, Part(never)).verdict is Verdict.PROVED


def _seen(subject: Subject, never: Always | EachStep) -> bool:
    samples = subject.walks.samples
    if isinstance(never, Always):
        holds = subject.interpreter.holds(never.holds)
        return not all(map(holds, samples.states))
    step_holds = over(never.holds)
    for run in samples.runs:
        before = samples.initial
        for step in run:
            if step.action not in never.but and not step_holds(before, step.state):
                return True
            before = step.state
    return False
