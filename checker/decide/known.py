"""What decided the claim in an earlier search, or in the configuration before: checked here before it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from checker.confirm import UnconfirmedError
from checker.decide.decided import Decided, Trail, refuted
from checker.decide.liveness import way_into
from checker.proof.carry import carried, carried_region
from checker.proof.refute import refute_by_stuck_region
from checker.proof.system import UndecidedError
from checker.subject import Slice, Subject
from checker.verdict import Verdict
from spec.properties import Part

_Way = Callable[[Subject, Part, Slice, Trail], Decided | None]


def known(subject: Subject, part: Part, piece: Slice, trail: Trail) -> Decided | None:
    """What decided the claim in an earlier search, or in the configuration before; what is cheaper to check first."""
    cheap = trail.found is not None and trail.found.carried
    first, second = (_carried, _kept) if cheap else (_kept, _carried)
    return _tried(first, subject, part, piece, trail) or _tried(second, subject, part, piece, trail)


def _tried(way: _Way, subject: Subject, part: Part, piece: Slice, trail: Trail) -> Decided | None:
    """What is too hard to check is passed over like what does not hold: it must not keep the search from deciding."""
    try:
        return way(subject, part, piece, trail)
    except UndecidedError:
        return None


def _carried(subject: Subject, part: Part, piece: Slice, trail: Trail) -> Decided | None:
    """What decided the claim in the configuration before, where it does so here too."""
    before = trail.hints.decided.get(trail.key)
    if before is None or before.system is None:
        return None
    if before.proof:
        proof = carried(before.system, piece.system, before.proof, part.claim)
        if proof is None:
            return None
        method = before.method
        return Decided(part, Verdict.PROVED, method, piece.system, proof, carried=True, kept=before.kept)
    stuck = before.refutation.stuck if before.refutation else None
    region = carried_region(before.system, piece.system, stuck, part.claim) if stuck else None
    run = way_into(region, piece, trail) if region else None
    refutation = refute_by_stuck_region(piece.interpreter, region, run) if region else None
    found = refuted(subject, part, piece, refutation) if refutation else None
    return replace(found, carried=True, kept=before.kept) if found else None


def _kept(subject: Subject, part: Part, piece: Slice, trail: Trail) -> Decided | None:
    """What an earlier search found, where it holds here."""
    found, finds = trail.found, trail.finds
    if found is None or finds is None:
        return None
    proof = finds.proof(found, part.claim, piece.system, piece.walker)
    if proof:
        return Decided(part, Verdict.PROVED, found.method, piece.system, proof, kept=True)
    refutation = finds.refutation(found, part.claim, piece.system, subject.interpreter)
    try:
        return replace(refuted(subject, part, piece, refutation), kept=True) if refutation else None
    except UnconfirmedError:
        return None
