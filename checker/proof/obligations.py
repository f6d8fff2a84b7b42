"""The obligations of a proof. Each must be unsatisfiable; together they are the certificate.

This generator is the trusted part: it sees the spec, the invariant and the rank, and nothing of how they were found.
Numbers are those of DESIGN.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import z3

from checker.proof.rank import Component, lexicographic
from checker.proof.system import System, Transition
from spec.terms import BoolTerm, conj, disj, neg
from spec.tla import Always, EachStep, Fairness, FinitelyOften, LeadsTo, stuttering

Stays = Callable[[Transition], BoolTerm]


@dataclass(frozen=True)
class Obligation:
    """`formula` must have no model; `number` and `about` say what a model would mean."""

    number: int
    about: str
    build: Callable[[], BoolTerm] = field(repr=False)
    """Makes the formula, when it is first wanted."""
    action: str = ""
    """The action that it speaks of; empty where it speaks of none, or of all."""

    @cached_property
    def formula(self) -> BoolTerm:
        """The formula, closed but for the variables, the choices and what is next."""
        return self.build()


class MalformedProofError(Exception):
    """A proof whose parts do not fit together: our mistake, exit code 4."""


@dataclass(frozen=True)
class Helpful:
    """A fair unit that lowers the rank when it acts in the states `where`."""

    unit: str
    where: BoolTerm


@dataclass(frozen=True)
class Proof:
    """What was found: an invariant, and for liveness a rank, the helpful units and nested proofs for strong ones."""

    claim: Always | EachStep | LeadsTo | FinitelyOften
    lemmas: tuple[BoolTerm, ...]
    rank: tuple[Component, ...] = ()
    helpful: tuple[Helpful, ...] = ()
    recurrent: tuple[tuple[str, Proof], ...] = ()
    """For each strongly fair helpful unit, the proof that it is enabled again and again."""
    within: tuple[BoolTerm, tuple[Component, ...]] | None = field(default=None)
    """A nested proof speaks only of steps inside this region with this rank unchanged."""

    @property
    def method(self) -> str:
        """How it was proved, in a word."""
        if isinstance(self.claim, LeadsTo):
            return "ranking"
        return "ranking" if isinstance(self.claim, FinitelyOften) else "induction"


def obligations(system: System, proof: Proof) -> list[Obligation]:
    """Every obligation of the proof, in the order of their numbers."""
    spec = system.spec
    invariant = conj(spec.naturals, *proof.lemmas)
    found = list(_invariant(system, invariant))
    claim = proof.claim
    if isinstance(claim, Always):
        found.append(Obligation(3, "the invariant implies the claim", partial(conj, invariant, neg(claim.holds))))
    elif isinstance(claim, EachStep):
        found += _each_step(system, claim, invariant)
    elif isinstance(claim, LeadsTo):
        found += _leads_to(system, proof, claim, invariant)
    else:
        found += _finitely(system, proof, claim, invariant)
    return sorted(found, key=lambda o: o.number)


def _each_step(system: System, claim: EachStep, invariant: BoolTerm) -> Iterator[Obligation]:
    for name, transition in system.transitions.items():
        if name not in claim.but:

            def broken(t: Transition = transition) -> BoolTerm:
                return conj(invariant, t.relation, neg(over_step(system, t, claim.holds)))

            yield Obligation(3, f"each step of {name} satisfies the claim", broken, name)
    if system.spec.dropped - claim.but:
        stutter = neg(stuttering(system.spec, claim.holds))
        yield Obligation(3, "a step outside the slice satisfies the claim", partial(conj, invariant, stutter))


def each_step(system: System, claim: EachStep) -> Iterator[tuple[Transition, BoolTerm]]:
    """The claim for each action that it speaks of, in terms of what that action updates."""
    for transition in system.transitions.values():
        if transition.action.name not in claim.but:
            yield transition, over_step(system, transition, claim.holds)


def over_step(system: System, transition: Transition, term: BoolTerm) -> BoolTerm:
    """A term over now and next, with the next value of what the action leaves alone read as its value now."""
    kept = [v for v in system.spec.variables if v.name not in transition.action.updates]
    return z3.substitute(term, *((v.next, v.now) for v in kept)) if kept else term


def _invariant(system: System, invariant: BoolTerm) -> Iterator[Obligation]:
    start = partial(conj, system.spec.initial, neg(invariant))
    yield Obligation(1, "the initial state satisfies the invariant", start)
    for name, transition in system.transitions.items():
        action = transition.action
        for place, choice in enumerate(action.choices):
            # Whatever the earlier choices are, this one has its witness: no range is ever empty.
            before = [c.within for c in action.choices[:place]]
            outside = z3.substitute(neg(choice.within), (choice.term, choice.witness))
            empty = partial(conj, invariant, action.guard, *before, outside)
            yield Obligation(0, f"{choice.name} of {name} has a value", empty, name)

        def broken(t: Transition = transition) -> BoolTerm:
            return conj(invariant, t.relation, neg(t.primed(invariant)))

        yield Obligation(2, f"{name} keeps the invariant", broken, name)


def _leads_to(system: System, proof: Proof, claim: LeadsTo, invariant: BoolTerm) -> Iterator[Obligation]:
    _check_shape(system, proof, claim)
    region = conj(invariant, claim.pending, neg(claim.goal))
    if proof.within is not None:
        region = conj(region, proof.within[0])
    strong = {name for name, _ in proof.recurrent}
    for name, transition in system.transitions.items():

        def ends(t: Transition = transition) -> BoolTerm:
            after = disj(t.primed(claim.goal), t.primed(claim.pending), *_leaves(proof, t))
            return conj(region, _steps(proof, t), neg(after))

        yield Obligation(3, f"{name} keeps the claim pending", ends, name)
    yield from _ranked(system, proof, region, lambda t: _stays(proof, claim, t))
    ready = {h.unit: conj(h.where, system.spec.enabled(h.unit)) for h in proof.helpful}
    for helpful in proof.helpful:
        # A strongly fair action may be taken where its witness changes nothing: every step of it must help.
        able = [] if helpful.unit in strong else [ready[helpful.unit]]
        yield from _helps(system, proof, claim, helpful.unit, conj(region, *able))
    if not proof.recurrent:
        nobody = [neg(e) for e in ready.values()]
        yield Obligation(7, "some helpful action is enabled", partial(conj, region, *nobody))
    for unit, enabled in ready.items():
        if unit not in strong:
            yield from _persists(system, proof, claim, conj(region, enabled), unit, enabled)
    for _, nested in proof.recurrent:
        yield from obligations(system, nested)


def _helps(system: System, proof: Proof, claim: LeadsTo, unit: str, able: BoolTerm) -> Iterator[Obligation]:
    for action in system.spec.fair_units[unit]:

        def fails(t: Transition = system.transitions[action.name]) -> BoolTerm:
            lower, _, _ = lexicographic(proof.rank, t)
            return conj(able, _steps(proof, t), _stays(proof, claim, t), neg(lower))

        yield Obligation(6, f"{action.name} lowers the rank", fails, action.name)


def _check_shape(system: System, proof: Proof, claim: LeadsTo) -> None:
    """The parts of a proof must be of the right kind, whoever made it. Raises MalformedProofError."""
    recurrent = dict(proof.recurrent)
    units = system.spec.fair_units
    for name in (h.unit for h in proof.helpful):
        fairness = units[name][0].fairness if name in units else Fairness.NONE
        if fairness is Fairness.NONE or (name in recurrent and fairness is not Fairness.STRONG):
            raise MalformedProofError(f"{name} is helpful, but its fairness is {fairness.value}")
    for name, nested in recurrent.items():
        outer = conj(claim.pending, neg(claim.goal))
        if name not in {h.unit for h in proof.helpful}:
            raise MalformedProofError(f"{name} recurs, but is not helpful")
        wanted = LeadsTo(z3.BoolVal(val=True), system.spec.enabled(name))
        if not isinstance(nested.claim, LeadsTo) or nested.within is None:
            raise MalformedProofError(f"the nested proof of {name} is not one of recurrence")
        same = [
            nested.claim.pending.eq(wanted.pending),
            nested.claim.goal.eq(wanted.goal),
            nested.within[0].eq(outer),
            nested.within[1] == proof.rank,
            nested.lemmas == proof.lemmas,
        ]
        if not all(same):
            raise MalformedProofError(f"the nested proof of {name} proves something else")


def _persists(  # noqa: PLR0913, PLR0917 - the parts of one obligation
    system: System, proof: Proof, claim: LeadsTo, able: BoolTerm, unit: str, enabled: BoolTerm
) -> Iterator[Obligation]:
    for name, transition in system.transitions.items():

        def lost(t: Transition = transition) -> BoolTerm:
            _, equal, _ = lexicographic(proof.rank, t)
            return conj(able, _steps(proof, t), _stays(proof, claim, t), equal, neg(t.primed(enabled)))

        yield Obligation(8, f"{unit} stays enabled over {name}", lost, name)


def _finitely(system: System, proof: Proof, claim: FinitelyOften, invariant: BoolTerm) -> Iterator[Obligation]:
    region = conj(invariant, claim.during)
    yield from _ranked(system, proof, region, lambda t: t.primed(claim.during))
    if system.spec.dropped:
        stutter = stuttering(system.spec, claim.event)
        yield Obligation(6, "a step outside the slice is no event", partial(conj, region, stutter))
    for name, transition in system.transitions.items():

        def kept(t: Transition = transition) -> BoolTerm:
            lower, _, _ = lexicographic(proof.rank, t)
            return conj(region, t.relation, t.primed(claim.during), over_step(system, t, claim.event), neg(lower))

        yield Obligation(6, f"an event of {name} lowers the rank", kept, name)


def _ranked(system: System, proof: Proof, region: BoolTerm, stays: Stays) -> Iterator[Obligation]:
    for component in proof.rank:
        yield Obligation(4, f"{component.name} is bounded below", partial(conj, region, component.term < 0))
    for name, transition in system.transitions.items():

        def raised(t: Transition = transition) -> BoolTerm:
            _, _, higher = lexicographic(proof.rank, t)
            return conj(region, _steps(proof, t), stays(t), higher)

        yield Obligation(5, f"{name} does not raise the rank", raised, name)


def _steps(proof: Proof, transition: Transition) -> BoolTerm:
    """The steps that the proof speaks of: all, or only those that keep the outer rank."""
    if proof.within is None:
        return transition.relation
    return conj(transition.relation, lexicographic(proof.within[1], transition)[1])


def _leaves(proof: Proof, transition: Transition) -> Sequence[BoolTerm]:
    """A nested proof ends too where the outer region ends."""
    return () if proof.within is None else (neg(transition.primed(proof.within[0])),)


def _stays(proof: Proof, claim: LeadsTo, transition: Transition) -> BoolTerm:
    inside: Iterable[BoolTerm] = () if proof.within is None else (transition.primed(proof.within[0]),)
    return conj(transition.primed(claim.pending), neg(transition.primed(claim.goal)), *inside)
