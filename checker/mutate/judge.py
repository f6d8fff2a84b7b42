"""Whether a property notices a mutant.

A mutant is killed by a property when, against the unmutated spec,

- `verdict`: its verdict is another one; unknown or bounded where there was a proof counts too;
- `vacuous`: it is proved still, and what it speaks of is proved never to come, which was not so before;
- `refused`: the checker rejects the spec, because a counter may fall below 0;
- `counterexample`: the verdict stays refuted, but the run that refuted it is no counterexample of the mutant: a step of
  it is not enabled, a variable that the claim depends on has another value, the claim holds, or its end is not stuck.

Verdicts are compared before counterexamples: a mutant that a verdict tells is counted there. That a proof has to be
another one is no kill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from checker.confirm import UnconfirmedError, confirm
from checker.decide.decided import Decided, Trail
from checker.export.chosen import breakable, terms
from checker.hints import Hints
from checker.mutate.equivalence import Same
from checker.mutate.mutants import Mutant, mutated, mutated_profile, of_profile, of_spec
from checker.mutate.results import DEFINITION
from checker.proof.refute import held_actions
from checker.proof.system import Limits, System, Tally, touched
from checker.shared import Shared
from checker.subject import Slice, Subject
from checker.vacuity import is_empty
from checker.verdict import Verdict
from checker.workbench import decide_part
from spec.errors import SpecError
from spec.profile import Configuration, Profile
from spec.properties import Claims, Part, Property, catalogue
from spec.protocol import Protocol
from spec.soundness import bookkeeping, reachable
from spec.terms import BoolTerm, free_names, neg
from spec.tla import Claim, EachStep, Spec


@dataclass(frozen=True)
class Kill:
    """How a mutant was noticed, and by which property."""

    how: str
    property_id: str


@dataclass(frozen=True)
class SpecCheck:
    """Claims about the spec itself (spec.soundness), and the verdict that they must have."""

    id: str
    claims: Claims
    expected: Verdict
    needs_request: bool

    def applies(self, _protocol: Protocol) -> str | None:
        """They have a meaning everywhere."""
        return None


CHECKS = tuple(
    SpecCheck(name, claims, expected, follow)
    for follow in (False, True)
    for name, claims, expected in (
        ("bookkeeping", bookkeeping, Verdict.PROVED),
        ("reachability", reachable, Verdict.REFUTED),
    )
)


@dataclass
class GivenSubject(Subject):
    """A subject whose spec is given, and not the protocol's."""

    given: Spec | None = None

    @cached_property
    def spec(self) -> Spec:
        """The given spec."""
        return self.shared.actions.spec(self.given or self.protocol.spec())


@dataclass(frozen=True)
class _Known:
    """One claim as it was decided on the unmutated spec."""

    prop: Property | SpecCheck
    number: int
    part: Part
    decided: Decided
    empty: bool
    """Whether what it speaks of never comes."""

    @property
    def key(self) -> str:
        return f"{self.prop.id}/{self.prop.needs_request}/{self.number}"

    @property
    def size(self) -> int:
        """How much there is to look at: the variables on which the claim depends."""
        return len(self.decided.system.spec.variables) if self.decided.system else 0


@dataclass
class Judge:
    """One configuration, decided once, and its mutants."""

    profile: Profile
    configuration: Configuration
    seed: int = 0
    _shared: Shared = field(default_factory=Shared)
    _hints: Hints[Decided] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is decided yet."""
        self._hints = Hints(shared=self._shared)

    def mutants(self) -> list[Mutant]:
        """All of them, each once."""
        specs = (self._subjects[follow].spec for follow in (False, True))
        found = [m for spec in specs for m in of_spec(spec)]
        return list(dict.fromkeys([*found, *of_profile(self.profile, self.configuration)]))

    def judged(self, mutant: Mutant) -> Kill | None:
        """The first kill, cheap properties first; None where the mutant survives."""
        subjects = {follow: self._mutant_subject(mutant, follow=follow) for follow in (False, True)}
        if not all(subject is None or _is_a_spec(subject) for subject in subjects.values()):
            return Kill("refused", DEFINITION)
        # Each list once: many claims are of one property.
        every = {(p.id, p.needs_request): _parts(p, subjects[p.needs_request]) for p in {k.prop for k in self.known}}
        weaker: Kill | None = None
        for known in self.known:
            subject = subjects[known.prop.needs_request]
            if subject is None:
                continue
            how = _noticed(known, every[known.prop.id, known.prop.needs_request], subject, self._trail(known))
            if how == "counterexample":
                weaker = weaker or Kill(how, known.prop.id)
            elif how:
                return Kill(how, known.prop.id)
        return weaker

    def same(self, mutant: Mutant) -> str | None:
        """Why the mutant is the same spec after all; None where that is not proved."""
        reasons = dict[str, None]()
        for follow in (False, True):
            subject = self._mutant_subject(mutant, follow=follow)
            if subject is None:
                continue
            reason = self._same[follow].reason(subject.spec) if _is_a_spec(subject) else None
            if reason is None:
                return None
            reasons[reason] = None
        return "; ".join(reasons)

    @cached_property
    def _same(self) -> Mapping[bool, Same]:
        claims = [part.claim for _, _, part in self._claims]
        return {follow: Same(self._subjects[follow], claims) for follow in (False, True)}

    @cached_property
    def _claims(self) -> Sequence[tuple[Property | SpecCheck, int, Part]]:
        """Every claim that has a meaning here, of the catalogue and of the spec itself."""
        found: list[tuple[Property | SpecCheck, int, Part]] = []
        every: list[Property | SpecCheck] = [*catalogue().values(), *CHECKS]
        for prop in every:
            subject = self._subjects[prop.needs_request]
            if prop.applies(subject.protocol) is None:
                parts = prop.claims(subject.protocol, subject.spec)
                found += [(prop, number, part) for number, part in enumerate(parts)]
        return found

    @cached_property
    def known(self) -> Sequence[_Known]:
        """Every claim as it is decided without a mutation: of the catalogue, then of the spec; small slices first."""
        found = []
        for prop, number, part in self._claims:
            subject = self._subjects[prop.needs_request]
            decided = decide_part(subject, part, Trail(f"{prop.id}/{prop.needs_request}/{number}", self._hints))
            if isinstance(prop, Property) or decided.verdict is prop.expected:
                found.append(_Known(prop, number, part, decided, is_empty(subject, part.claim)))
        # What a property notices is no news of the spec's own claims.
        return sorted(found, key=lambda k: (isinstance(k.prop, SpecCheck), k.size, k.key))

    @cached_property
    def _subjects(self) -> Mapping[bool, GivenSubject]:
        return {follow: self._subject(self.profile, follow, None) for follow in (False, True)}

    def _subject(self, profile: Profile, follow: bool, given: Spec | None) -> GivenSubject:  # noqa: FBT001
        protocol = Protocol(profile, self.configuration, follow_request=follow)
        return GivenSubject(protocol, Limits(seed=self.seed), Tally(), not follow, self._shared, given=given)

    def _mutant_subject(self, mutant: Mutant, *, follow: bool) -> GivenSubject | None:
        """The mutated spec; None where the mutant is no other spec."""
        if mutant.kind == "step":
            return self._subject(mutated_profile(self.profile, self.configuration, mutant), follow, None)
        plain = self._subjects[follow].spec
        spec = mutated(plain, mutant)
        return None if spec is plain else self._subject(self.profile, follow, spec)

    def _trail(self, known: _Known) -> Trail:
        """What is known of the claim, in a copy: one mutant teaches the next nothing."""
        h, key = self._hints, known.key
        runs, ranks = ({key: list(kept[key])} if key in kept else {} for kept in (h.runs, h.ranks))
        return Trail(key, Hints(runs, ranks, {key: known.decided}, self._shared))  # type: ignore[arg-type]


def _is_a_spec(subject: GivenSubject) -> bool:
    """Whether its steps make a spec at all: one that is gone may be another's condition."""
    try:
        _ = subject.spec
    except SpecError:
        return False
    return True


def _parts(prop: Property | SpecCheck, subject: GivenSubject | None) -> list[Part]:
    return [] if subject is None else list(prop.claims(subject.protocol, subject.spec))


def _noticed(known: _Known, parts: Sequence[Part], subject: GivenSubject, trail: Trail) -> str | None:
    # By name too: where an action is no longer there, neither is what is said of it.
    if len(parts) <= known.number or parts[known.number].about != known.part.about:
        return "verdict"
    part = parts[known.number]
    try:
        if _untouched(known, part, subject):
            return None
        decided = decide_part(subject, part, trail)
        if decided.verdict is not known.decided.verdict:
            return "verdict"
        if decided.verdict is Verdict.PROVED and not known.empty and is_empty(subject, part.claim):
            return "vacuous"
        return _other_run(known, decided, subject)
    except SpecError:
        return "refused"


def _untouched(known: _Known, part: Part, subject: GivenSubject) -> bool:
    """The claim, and all that it depends on, is the same. Actions that are alike are one (spec.interned)."""
    if known.decided.system is None or not same_claim(known.part.claim, part.claim):
        return False
    old, new = known.decided.system.spec, _slice(subject, part.claim).system.spec
    same = (old.variables, old.init, old.dropped) == (new.variables, new.init, new.dropped)
    return same and [id(a) for a in old.actions] == [id(a) for a in new.actions]


def same_claim(left: Claim, right: Claim) -> bool:
    """Whether both say the same of the same terms."""
    but = [claim.but if isinstance(claim, EachStep) else None for claim in (left, right)]
    # One action less, and the claim of this number may be of another kind.
    same = type(left) is type(right) and but[0] == but[1]
    return same and all(a.eq(b) for a, b in zip(terms(left), terms(right), strict=True))


def _slice(subject: GivenSubject, claim: Claim) -> Slice:
    """The slice in which the workbench decides the claim."""
    steps = frozenset[str]()
    if isinstance(claim, EachStep) and breakable(subject.spec, claim):
        steps = frozenset(a.name for a in subject.spec.actions) - claim.but
    return subject.slice(*terms(claim), steps=steps)


def _other_run(known: _Known, decided: Decided, subject: GivenSubject) -> str | None:
    """Whether the run that refuted the claim without the mutation is no counterexample with it."""
    refutation, system = known.decided.refutation, known.decided.system
    if refutation is None or system is None:
        return None
    if refutation.stuck is not None and not _closed(System(subject.spec), refutation.stuck.region):
        return "counterexample"
    names = {v.name for v in system.spec.variables} & subject.spec.init.keys()
    steps = [replace(s, state={n: x for n, x in s.state.items() if n in names}) for s in refutation.run.steps]
    run = replace(refutation, run=replace(refutation.run, steps=tuple(steps)))
    try:
        confirm(subject.interpreter, decided.part.claim, run, _slice(subject, decided.part.claim).interpreter)
    except (UnconfirmedError, KeyError):
        return "counterexample"
    return None


def _closed(system: System, region: BoolTerm) -> bool:
    """No action but help leaves the region."""
    reads = free_names(region)
    for name, transition in held_actions(system).items():
        if touched(transition, reads):
            with system.step(name, region) as solver:
                if not system.impossible(solver, neg(transition.primed(region))):
                    return False
    return True
