"""Proves invariants and claims about each step: by induction over found lemmas, with Spacer where these do not suffice.

What is neither proved nor refuted within the depth limit is `bounded`, and never passes.
"""

from __future__ import annotations

from collections.abc import Iterable

from checker.proof.lemmas import spacer_invariant
from checker.proof.obligations import Proof, each_step
from checker.proof.system import System, touched
from checker.proof.unroll import Run, Unrolling, reach_state, reach_step
from spec.terms import BoolTerm, conj, disj, free_names, neg
from spec.tla import Always, EachStep


def prove_always(system: System, claim: Always, lemmas: Iterable[BoolTerm]) -> Proof | None:
    """The lemmas imply the claim (which was a candidate itself), or None."""
    lemmas = tuple(lemmas)
    if system.impossible(system.solver(system.spec.naturals, *lemmas), neg(claim.holds)):
        return Proof(claim, lemmas)
    return None


def prove_each_step(system: System, claim: EachStep, lemmas: Iterable[BoolTerm]) -> Proof | None:
    """No action breaks the claim from a state that satisfies the lemmas, or None."""
    lemmas = tuple(lemmas)
    for transition, holds in each_step(system, claim):
        with system.step(transition.action.name, *lemmas) as solver:
            if not system.impossible(solver, neg(holds)):
                return None
    return Proof(claim, lemmas)


def prove_by_spacer(system: System, claim: Always | EachStep, lemmas: Iterable[BoolTerm]) -> Proof | None:
    """A proof over an invariant of Spacer's, which is checked like any other lemma; None where it has none."""
    lemma = spacer_invariant(system, _bad(system, claim))
    if lemma is None or not inductive(system, lemma, lemmas):
        return None
    more = (*lemmas, lemma)
    return prove_always(system, claim, more) if isinstance(claim, Always) else prove_each_step(system, claim, more)


def _bad(system: System, claim: Always | EachStep) -> BoolTerm:
    """The states, or the steps, that break the claim."""
    if isinstance(claim, Always):
        return neg(claim.holds)
    return disj(*(conj(transition.relation, neg(holds)) for transition, holds in each_step(system, claim)))


def inductive(system: System, lemma: BoolTerm, lemmas: Iterable[BoolTerm]) -> bool:
    """The lemma holds initially, and no action breaks it from a state that satisfies it and the lemmas."""
    if not system.impossible(system.solver(system.spec.initial), neg(lemma)):
        return False
    reads, invariant = free_names(lemma), conj(*lemmas, lemma)
    for name, transition in system.transitions.items():
        if not touched(transition, reads):
            continue
        with system.step(name, invariant) as solver:
            if not system.impossible(solver, neg(transition.primed(lemma))):
                return False
    return True


def refute_safety(unrolling: Unrolling, claim: Always | EachStep, depths: range | None = None) -> Run | None:
    """A shortest run that breaks the claim, of these depths; by default up to the depth limit."""
    if isinstance(claim, Always):
        return reach_state(unrolling, neg(claim.holds), depths)
    return reach_step(unrolling, claim, depths)
