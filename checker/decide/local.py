"""A proof in the little of a large spec that a claim itself needs: tried first; where there is none, nothing is said.

That little has more runs than the spec (`Cones.local`), so no run of it counts against a claim.
"""

from __future__ import annotations

from collections.abc import Callable

from checker.decide.decided import Decided, Trail
from checker.decide.safety import by_lemmas
from checker.proof.carry import carried
from checker.proof.liveness import LeadsToSearch
from checker.proof.obligations import Proof
from checker.proof.system import UndecidedError
from checker.subject import Slice, Subject
from checker.verdict import Verdict
from spec.properties import Part
from spec.tla import Always, EachStep, LeadsTo


def locally(subject: Subject, part: Part, trail: Trail) -> Decided | None:
    """The claim proved there, or None."""
    claim = part.claim
    try:
        if isinstance(claim, LeadsTo):
            piece = subject.local(claim.pending, claim.goal)
            return _decided(part, piece, trail, lambda here: _leads_to(claim, here, trail)) if piece else None
        if isinstance(claim, Always | EachStep):
            piece = subject.local(claim.holds)
            return _decided(part, piece, trail, lambda here: by_lemmas(claim, here, here.lemmas)) if piece else None
    except UndecidedError:
        pass  # In the whole slice it may be easier.
    return None


def _decided(part: Part, piece: Slice, trail: Trail, prove: Callable[[Slice], Proof | None]) -> Decided | None:
    method = "ranking" if isinstance(part.claim, LeadsTo) else "induction"
    before = trail.hints.decided.get(trail.key)
    if before and before.proof and before.system:
        proof = carried(before.system, piece.system, before.proof, part.claim)
        if proof:
            return Decided(part, Verdict.PROVED, method, piece.system, proof, carried=True)
    proof = prove(piece)
    return Decided(part, Verdict.PROVED, method, piece.system, proof) if proof else None


def _leads_to(claim: LeadsTo, piece: Slice, trail: Trail) -> Proof | None:
    """Over plain ranks, and only where a random run is pending: what never is, is vacuous, which is not told here."""
    if not any(map(piece.walker.holds(claim.pending), piece.samples.states)):
        return None
    found = LeadsToSearch(piece.system, claim, piece.lemmas, trail.rank).attempt(slice(0, 2))
    return found if isinstance(found, Proof) else None
