"""One configuration on the bench: its spec, the samples of it, and the claims decided one after another.

Slices (cones of influence) and their lemmas are shared between the claims that need the same variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

import z3

from checker.confirm import Confirmed, confirm
from checker.proof.interpreter import Interpreter
from checker.proof.lemmas import Known, Samples, find_lemmas
from checker.proof.liveness import Gap, LeadsToSearch, prove_finitely_often
from checker.proof.obligations import Proof
from checker.proof.refute import Refutation, refute_by_lasso, refute_by_stuck_region, refute_finitely_often
from checker.proof.safety import prove_always, prove_by_spacer, prove_each_step, refute_safety
from checker.proof.system import Limits, System, Tally, UndecidedError, check_naturals
from checker.proof.unroll import Unrolling
from checker.verdict import Verdict
from spec.errors import SpecError
from spec.profile import Configuration, Profile
from spec.properties import Part, Property
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term, neg
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo, Spec, stuttering


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
    samples: Samples

    @cached_property
    def unrolling(self) -> Unrolling:
        """The frames, shared by every search in this slice."""
        return Unrolling(self.system)


@dataclass
class Subject:
    """One spec with its random runs and its slices."""

    protocol: Protocol
    limits: Limits
    tally: Tally
    walk_whole: bool = True
    """Whether the random runs are of the whole spec, for all slices; else of each slice, where there is only one."""
    shared: tuple[Claim, ...] = ()
    """Safety claims that share one slice, its lemmas and its frames: cheaper than a slice for each."""
    slices: dict[frozenset[str], Slice] = field(default_factory=dict)
    unrollings: dict[frozenset[str], Unrolling] = field(default_factory=dict)

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
        return self._walk(self.interpreter)

    def _walk(self, interpreter: Interpreter) -> Samples:
        return Samples(interpreter.walks(self.limits.walks, self.limits.walk_length, self.limits.seed))

    def slice_for(self, claim: Claim) -> Slice:
        """The slice of this claim, or the shared one."""
        if any(claim is other for other in self.shared):
            return self._shared_slice
        return self.slice(*_terms(claim), steps=_steps(self, claim))

    def frames_for(self, claim: Claim, piece: Slice) -> Unrolling:
        """The frames in which a run that breaks the claim is sought: its own slice is smaller than a shared one."""
        spec = self.spec.relevant(*_terms(claim), steps=_steps(self, claim))
        return piece.unrolling if len(spec.variables) == len(piece.system.spec.variables) else self._frames(spec)

    def _frames(self, spec: Spec) -> Unrolling:
        key = frozenset(v.name for v in spec.variables) | {f"action {a.name}" for a in spec.actions}
        if key not in self.unrollings:
            self.unrollings[key] = Unrolling(System(spec, self.limits, self.tally))
        return self.unrollings[key]

    @cached_property
    def _shared_slice(self) -> Slice:
        steps = frozenset[str]().union(*(_steps(self, c) for c in self.shared))
        return self.slice(*(t for c in self.shared for t in _terms(c)), steps=steps)

    def slice(self, *terms: Term, steps: AbstractSet[str] = frozenset()) -> Slice:
        """The slice that these terms need, with the actions in `steps` kept even where they change nothing in it."""
        spec = self.spec.relevant(*terms, steps=steps)
        key = frozenset(v.name for v in spec.variables) | {f"action {name}" for name in steps}
        if key not in self.slices:
            system = System(spec, self.limits, self.tally)
            samples = self.samples if self.walk_whole else self._walk(Interpreter(spec))
            lemmas = find_lemmas(system, samples, known=self._known(key))
            check_naturals(system, lemmas)
            self.slices[key] = Slice(system, lemmas, samples)
        return self.slices[key]

    def _known(self, key: frozenset[str]) -> Known | None:
        """The largest slice so far that lies inside this one."""
        inside = [k for k in self.slices if k < key]
        largest = max(inside, key=len, default=None)
        return None if largest is None else Known(largest, self.slices[largest].lemmas)


class Workbench:
    """Decides properties for one configuration of a profile."""

    def __init__(self, profile: Profile, configuration: Configuration, limits: Limits | None = None) -> None:
        """Nothing is built before the first claim."""
        self.profile = profile
        self.configuration = configuration
        self.limits = limits or Limits()
        self.tally = Tally()
        self._subjects: dict[bool, Subject] = {}
        self._parts: dict[str, tuple[Part, ...]] = {}

    def subject(self, *, follow_request: bool) -> Subject:
        """The spec, with or without one request that is followed."""
        if follow_request not in self._subjects:
            protocol = Protocol(self.profile, self.configuration, follow_request=follow_request)
            self._subjects[follow_request] = Subject(protocol, self.limits, self.tally, not follow_request)
        return self._subjects[follow_request]

    def expect(self, properties: Iterable[Property]) -> None:
        """Say which properties will be decided, so that their safety claims share a slice: cheaper, not needed."""
        subject = self.subject(follow_request=False)
        own = [p for p in properties if not p.needs_request and self.not_applicable(p) is None]
        for prop in own:
            self._parts[prop.id] = tuple(prop.claims(subject.protocol, subject.spec))
        claims = (part.claim for prop in own for part in self._parts[prop.id])
        subject.shared = tuple(c for c in claims if isinstance(c, Always | EachStep))

    def not_applicable(self, prop: Property) -> str | None:
        """Why the property has no meaning here, or None."""
        return prop.applies(self.subject(follow_request=False).protocol)

    def decide(self, prop: Property) -> list[Decided]:
        """Every claim of the property, up to the first that is refuted."""
        subject = self.subject(follow_request=prop.needs_request)
        decided = []
        for part in self._parts.get(prop.id) or prop.claims(subject.protocol, subject.spec):
            decided.append(decide_part(subject, part))
            if decided[-1].verdict is Verdict.REFUTED:
                break
        return decided


def decide_part(subject: Subject, part: Part) -> Decided:
    """One claim: a proof, a confirmed counterexample, or neither."""
    claim = part.claim
    piece = subject.slice_for(claim)
    try:
        if isinstance(claim, Always | EachStep):
            return _safety(subject, part, claim, piece)
        return _liveness(subject, part, claim, piece)
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


def _safety(subject: Subject, part: Part, claim: Always | EachStep, piece: Slice) -> Decided:
    system, lemmas = piece.system, piece.lemmas
    if isinstance(claim, Always):
        holds = subject.interpreter.holds(claim.holds)
        if all(holds(state) for state in piece.samples.states):
            lemmas = find_lemmas(system, piece.samples, [claim.holds], Known(_names(system), lemmas))
        proof = prove_always(system, claim, lemmas)
    else:
        proof = prove_each_step(system, claim, lemmas)
    if proof:
        return Decided(part, Verdict.PROVED, "induction", system, proof)
    frames = subject.frames_for(claim, piece)
    run = refute_safety(frames, claim)
    if run:
        return _refuted(subject, part, frames.system, Refutation(run, "shortest-run"))
    proof = prove_by_spacer(system, claim, lemmas)
    if proof:
        return Decided(part, Verdict.PROVED, "spacer", system, proof)
    note = f"no violation in {subject.limits.depth} steps, and no inductive invariant found"
    return Decided(part, Verdict.BOUNDED, "bounded-search", system, note=note)


def _names(system: System) -> frozenset[str]:
    return frozenset(v.name for v in system.spec.variables)


def _liveness(subject: Subject, part: Part, claim: LeadsTo | FinitelyOften, piece: Slice) -> Decided:
    system, lemmas = piece.system, piece.lemmas
    found: Proof | Gap
    refutation: Refutation | None = None
    if isinstance(claim, LeadsTo):
        # Cheap before dear: plain ranks, then a stuck region, then wider templates, then lassos.
        search = LeadsToSearch(system, claim, lemmas)
        found = search.attempt(slice(0, 1))
        if isinstance(found, Gap):
            found = search.attempt(slice(1, 2))
        if isinstance(found, Gap):
            refutation = refute_by_stuck_region(piece.unrolling, claim, lemmas)
        if isinstance(found, Gap) and not refutation:
            found = search.attempt(slice(2, None))
        if isinstance(found, Gap) and not refutation:
            refutation = refute_by_lasso(piece.unrolling, claim)
    else:
        found = prove_finitely_often(system, claim, lemmas)
        refutation = None if isinstance(found, Proof) else refute_finitely_often(piece.unrolling, claim)
    if isinstance(found, Proof):
        return Decided(part, Verdict.PROVED, "ranking", system, found)
    if refutation:
        return _refuted(subject, part, system, refutation)
    state = ", ".join(f"{k}={v}" for k, v in found.state.items() if v)
    note = f"obligation {found.obligation} fails ({found.about}) in a state not shown to be reachable: {state}"
    return Decided(part, Verdict.UNKNOWN, "ranking", system, note=note)


def _refuted(subject: Subject, part: Part, system: System, refutation: Refutation) -> Decided:
    confirmed = confirm(subject.interpreter, part.claim, refutation, system.spec)
    return Decided(part, Verdict.REFUTED, refutation.method, system, None, refutation, confirmed)
