"""Guard rails: what makes a proof say less than it seems to.

A claim that speaks of nothing, an action that cannot be taken, a fairness that is assumed and not needed.

All three judge by an invariant, so they err on one side: what they report is so, what they do not report may be so too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import z3

from checker.proof.liveness import prove_leads_to
from checker.proof.obligations import Proof, over_step
from checker.proof.system import System
from spec.terms import BoolTerm
from spec.tla import Always, Claim, Fairness, FinitelyOften, LeadsTo, Spec, stuttering


def vacuous(system: System, claim: Claim, lemmas: Iterable[BoolTerm]) -> bool:
    """No reachable state, or step, is one that the claim speaks of, as far as the invariant tells.

    For `pending ~> goal` that is pending, for an implication its antecedent, for events the event. A claim of another
    form speaks of every state. Raises UndecidedError.
    """
    lemmas = tuple(lemmas)
    if isinstance(claim, LeadsTo):
        return system.impossible(system.solver(system.spec.naturals, *lemmas), claim.pending)
    if isinstance(claim, FinitelyOften):
        return not _some_step(system, lemmas, claim.event, during=claim.during)
    if not z3.is_implies(claim.holds):
        return False
    antecedent = claim.holds.arg(0)
    if isinstance(claim, Always):
        return system.impossible(system.solver(system.spec.naturals, *lemmas), antecedent)
    return not _some_step(system, lemmas, antecedent, but=claim.but)


def _some_step(
    system: System,
    lemmas: Iterable[BoolTerm],
    event: BoolTerm,
    *,
    during: BoolTerm | None = None,
    but: frozenset[str] = frozenset(),
) -> bool:
    """Some step, of an action of the slice or of one outside it, is an event."""
    state = [system.spec.naturals, *lemmas, *([] if during is None else [during])]
    for transition in system.transitions.values():
        if transition.action.name in but:
            continue
        after = [] if during is None else [transition.primed(during)]
        happens = over_step(system, transition, event)
        if not system.impossible(system.solver(*state, transition.relation), *after, happens):
            return True
    outside = system.spec.dropped - but
    return bool(outside) and not system.impossible(system.solver(*state), stuttering(system.spec, event))


def dead_actions(system: System, lemmas: Iterable[BoolTerm]) -> list[str]:
    """The actions whose guard no state of the invariant satisfies, in the order of the spec. Raises UndecidedError."""
    solver = system.solver(system.spec.naturals, *lemmas)
    return [a.name for a in system.spec.actions if system.impossible(solver, a.guard)]


def unneeded_fairness(system: System, proof: Proof) -> list[str]:
    """The fair units each of which the claim does without, in the order of the spec. Raises UndecidedError.

    Those that the proof does not use, and those that it uses and another proof does not. That each can go does not say
    that all can go together.
    """
    claim = proof.claim
    units = list(system.spec.fair_units)
    if not isinstance(claim, LeadsTo):
        return units
    used = set(_helpful(proof))
    return [unit for unit in units if unit not in used or _proves_without(system, claim, proof, unit)]


def _helpful(proof: Proof) -> Iterator[str]:
    yield from (helpful.unit for helpful in proof.helpful)
    for _, nested in proof.recurrent:
        yield from _helpful(nested)


def _proves_without(system: System, claim: LeadsTo, proof: Proof, unit: str) -> bool:
    weaker = replace(system, spec=_unfair(system.spec, unit))
    return isinstance(prove_leads_to(weaker, claim, proof.lemmas), Proof)


def _unfair(spec: Spec, unit: str) -> Spec:
    """The same spec with nothing assumed of one unit."""
    members = {action.name for action in spec.fair_units[unit]}
    actions = (replace(a, fairness=Fairness.NONE) if a.name in members else a for a in spec.actions)
    return replace(spec, actions=tuple(actions))
