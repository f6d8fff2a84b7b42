"""One configuration on the bench: its spec, the samples of it, and the claims decided one after another.

Slices (cones of influence) and their lemmas are shared between the claims that need the same variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from checker.confirm import Confirmed, confirm
from checker.proof.interpreter import Interpreter
from checker.proof.lemmas import Samples, find_lemmas
from checker.proof.liveness import Gap, LeadsToSearch, prove_finitely_often
from checker.proof.obligations import Proof
from checker.proof.refute import Refutation, refute_by_lasso, refute_by_stuck_region, refute_finitely_often
from checker.proof.safety import prove_always, prove_by_spacer, prove_each_step, refute_safety
from checker.proof.system import Limits, System, Tally, UndecidedError
from checker.verdict import Verdict
from spec.profile import Configuration, Profile
from spec.properties import Part, Property
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term
from spec.tla import Always, EachStep, FinitelyOften, LeadsTo, Spec


@dataclass(frozen=True)
class Decided:
    """What was found out about one claim."""

    part: Part
    verdict: Verdict
    method: str
    system: System | None = None
    proof: Proof | None = None
    refutation: Refutation | None = None
    confirmed: Confirmed | None = None
    note: str = ""


@dataclass
class Slice:
    """The part of a spec that can influence some terms, ready for the solver, with its lemmas."""

    system: System
    lemmas: list[BoolTerm]


@dataclass
class Subject:
    """One spec with its random runs and its slices."""

    protocol: Protocol
    limits: Limits
    tally: Tally
    slices: dict[frozenset[str], Slice] = field(default_factory=dict)

    @cached_property
    def spec(self) -> Spec:
        """The whole state machine."""
        return self.protocol.spec()

    @cached_property
    def interpreter(self) -> Interpreter:
        """The whole spec without a solver."""
        return Interpreter(self.spec)

    @cached_property
    def samples(self) -> Samples:
        """States of random runs."""
        return Samples(self.interpreter.walks(self.limits.walks, self.limits.walk_length, self.limits.seed))

    def slice(self, *terms: Term) -> Slice:
        """The slice that these terms need."""
        spec = self.spec.relevant(*terms)
        key = frozenset(v.name for v in spec.variables)
        if key not in self.slices:
            system = System(spec, self.limits, self.tally)
            self.slices[key] = Slice(system, find_lemmas(system, self.samples))
        return self.slices[key]


class Workbench:
    """Decides properties for one configuration of a profile."""

    def __init__(self, profile: Profile, configuration: Configuration, limits: Limits | None = None) -> None:
        """Nothing is built before the first claim."""
        self.profile = profile
        self.configuration = configuration
        self.limits = limits or Limits()
        self.tally = Tally()
        self._subjects: dict[bool, Subject] = {}

    def subject(self, *, follow_request: bool) -> Subject:
        """The spec, with or without one request that is followed."""
        if follow_request not in self._subjects:
            protocol = Protocol(self.profile, self.configuration, follow_request=follow_request)
            self._subjects[follow_request] = Subject(protocol, self.limits, self.tally)
        return self._subjects[follow_request]

    def not_applicable(self, prop: Property) -> str | None:
        """Why the property has no meaning here, or None."""
        return prop.applies(self.subject(follow_request=False).protocol)

    def decide(self, prop: Property) -> list[Decided]:
        """Every claim of the property, up to the first that is refuted."""
        subject = self.subject(follow_request=prop.needs_request)
        decided = []
        for part in prop.claims(subject.protocol, subject.spec):
            decided.append(decide_part(subject, part))
            if decided[-1].verdict is Verdict.REFUTED:
                break
        return decided


def decide_part(subject: Subject, part: Part) -> Decided:
    """One claim: a proof, a confirmed counterexample, or neither."""
    claim = part.claim
    terms = _terms(claim)
    piece = subject.slice(*terms)
    try:
        if isinstance(claim, Always | EachStep):
            return _safety(subject, part, claim, piece)
        return _liveness(subject, part, claim, piece)
    except UndecidedError as error:
        return Decided(part, Verdict.UNKNOWN, "undecided", piece.system, note=f"the solver gave up: {error}")


def _terms(claim: Always | EachStep | LeadsTo | FinitelyOften) -> Iterable[Term]:
    if isinstance(claim, Always | EachStep):
        return [claim.holds]
    return [claim.pending, claim.goal] if isinstance(claim, LeadsTo) else [claim.during, claim.event]


def _safety(subject: Subject, part: Part, claim: Always | EachStep, piece: Slice) -> Decided:
    system, lemmas = piece.system, piece.lemmas
    if isinstance(claim, Always):
        holds = subject.interpreter.holds(claim.holds)
        if all(holds(state) for state in subject.samples.states):
            lemmas = find_lemmas(system, subject.samples, [claim.holds])
        proof = prove_always(system, claim, lemmas)
    else:
        proof = prove_each_step(system, claim, lemmas)
    if proof:
        return Decided(part, Verdict.PROVED, "induction", system, proof)
    run = refute_safety(system, claim)
    if run:
        refutation = Refutation(run, "shortest-run")
        return _refuted(subject, part, system, refutation)
    proof = prove_by_spacer(system, claim, lemmas)
    if proof:
        return Decided(part, Verdict.PROVED, "spacer", system, proof)
    note = f"no violation in {subject.limits.depth} steps, and no inductive invariant found"
    return Decided(part, Verdict.BOUNDED, "bounded-search", system, note=note)


def _liveness(subject: Subject, part: Part, claim: LeadsTo | FinitelyOften, piece: Slice) -> Decided:
    system, lemmas = piece.system, piece.lemmas
    found: Proof | Gap
    refutation: Refutation | None = None
    if isinstance(claim, LeadsTo):
        # Cheap before dear: plain ranks, then a stuck region, then wider templates, then lassos.
        search = LeadsToSearch(system, claim, lemmas)
        found = search.attempt(slice(0, 1))
        if isinstance(found, Gap):
            refutation = refute_by_stuck_region(system, claim, lemmas)
        if isinstance(found, Gap) and not refutation:
            found = search.attempt(slice(1, None))
        if isinstance(found, Gap) and not refutation:
            refutation = refute_by_lasso(system, claim)
    else:
        found = prove_finitely_often(system, claim, lemmas)
        refutation = None if isinstance(found, Proof) else refute_finitely_often(system, claim)
    if isinstance(found, Proof):
        return Decided(part, Verdict.PROVED, "ranking", system, found)
    if refutation:
        return _refuted(subject, part, system, refutation)
    state = ", ".join(f"{k}={v}" for k, v in found.state.items() if v)
    note = f"obligation {found.obligation} fails ({found.about}) in a state not shown to be reachable: {state}"
    return Decided(part, Verdict.UNKNOWN, "ranking", system, note=note)


def _refuted(subject: Subject, part: Part, system: System, refutation: Refutation) -> Decided:
    confirmed = confirm(subject.interpreter, part.claim, refutation.run)
    return Decided(part, Verdict.REFUTED, refutation.method, system, None, refutation, confirmed)
