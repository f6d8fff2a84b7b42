"""What was shown in one configuration carries over to the next, where the actions are the same.

Configurations differ in few actions: those of a pause mode in the pause alone. Z3 keeps equal terms once, so that two
actions are known to be the same by their terms; what an obligation says of such an action is then, word for word, what
it said before. Only the obligations about other actions are asked, and those about none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from typing import Any

import z3

from checker.proof.obligations import Obligation, Proof, obligations
from checker.proof.refute import Stuck, held_actions
from checker.proof.system import System, Transition
from spec.terms import BoolTerm, Term, conj, disj, neg
from spec.tla import Claim, LeadsTo

_OF_UNITS = {6, 7, 8}
"""The obligations that speak of a unit's being enabled."""


def carried(old: System, new: System, proof: Proof, claim: Claim) -> Proof | None:
    """The proof of the same claim in `old`, where it proves it in `new` too. Raises UndecidedError."""
    names = changed(old, new)
    if names is None or proof.recurrent or not _same_terms(_terms(proof.claim), _terms(claim)):
        return None
    units = {helpful.unit for helpful in proof.helpful}
    if not units <= new.spec.fair_units.keys():
        return None
    # What speaks of a unit's being enabled is asked of every action where that means something else now.
    numbers = set() if all(old.spec.enabled(u).eq(new.spec.enabled(u)) for u in units) else _OF_UNITS
    proof = replace(proof, claim=claim)
    asked = (o for o in obligations(new, proof) if not o.action or o.action in names or o.number in numbers)
    return proof if _hold(new, asked) else None


def holds(system: System, proof: Proof) -> bool:
    """Every obligation of the proof holds here. Raises UndecidedError, and MalformedProofError."""
    return _hold(system, obligations(system, proof))


def _hold(system: System, asked: Iterable[Obligation]) -> bool:
    # One question for all that speak of the same action: what they have in common is taken in once.
    groups: dict[str, list[BoolTerm]] = {}
    for obligation in asked:
        groups.setdefault(obligation.action, []).append(obligation.formula)
    solver = system.solver()
    return all(system.impossible(solver, disj(*formulas)) for formulas in groups.values())


def carried_region(old: System, new: System, stuck: Stuck, claim: Claim) -> Stuck | None:
    """The closed region of `old`, where it is one of this claim in `new` too. Raises UndecidedError."""
    names = changed(old, new)
    return stuck if names is not None and closed(new, stuck, claim, names) else None


def closed(system: System, stuck: Stuck, claim: Claim, among: AbstractSet[str] | None = None) -> bool:
    """The region is pending, and no action (of those in `among`) leaves it but help. Raises UndecidedError."""
    if not isinstance(claim, LeadsTo):
        return False
    if not system.impossible(system.solver(stuck.region), neg(conj(claim.pending, neg(claim.goal)))):
        return False
    for name, transition in held_actions(system).items():
        if among is None or name in among:
            with system.step(name, stuck.region) as solver:
                if not system.impossible(solver, neg(transition.primed(stuck.region))):
                    return False
    return True


def changed(old: System, new: System) -> frozenset[str] | None:
    """The actions of `new` that are not the same in `old`; None where the states, or the start, are not the same."""
    if [v.name for v in old.spec.variables] != [v.name for v in new.spec.variables] or old.spec.init != new.spec.init:
        return None
    return frozenset(
        n for n, t in new.transitions.items() if n not in old.transitions or not _same(old.transitions[n], t)
    )


def _same(old: Transition, new: Transition) -> bool:
    """The same steps, from the same states, under the same fairness."""
    a, b = old.action, new.action
    if a is b:
        return True
    kinds = (a.fairness, a.unit, a.help, a.updates.keys()) == (b.fairness, b.unit, b.help, b.updates.keys())
    return kinds and old.relation.eq(new.relation) and _same_terms(_witnesses(old), _witnesses(new))


def _witnesses(transition: Transition) -> list[Term]:
    return [term for c in transition.action.choices for term in (c.term, c.witness)]


def _terms(claim: Claim) -> list[Any]:
    return [type(claim).__name__, *(getattr(claim, part.name) for part in fields(claim))]


def _same_terms(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(
        a.eq(b) if z3.is_ast(a) and z3.is_ast(b) else a == b for a, b in zip(left, right, strict=True)
    )
