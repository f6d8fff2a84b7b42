"""One configuration on the bench: its spec, the samples of it, and the claims decided one after another.

Slices (cones of influence) and their lemmas are shared between the claims that need the same variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, islice

import z3

from checker.confirm import Confirmed, confirm, over
from checker.hints import Hints, Parts
from checker.proof.carry import carried, carried_region
from checker.proof.guardrails import vacuous
from checker.proof.interpreter import Interpreter, Step, Value
from checker.proof.lemmas import Guide, Known, find_lemmas
from checker.proof.liveness import Gap, LeadsToSearch, prove_finitely_often
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
from checker.proof.safety import inductive, prove_always, prove_by_spacer, prove_each_step, refute_safety
from checker.proof.shrink import Breaks, replayed, shortest, shrink, weight
from checker.proof.system import Limits, System, Tally, UndecidedError
from checker.proof.unroll import Run, reach_state
from checker.subject import Slice, Subject
from checker.verdict import Verdict
from spec.errors import SpecError
from spec.profile import Configuration, Profile
from spec.properties import Part, Property
from spec.protocol import Protocol
from spec.terms import BoolTerm, Term, neg
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo, stuttering

# How many pending states of random runs are looked at before the first proof attempt.
_GUESSES = 6
# How many steps are few to a solver, and how many further runs that break a claim are enough to choose from.
_SHALLOW = 5
_ENOUGH = 4
# How many steps are so many that a run of few is worth a search.
_LONG = 6
_NOT_TRIED = Gap(7, "not tried", {})
# How many known runs of a claim are tried, the latest first.
_KNOWN = 3


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
    hints: Hints[Decided]

    @property
    def runs(self) -> Sequence[tuple[Step, ...]]:
        """Runs that broke the claim elsewhere."""
        return self.hints.runs.get(self.key, ())

    def shrunk(self, interpreter: Interpreter, breaks: Breaks) -> tuple[Step, ...] | None:
        """The shortest that comes of them here."""
        found = (shrink(interpreter, run, breaks) for run in self.runs[:_KNOWN])
        return min((run for run in found if run), key=weight, default=None)

    @property
    def flag(self) -> BoolTerm | None:
        """The flag inside which a stuck region was found elsewhere."""
        before = self.hints.decided.get(self.key)
        return before.refutation.stuck.flag if before and before.refutation and before.refutation.stuck else None

    @property
    def rank(self) -> Sequence[Parts]:
        """The rank that proved it elsewhere."""
        return self.hints.ranks.get(self.key, ())


def decide_part(subject: Subject, part: Part, trail: Trail | None = None) -> Decided:
    """One claim: a proof, a confirmed counterexample, or neither."""
    trail = trail or Trail("", Hints())
    decided = _guarded(_decide(subject, part, trail))
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
    return replace(decided, verdict=Verdict.UNKNOWN, method="vacuous", proof=None, note=note)


def _decide(subject: Subject, part: Part, trail: Trail) -> Decided:
    claim = part.claim
    piece = subject.slice(*_terms(claim), steps=_steps(subject, claim))
    try:
        carried = _carried(subject, part, piece, trail)
        if carried:
            return carried
        if isinstance(claim, Always | EachStep):
            return _safety(subject, part, claim, piece, trail)
        return _liveness(subject, part, claim, piece, trail)
    except UndecidedError as error:
        return Decided(part, Verdict.UNKNOWN, "undecided", piece.system, note=f"the solver gave up: {error}")


def _carried(subject: Subject, part: Part, piece: Slice, trail: Trail) -> Decided | None:
    """What decided the claim in the configuration before, where it does so here too."""
    before = trail.hints.decided.get(trail.key)
    if before is None or before.system is None:
        return None
    if before.proof:
        proof = carried(before.system, piece.system, before.proof, part.claim)
        return Decided(part, Verdict.PROVED, before.method, piece.system, proof) if proof else None
    stuck = before.refutation.stuck if before.refutation else None
    region = carried_region(before.system, piece.system, stuck) if stuck else None
    run = _way_into(region, piece, trail) if region else None
    refutation = refute_by_stuck_region(piece.interpreter, region, run) if region else None
    return _refuted(subject, part, piece.system, refutation) if refutation else None


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
    """Cheap before dear: known runs, random runs, induction without lemmas and with them, all runs, Spacer."""
    breaks = _breaking_state(piece.walker, claim) if isinstance(claim, Always) else _breaking_step(claim)
    found = _broken_by_a_run(claim, breaks, piece, trail) or _by_induction(claim, breaks, piece)
    found = found or _sought(claim, piece, breaks)
    if isinstance(found, Refutation):
        return _refuted(subject, part, piece.system, found)
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
        proof = _by_lemmas(claim, piece, lemmas)
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


def _by_lemmas(claim: Always | EachStep, piece: Slice, lemmas: Sequence[BoolTerm]) -> Proof | None:
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


def _liveness(subject: Subject, part: Part, claim: LeadsTo | FinitelyOften, piece: Slice, trail: Trail) -> Decided:
    system = piece.system
    found: Proof | Gap
    refutation: Refutation | None
    if isinstance(claim, LeadsTo):
        found, refutation = _leads_to(claim, piece, trail)
    else:
        found = _finitely(claim, piece)
        refutation = None if isinstance(found, Proof) else refute_finitely_often(piece.unrolling, claim)
    if refutation:
        return _refuted(subject, part, system, refutation)
    if isinstance(found, Proof):
        return Decided(part, Verdict.PROVED, "ranking", system, found)
    state = ", ".join(f"{k}={v}" for k, v in found.state.items() if v)
    note = f"obligation {found.obligation} fails ({found.about}) in a state not shown to be reachable: {state}"
    return Decided(part, Verdict.UNKNOWN, "ranking", system, note=note)


def _finitely(claim: FinitelyOften, piece: Slice) -> Proof | Gap:
    found: Proof | Gap = _NOT_TRIED
    for lemmas in piece.lemma_sets():
        found = prove_finitely_often(piece.system, claim, lemmas)
        if isinstance(found, Proof):
            break
    return found


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
    return found, refute_by_lasso(piece.unrolling, claim)


def _stuck(claim: LeadsTo, piece: Slice, trail: Trail, lemmas: Sequence[BoolTerm]) -> Refutation | None:
    """A stuck region that some run reaches."""
    stuck = stuck_region(piece.system, claim, lemmas, Sought(piece.samples, trail.flag))
    if stuck is None:
        return None
    run = _way_into(stuck, piece, trail) or reach_state(piece.unrolling, stuck.region)
    return refute_by_stuck_region(piece.interpreter, stuck, run)


def _way_into(stuck: Stuck, piece: Slice, trail: Trail) -> Run | None:
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
    known = (step.state for run in trail.runs[:_KNOWN] for step, _ in replayed(piece.walker, run))
    waiting = (s for s in chain(known, piece.samples.states) if pending(s) and not goal(s))
    return any(_settles_outside(goal, state, piece) for state in islice(waiting, _GUESSES))


def _settles_outside(goal: Callable[[Mapping[str, Value]], bool], state: Mapping[str, Value], piece: Slice) -> bool:
    here = {name: state[name] for name in piece.system.spec.init}
    try:
        piece.interpreter.settle(here, lambda s: not goal(s), limit=60)
    except RuntimeError:
        return False
    return True


def _refuted(subject: Subject, part: Part, system: System, refutation: Refutation) -> Decided:
    confirmed = confirm(subject.interpreter, part.claim, refutation, system.spec)
    return Decided(part, Verdict.REFUTED, refutation.method, system, None, refutation, confirmed)
