"""Liveness: a rank, a stuck region that some run reaches, or a fair lasso."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice

from checker.decide.decided import KNOWN, Decided, Trail, refuted
from checker.proof.interpreter import Step, Value
from checker.proof.liveness import Gap, LeadsToSearch, prove_finitely_often, prove_leads_to
from checker.proof.obligations import Proof
from checker.proof.refute import (
    Refutation,
    Sought,
    Stuck,
    refute_by_lasso,
    refute_by_stuck_region,
    refute_finitely_often,
    stuck_region,
)
from checker.proof.shrink import replayed, shortest
from checker.proof.unroll import Run, reach_state
from checker.subject import Slice, Subject
from checker.verdict import Verdict
from spec.properties import Part
from spec.terms import BoolTerm
from spec.tla import FinitelyOften, LeadsTo

# How many pending states of random runs are looked at before the first proof attempt.
_GUESSES = 6
_NOT_TRIED = Gap(7, "not tried", {})


def liveness(subject: Subject, part: Part, claim: LeadsTo | FinitelyOften, piece: Slice, trail: Trail) -> Decided:
    """A proof over a rank, or a counterexample, or the gap that is left."""
    system = piece.system
    found: Proof | Gap
    refutation: Refutation | None
    if isinstance(claim, LeadsTo):
        found, refutation = _leads_to(claim, piece, trail)
    else:
        found, refutation = _finitely(claim, piece)
    if refutation:
        return refuted(subject, part, piece, refutation)
    if isinstance(found, Proof):
        return Decided(part, Verdict.PROVED, "ranking", system, found)
    state = ", ".join(f"{k}={v}" for k, v in found.state.items() if v)
    note = f"obligation {found.obligation} fails ({found.about}) in a state not shown to be reachable: {state}"
    return Decided(part, Verdict.UNKNOWN, "ranking", system, note=note)


def _finitely(claim: FinitelyOften, piece: Slice) -> tuple[Proof | Gap, Refutation | None]:
    """Cheap before dear: plain ranks, lassos, wider templates."""
    lemmas: Sequence[BoolTerm] = ()
    for lemmas in piece.lemma_sets():
        found = prove_finitely_often(piece.system, claim, lemmas, slice(0, 2))
        if isinstance(found, Proof):
            return found, None
    refutation = refute_finitely_often(piece.unrolling, claim)
    if refutation:
        return _NOT_TRIED, refutation
    return prove_finitely_often(piece.system, claim, lemmas), None


def _leads_to(claim: LeadsTo, piece: Slice, trail: Trail) -> tuple[Proof | Gap, Refutation | None]:
    """Cheap before dear: what was known elsewhere, plain ranks, a stuck region, wider templates, lassos."""
    found: Proof | Gap = _NOT_TRIED
    suspect = _seems_stuck(claim, piece, trail)
    for lemmas in piece.lemma_sets():
        refutation = _stuck(claim, piece, trail, lemmas) if suspect else None
        if refutation:
            return found, refutation
        search = LeadsToSearch(piece.system, claim, lemmas, trail.rank)
        for tiers in ([slice(0, 0)] if trail.rank else []) + [slice(0, 1), slice(1, 2)]:
            found = search.attempt(tiers)
            if isinstance(found, Proof):
                return found, None
        refutation = None if suspect else _stuck(claim, piece, trail, lemmas)
        if refutation:
            return found, refutation
    found = search.attempt(slice(2, None))
    if isinstance(found, Proof):
        return found, None
    refutation = refute_by_lasso(piece.unrolling, claim)
    if refutation:
        return found, refutation
    return prove_leads_to(piece.system, claim, piece.ordered), None


def _stuck(claim: LeadsTo, piece: Slice, trail: Trail, lemmas: Sequence[BoolTerm]) -> Refutation | None:
    """A stuck region that some run reaches."""
    stuck = stuck_region(piece.system, claim, lemmas, Sought(piece.samples, trail.flag))
    if stuck is None:
        return None
    run = way_into(stuck, piece, trail) or reach_state(piece.unrolling, stuck.region)
    return refute_by_stuck_region(piece.interpreter, stuck, run)


def way_into(stuck: Stuck, piece: Slice, trail: Trail) -> Run | None:
    """A run into the region: none where it starts there, a known one, or a random one."""
    inside = piece.walker.holds(stuck.region)

    def reaches(step: Step, _before: Mapping[str, Value]) -> bool:
        return inside(step.state)

    if inside(piece.walker.initial()):
        return Run(())
    run = trail.shrunk(piece.walker, reaches) or shortest(piece.walker, piece.samples.runs, reaches)
    return Run(run) if run else None


def _seems_stuck(claim: LeadsTo, piece: Slice, trail: Trail) -> bool:
    """Whether pending states of known or random runs settle without the goal: what to try first, and no verdict."""
    pending, goal = piece.interpreter.holds(claim.pending), piece.interpreter.holds(claim.goal)
    known = (step.state for run in trail.runs[:KNOWN] for step, _ in replayed(piece.walker, run))
    waiting = (s for s in chain(known, piece.samples.states) if pending(s) and not goal(s))
    return any(_settles_outside(goal, state, piece) for state in islice(waiting, _GUESSES))


def _settles_outside(goal: Callable[[Mapping[str, Value]], bool], state: Mapping[str, Value], piece: Slice) -> bool:
    here = {name: state[name] for name in piece.system.spec.init}
    try:
        piece.interpreter.settle(here, lambda s: not goal(s), limit=60)
    except RuntimeError:
        return False
    return True
