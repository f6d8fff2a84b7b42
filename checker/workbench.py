"""One configuration on the bench: its spec, the samples of it, and the claims decided one after another.

Slices (cones of influence) and their lemmas are shared between the claims that need the same variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property

import z3

from checker.decide.decided import Decided, Trail
from checker.decide.known import known
from checker.decide.liveness import liveness
from checker.decide.local import locally
from checker.decide.safety import safety
from checker.hints import Hints
from checker.kept.replay import Finds
from checker.proof.guardrails import vacuous
from checker.proof.system import Limits, Tally, UndecidedError
from checker.subject import Subject
from checker.verdict import Verdict
from spec.errors import SpecError
from spec.profile import Configuration, Profile
from spec.properties import Part, Property
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term, neg
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo, stuttering
from spec.unknowns import Unknowns, reasons

VACUOUS = "vacuous"
"""The method of a proof that says nothing."""


class Workbench:
    """Decides properties for one configuration of a profile."""

    def __init__(
        self,
        profile: Profile,
        configuration: Configuration,
        limits: Limits | None = None,
        hints: Hints[Decided] | None = None,
    ) -> None:
        """Nothing is built before the first claim. `hints` are those of configurations decided before, and grow."""
        self.profile = profile
        self.hints = hints if hints is not None else Hints()
        self.configuration = configuration
        self.limits = limits or Limits()
        self.tally = Tally()
        self._subjects: dict[bool, Subject] = {}
        kept = self.hints.kept and self.hints.kept.of(configuration)
        self._finds = Finds(kept) if kept else None

    def subject(self, *, follow_request: bool) -> Subject:
        """The spec, with or without one request that is followed."""
        if follow_request not in self._subjects:
            protocol = Protocol(self.profile, self.configuration, follow_request=follow_request)
            self._subjects[follow_request] = Subject(
                protocol, self.limits, self.tally, not follow_request, self.hints.shared
            )
        return self._subjects[follow_request]

    def not_applicable(self, prop: Property) -> str | None:
        """Why the property has no meaning here, or None."""
        return prop.applies(self.subject(follow_request=False).protocol)

    def unsure(self, prop: Property) -> str | None:
        """Why nothing can be decided of the property, where it rests on an entry that is unknown. Else None."""
        if not self.profile.unknown:
            return None
        keys = self._unknowns.under(prop)
        return reasons(self.profile, keys) if keys else None

    @cached_property
    def _unknowns(self) -> Unknowns:
        return Unknowns(self.profile, self.configuration)

    def decide(self, prop: Property) -> list[Decided]:
        """Every claim of the property, up to the first that is refuted. Raises SpecError where it rests on a guess."""
        if unsure := self.unsure(prop):
            raise SpecError(f"{prop.id} rests on a fact that is unknown: {unsure}")
        subject = self.subject(follow_request=prop.needs_request)
        decided = []
        for number, part in enumerate(prop.claims(subject.protocol, subject.spec)):
            decided.append(
                decide_part(subject, part, Trail(f"{prop.id}/{part.about}/{number}", self.hints, self._finds))
            )
            if decided[-1].verdict is Verdict.REFUTED:
                break
        return decided


def decide_part(subject: Subject, part: Part, trail: Trail | None = None) -> Decided:
    """One claim: a proof, a confirmed counterexample, or neither."""
    trail = trail or Trail("", Hints())
    decided = _guarded(_decide(subject, part, trail))
    if decided.method == VACUOUS and part.instead is not None:
        decided = _guarded(_decide(subject, Part(part.instead, part.about), trail))
    trail.hints.decided[trail.key] = decided
    if decided.confirmed is not None:
        trail.hints.refuted(trail.key, decided.confirmed.steps)
    elif decided.proof is not None:
        trail.hints.proved(trail.key, [c.parts for c in decided.proof.rank])
    return decided


def _guarded(decided: Decided) -> Decided:
    """A proof of `pending ~> goal` whose pending is unreachable is none. That something never happens is an answer."""
    claim, proof, system = decided.part.claim, decided.proof, decided.system
    if proof is None or system is None or not isinstance(claim, LeadsTo):
        return decided
    if not vacuous(system, claim, proof.lemmas):
        return decided
    note = "vacuous: no reachable state is pending"
    return replace(decided, verdict=Verdict.UNKNOWN, method=VACUOUS, proof=None, note=note)


def _decide(subject: Subject, part: Part, trail: Trail) -> Decided:
    claim = part.claim
    steps = _steps(subject, claim)
    proved = None if steps else locally(subject, part, trail)
    if proved:
        return proved
    piece = subject.slice(*_terms(claim), steps=steps)
    try:
        found = known(subject, part, piece, trail)
        if found:
            return found
        if isinstance(claim, Always | EachStep):
            return safety(subject, part, claim, piece, trail)
        return liveness(subject, part, claim, piece, trail)
    except UndecidedError as error:
        return Decided(part, Verdict.UNKNOWN, "undecided", piece.system, note=f"the solver gave up: {error}")


def _terms(claim: Claim) -> Iterable[Term]:
    if isinstance(claim, Always | EachStep):
        return [claim.holds]
    return [claim.pending, claim.goal] if isinstance(claim, LeadsTo) else [claim.during, claim.event]


def _steps(subject: Subject, claim: Claim) -> AbstractSet[str]:
    """The actions that a slice must keep: those the claim speaks of, where a stuttering step would break it."""
    if isinstance(claim, EachStep) and _possible(neg(stuttering(subject.spec, claim.holds))):
        return frozenset(a.name for a in subject.spec.actions) - claim.but
    if isinstance(claim, FinitelyOften) and _possible(stuttering(subject.spec, claim.event)):
        raise SpecError("an event that a stuttering step can be is not finite in number")
    return frozenset()


def _possible(term: BoolTerm) -> bool:
    solver = z3.SimpleSolver()
    solver.add(term)
    return bool(solver.check() != z3.unsat)
