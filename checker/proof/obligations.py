"""The obligations of a proof. Each must be unsatisfiable; together they are the certificate.

This generator is the trusted part: it sees the spec, the invariant and the rank, and nothing of how they were found.
Numbers are those of DESIGN.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import z3

from checker.proof.rank import Component, lexicographic
from checker.proof.system import System, Transition
from spec.terms import BoolTerm, conj, disj, neg
from spec.tla import Always, EachStep, FinitelyOften, LeadsTo

Stays = Callable[[Transition], BoolTerm]


@dataclass(frozen=True)
class Obligation:
    """`formula` must have no model; `number` and `about` say what a model would mean."""

    number: int
    about: str
    formula: BoolTerm


@dataclass(frozen=True)
class Proof:
    """What was found: an invariant, and for liveness a rank, the helpful actions and nested proofs for strong ones."""

    claim: Always | EachStep | LeadsTo | FinitelyOften
    lemmas: tuple[BoolTerm, ...]
    rank: tuple[Component, ...] = ()
    helpful: tuple[str, ...] = ()
    recurrent: tuple[tuple[str, Proof], ...] = ()
    """For each strongly fair helpful action, the proof that it is enabled again and again."""
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
        found.append(Obligation(3, "the invariant implies the claim", conj(invariant, neg(claim.holds))))
    elif isinstance(claim, EachStep):
        found += [
            Obligation(3, f"each step of {t.action.name} satisfies the claim", conj(invariant, t.relation, neg(holds)))
            for t, holds in each_step(system, claim)
        ]
    elif isinstance(claim, LeadsTo):
        found += _leads_to(system, proof, claim, invariant)
    else:
        found += _finitely(system, proof, claim, invariant)
    return sorted(found, key=lambda o: o.number)


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
    yield Obligation(1, "the initial state satisfies the invariant", conj(system.spec.initial, neg(invariant)))
    for transition in system.transitions.values():
        action = transition.action
        if action.choices:
            outside = action.at_witness(neg(action.where))
            yield Obligation(0, f"the witness of {action.name} steps", conj(invariant, action.guard, outside))
        broken = conj(invariant, transition.relation, neg(transition.primed(invariant)))
        yield Obligation(2, f"{action.name} keeps the invariant", broken)


def _leads_to(system: System, proof: Proof, claim: LeadsTo, invariant: BoolTerm) -> Iterator[Obligation]:
    region = conj(invariant, claim.pending, neg(claim.goal))
    if proof.within is not None:
        region = conj(region, proof.within[0])
    strong = {name for name, _ in proof.recurrent}
    for transition in system.transitions.values():
        steps = _steps(proof, transition)
        after = disj(transition.primed(claim.goal), transition.primed(claim.pending), *_leaves(proof, transition))
        yield Obligation(3, f"{transition.action.name} keeps the claim pending", conj(region, steps, neg(after)))
    yield from _ranked(system, proof, region, lambda t: _stays(proof, claim, t))
    enabled = {name: system.transitions[name].action.enabled for name in proof.helpful}
    for name in proof.helpful:
        transition = system.transitions[name]
        lower, _, _ = lexicographic(proof.rank, transition)
        stays = _stays(proof, claim, transition)
        helps = conj(region, enabled[name], _steps(proof, transition), stays, neg(lower))
        yield Obligation(6, f"{name} lowers the rank", helps)
    if not proof.recurrent:
        nobody = [neg(e) for e in enabled.values()]
        yield Obligation(7, "some helpful action is enabled", conj(region, *nobody))
    for name in proof.helpful:
        if name not in strong:
            yield from _persists(system, proof, claim, region, name, enabled[name])
    for _, nested in proof.recurrent:
        yield from obligations(system, nested)


def _persists(  # noqa: PLR0913 - the parts of one obligation
    system: System, proof: Proof, claim: LeadsTo, region: BoolTerm, name: str, enabled: BoolTerm
) -> Iterator[Obligation]:
    for transition in system.transitions.values():
        _, equal, _ = lexicographic(proof.rank, transition)
        lost = conj(
            region, enabled, _steps(proof, transition), _stays(proof, claim, transition), equal,
            neg(transition.primed(enabled)),
        )
        yield Obligation(8, f"{name} stays enabled over {transition.action.name}", lost)


def _finitely(system: System, proof: Proof, claim: FinitelyOften, invariant: BoolTerm) -> Iterator[Obligation]:
    region = conj(invariant, claim.during)
    yield from _ranked(system, proof, region, lambda t: t.primed(claim.during))
    for transition in system.transitions.values():
        event = over_step(system, transition, claim.event)
        lower, _, _ = lexicographic(proof.rank, transition)
        step = conj(region, transition.relation, transition.primed(claim.during), event, neg(lower))
        yield Obligation(6, f"an event of {transition.action.name} lowers the rank", step)


def _ranked(system: System, proof: Proof, region: BoolTerm, stays: Stays) -> Iterator[Obligation]:
    for component in proof.rank:
        yield Obligation(4, f"{component.name} is bounded below", conj(region, component.term < 0))
    for transition in system.transitions.values():
        _, _, higher = lexicographic(proof.rank, transition)
        raised = conj(region, _steps(proof, transition), stays(transition), higher)
        yield Obligation(5, f"{transition.action.name} does not raise the rank", raised)


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
