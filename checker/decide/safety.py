"""Safety: a run that breaks the claim, or a proof by induction."""

from __future__ import annotations

from collections.abc import Sequence

from checker.confirm import over
from checker.decide.decided import Decided, Trail, refuted
from checker.proof.interpreter import Interpreter
from checker.proof.lemmas import Guide, Known, find_lemmas
from checker.proof.obligations import Proof
from checker.proof.refute import Refutation
from checker.proof.safety import inductive, prove_always, prove_by_spacer, prove_each_step, refute_safety
from checker.proof.shrink import Breaks, shortest
from checker.proof.unroll import Run
from checker.subject import Slice, Subject
from checker.verdict import Verdict
from spec.properties import Part
from spec.terms import BoolTerm
from spec.tla import Always, EachStep

# How many steps are few to a solver, and how many further runs that break a claim are enough to choose from.
_SHALLOW = 5
_ENOUGH = 4
# How many steps are so many that a run of few is worth a search.
_LONG = 6


def safety(subject: Subject, part: Part, claim: Always | EachStep, piece: Slice, trail: Trail) -> Decided:
    """Cheap before dear: known runs, random runs, induction without lemmas and with them, all runs, Spacer."""
    breaks = _breaking_state(piece.walker, claim) if isinstance(claim, Always) else _breaking_step(claim)
    found = _broken_by_a_run(claim, breaks, piece, trail) or _by_induction(claim, breaks, piece)
    found = found or _sought(claim, piece, breaks)
    if isinstance(found, Refutation):
        return refuted(subject, part, piece, found)
    if found:
        return Decided(part, Verdict.PROVED, "induction", piece.system, found)
    proof = prove_by_spacer(piece.system, claim, piece.lemmas)
    if proof:
        return Decided(part, Verdict.PROVED, "spacer", piece.system, proof)
    note = f"no violation in {subject.limits.depth} steps, and no inductive invariant found"
    return Decided(part, Verdict.BOUNDED, "bounded-search", piece.system, note=note)


def _by_induction(claim: Always | EachStep, breaks: Breaks, piece: Slice) -> Proof | Refutation | None:
    """A proof without lemmas, with the likely ones, with all; before the last, some more random runs."""
    proof = _without_lemmas(claim, piece)
    for number, lemmas in enumerate(piece.lemma_sets() if proof is None else ()):
        if number:
            found = shortest(piece.walker, piece.rich.runs, breaks)
            if found:
                return Refutation(Run(found), "random-run")
        proof = by_lemmas(claim, piece, lemmas)
        if proof:
            break
    return proof


def _without_lemmas(claim: Always | EachStep, piece: Slice) -> Proof | None:
    system = piece.system
    if piece.falling:
        return None
    if isinstance(claim, EachStep):
        return prove_each_step(system, claim, ())
    return prove_always(system, claim, [claim.holds]) if inductive(system, claim.holds, ()) else None


def by_lemmas(claim: Always | EachStep, piece: Slice, lemmas: Sequence[BoolTerm]) -> Proof | None:
    """A proof by induction over these lemmas, or None."""
    system = piece.system
    if isinstance(claim, EachStep):
        return prove_each_step(system, claim, lemmas)
    every = Known(frozenset(v.name for v in system.spec.variables), lemmas)
    return prove_always(system, claim, find_lemmas(system, piece.samples, [claim.holds], Guide(every)))


def _broken_by_a_run(claim: Always | EachStep, breaks: Breaks, piece: Slice, trail: Trail) -> Refutation | None:
    """A run that broke the claim in another configuration and breaks it here, or a random one; shrunk."""
    known = trail.shrunk(piece.walker, breaks)
    if known:
        return Refutation(Run(known), "known-run")
    found = shortest(piece.walker, piece.samples.runs, breaks)
    shorter = refute_safety(piece.unrolling, claim, range(1, _SHALLOW + 1)) if found and len(found) > _LONG else None
    if shorter:
        return Refutation(shorter, "shortest-run")
    return Refutation(Run(found), "random-run") if found else None


def _sought(claim: Always | EachStep, piece: Slice, breaks: Breaks) -> Refutation | None:
    """A run that breaks the claim, which is not inductive and so likely false: short ones, more random ones, all."""
    limit = piece.subject.limits.depth
    shallow = min(_SHALLOW, limit)
    run = refute_safety(piece.unrolling, claim, range(1, shallow + 1))
    if run:
        return Refutation(run, "shortest-run")
    # Many more random runs cost less than the search in depth.
    found = shortest(piece.walker, piece.more_runs, breaks, enough=_ENOUGH)
    if found:
        return Refutation(Run(found), "random-run")
    run = refute_safety(piece.unrolling, claim, range(shallow + 1, limit + 1))
    return Refutation(run, "shortest-run") if run else None


def _breaking_state(walker: Interpreter, claim: Always) -> Breaks:
    holds = walker.holds(claim.holds)
    return lambda step, _before: not holds(step.state)


def _breaking_step(claim: EachStep) -> Breaks:
    holds = over(claim.holds)
    return lambda step, before: step.action not in claim.but and not holds(before, step.state)
