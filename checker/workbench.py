"""One configuration on the bench: its spec, the samples of it, and the claims decided one after another.

Slices (cones of influence) and their lemmas are shared between the claims that need the same variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import z3

from checker.confirm import Confirmed, confirm, over
from checker.hints import Hints, Parts, prefix_to
from checker.proof.guardrails import vacuous
from checker.proof.interpreter import Interpreter, Step, Value
from checker.proof.lemmas import Known, Samples, find_lemmas
from checker.proof.liveness import Gap, LeadsToSearch, prove_finitely_often
from checker.proof.obligations import Proof
from checker.proof.refute import Refutation, refute_by_lasso, refute_by_stuck_region, refute_finitely_often
from checker.proof.safety import inductive, prove_always, prove_by_spacer, prove_each_step, refute_safety
from checker.proof.system import Limits, System, Tally, UndecidedError, check_naturals
from checker.proof.unroll import Run, Unrolling
from checker.verdict import Verdict
from spec.errors import SpecError
from spec.profile import Configuration, Profile
from spec.properties import Part, Property
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term, neg
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo, Spec, stuttering

# How many pending states of random runs are looked at before the first proof attempt.
_GUESSES = 20


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
    """The part of a spec that can influence some terms, ready for the solver. Lemmas are found when first wanted."""

    system: System
    subject: Subject
    key: frozenset[str]

    @cached_property
    def samples(self) -> Samples:
        """Random runs."""
        return self.subject.samples_of(self.system.spec)

    @cached_property
    def lemmas(self) -> list[BoolTerm]:
        """Inductive lemmas; with them it is certain that counters stay natural."""
        found = find_lemmas(self.system, self.samples, known=self.subject.known(self.key))
        check_naturals(self.system, found)
        return found

    @cached_property
    def stays_natural(self) -> bool:
        """Whether counters stay natural even without lemmas."""
        try:
            check_naturals(self.system, ())
        except SpecError:
            return False
        return True

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
        return self._walk(self.interpreter)

    def _walk(self, interpreter: Interpreter) -> Samples:
        return Samples(*interpreter.walks(self.limits.walks, self.limits.walk_length, self.limits.seed))

    def slice_for(self, claim: Claim) -> Slice:
        """The slice of this claim."""
        return self.slice(*_terms(claim), steps=_steps(self, claim))

    def slice(self, *terms: Term, steps: AbstractSet[str] = frozenset()) -> Slice:
        """The slice that these terms need, with the actions in `steps` kept even where they change nothing in it."""
        spec = self.spec.relevant(*terms, steps=steps)
        key = frozenset(v.name for v in spec.variables) | {f"action {name}" for name in steps}
        if key not in self.slices:
            self.slices[key] = Slice(System(spec, self.limits, self.tally), self, key)
        return self.slices[key]

    def samples_of(self, spec: Spec) -> Samples:
        """States and steps of random runs that this slice of the spec can be judged by."""
        return self.samples if self.walk_whole else self._walk(Interpreter(spec))

    def known(self, key: frozenset[str]) -> Known | None:
        """The lemmas of the largest slice so far that lies inside this one."""
        inside = [k for k, piece in self.slices.items() if k < key and "lemmas" in vars(piece)]
        largest = max(inside, key=len, default=None)
        return None if largest is None else Known(largest, self.slices[largest].lemmas)


class Workbench:
    """Decides properties for one configuration of a profile."""

    def __init__(
        self,
        profile: Profile,
        configuration: Configuration,
        limits: Limits | None = None,
        hints: Hints | None = None,
    ) -> None:
        """Nothing is built before the first claim. `hints` are those of configurations decided before, and grow."""
        self.profile = profile
        self.hints = hints if hints is not None else Hints()
        self.configuration = configuration
        self.limits = limits or Limits()
        self.tally = Tally()
        self._subjects: dict[bool, Subject] = {}

    def subject(self, *, follow_request: bool) -> Subject:
        """The spec, with or without one request that is followed."""
        if follow_request not in self._subjects:
            protocol = Protocol(self.profile, self.configuration, follow_request=follow_request)
            self._subjects[follow_request] = Subject(protocol, self.limits, self.tally, not follow_request)
        return self._subjects[follow_request]

    def not_applicable(self, prop: Property) -> str | None:
        """Why the property has no meaning here, or None."""
        return prop.applies(self.subject(follow_request=False).protocol)

    def decide(self, prop: Property) -> list[Decided]:
        """Every claim of the property, up to the first that is refuted."""
        subject = self.subject(follow_request=prop.needs_request)
        decided = []
        for number, part in enumerate(prop.claims(subject.protocol, subject.spec)):
            decided.append(decide_part(subject, part, Trail(f"{prop.id}/{part.about}/{number}", self.hints)))
            if decided[-1].verdict is Verdict.REFUTED:
                break
        return decided


@dataclass(frozen=True)
class Trail:
    """The hints for one claim."""

    key: str
    hints: Hints

    @property
    def runs(self) -> Sequence[tuple[Step, ...]]:
        """Runs that broke the claim elsewhere."""
        return self.hints.runs.get(self.key, ())

    @property
    def rank(self) -> Sequence[Parts]:
        """The rank that proved it elsewhere."""
        return self.hints.ranks.get(self.key, ())


def decide_part(subject: Subject, part: Part, trail: Trail | None = None) -> Decided:
    """One claim: a proof, a confirmed counterexample, or neither."""
    trail = trail or Trail("", Hints())
    decided = _guarded(_decide(subject, part, trail))
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
    return replace(decided, verdict=Verdict.UNKNOWN, method="vacuous", proof=None, note=note)


def _decide(subject: Subject, part: Part, trail: Trail) -> Decided:
    claim = part.claim
    piece = subject.slice_for(claim)
    try:
        if isinstance(claim, Always | EachStep):
            return _safety(subject, part, claim, piece, trail)
        return _liveness(subject, part, claim, piece, trail)
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


def _safety(subject: Subject, part: Part, claim: Always | EachStep, piece: Slice, trail: Trail) -> Decided:
    """Cheap before dear: a known run, random runs, induction without lemmas and with them, all runs, Spacer."""
    known = _known_run(subject, claim, trail)
    if known:
        return _refuted(subject, part, piece.system, Refutation(known, "known-run"))
    broken = _samples_break(subject, claim, piece)
    proof = None if broken else _by_induction(claim, piece)
    if proof:
        return Decided(part, Verdict.PROVED, "induction", piece.system, proof)
    run = refute_safety(piece.unrolling, claim)
    if run:
        return _refuted(subject, part, piece.system, Refutation(run, "shortest-run"))
    proof = None if broken else prove_by_spacer(piece.system, claim, piece.lemmas)
    if proof:
        return Decided(part, Verdict.PROVED, "spacer", piece.system, proof)
    note = f"no violation in {subject.limits.depth} steps, and no inductive invariant found"
    return Decided(part, Verdict.BOUNDED, "bounded-search", piece.system, note=note)


def _by_induction(claim: Always | EachStep, piece: Slice) -> Proof | None:
    """A proof without lemmas, or with them."""
    system = piece.system
    if piece.stays_natural:
        alone = [claim.holds] if isinstance(claim, Always) and inductive(system, claim.holds, ()) else []
        proof = prove_always(system, claim, alone) if isinstance(claim, Always) else prove_each_step(system, claim, ())
        if proof:
            return proof
    if isinstance(claim, EachStep):
        return prove_each_step(system, claim, piece.lemmas)
    wanted = Known(frozenset(v.name for v in system.spec.variables), piece.lemmas)
    return prove_always(system, claim, find_lemmas(system, piece.samples, [claim.holds], wanted))


def _samples_break(subject: Subject, claim: Always | EachStep, piece: Slice) -> bool:
    """Whether a random run breaks the claim: then it need not be proved, and a shortest run is sought."""
    if isinstance(claim, Always):
        holds = subject.interpreter.holds(claim.holds)
        return not all(map(holds, piece.samples.states))
    holds_over = over(claim.holds)
    return not all(holds_over(b, a) for name, b, a in piece.samples.steps if name not in claim.but)


def _known_run(subject: Subject, claim: Always | EachStep, trail: Trail) -> Run | None:
    """A run that broke the claim in another configuration, if it breaks it here."""
    breaks = _breaking_state(subject, claim) if isinstance(claim, Always) else _breaking_step(claim)
    found = (prefix_to(subject.interpreter, steps, breaks) for steps in trail.runs)
    return next((Run(steps) for steps in found if steps), None)


def _breaking_state(subject: Subject, claim: Always) -> Callable[[Step, Mapping[str, Value]], bool]:
    holds = subject.interpreter.holds(claim.holds)
    return lambda step, _before: not holds(step.state)


def _breaking_step(claim: EachStep) -> Callable[[Step, Mapping[str, Value]], bool]:
    holds = over(claim.holds)
    return lambda step, before: step.action not in claim.but and not holds(before, step.state)


def _liveness(subject: Subject, part: Part, claim: LeadsTo | FinitelyOften, piece: Slice, trail: Trail) -> Decided:
    system = piece.system
    found: Proof | Gap
    refutation: Refutation | None
    if isinstance(claim, LeadsTo):
        found, refutation = _leads_to(claim, piece, trail)
    else:
        found = prove_finitely_often(system, claim, piece.lemmas)
        refutation = None if isinstance(found, Proof) else refute_finitely_often(piece.unrolling, claim)
    if refutation:
        return _refuted(subject, part, system, refutation)
    if isinstance(found, Proof):
        return Decided(part, Verdict.PROVED, "ranking", system, found)
    state = ", ".join(f"{k}={v}" for k, v in found.state.items() if v)
    note = f"obligation {found.obligation} fails ({found.about}) in a state not shown to be reachable: {state}"
    return Decided(part, Verdict.UNKNOWN, "ranking", system, note=note)


def _leads_to(claim: LeadsTo, piece: Slice, trail: Trail) -> tuple[Proof | Gap, Refutation | None]:
    """Cheap before dear: what was known elsewhere, plain ranks, a stuck region, wider templates, lassos."""
    found: Proof | Gap = Gap(7, "not tried", {})
    if trail.runs or _seems_stuck(claim, piece):
        refutation = refute_by_stuck_region(piece.unrolling, claim, piece.lemmas, trail.runs)
        if refutation:
            return found, refutation
    search = LeadsToSearch(piece.system, claim, piece.lemmas, trail.rank)
    for tiers in ([slice(0, 0)] if trail.rank else []) + [slice(0, 1), slice(1, 2)]:
        found = search.attempt(tiers)
        if isinstance(found, Proof):
            return found, None
    refutation = refute_by_stuck_region(piece.unrolling, claim, piece.lemmas)
    if refutation:
        return found, refutation
    found = search.attempt(slice(2, None))
    if isinstance(found, Proof):
        return found, None
    return found, refute_by_lasso(piece.unrolling, claim)


def _seems_stuck(claim: LeadsTo, piece: Slice) -> bool:
    """Whether some pending states of random runs settle without the goal. A guess at what to try first, no verdict."""
    runner = Interpreter(piece.system.spec)
    pending, goal = runner.holds(claim.pending), runner.holds(claim.goal)
    waiting = (s for s in piece.samples.states if pending(s) and not goal(s))
    for sample in islice(waiting, _GUESSES):
        state = {name: sample[name] for name in piece.system.spec.init}
        try:
            runner.settle(state, lambda s: not goal(s), limit=60)
        except RuntimeError:
            continue
        return True
    return False


def _refuted(subject: Subject, part: Part, system: System, refutation: Refutation) -> Decided:
    confirmed = confirm(subject.interpreter, part.claim, refutation, system.spec)
    return Decided(part, Verdict.REFUTED, refutation.method, system, None, refutation, confirmed)
