"""A small instance of a spec, for explicit search: which counters it needs, and how far they go.

A counter that nothing reads but its own next value is forgotten: a step knows by how much it raises it. What is left is
bounded: what is in flight and waits together by the bound, each counter that only claims read by the bound, and one
that grows by k at a time by k times the bound. A step that would raise one of them past its bound is disabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import z3

from checker.export.chosen import NamedClaim, terms
from checker.export.infix import linear
from spec.terms import BoolTerm, NatTerm, Renaming, Term, conj, disj, nat, neg, same, total
from spec.tla import Action, Sort, Spec, Variable


@dataclass(frozen=True)
class Instance:
    """The spec under a bound."""

    spec: Spec
    claims: Sequence[NamedClaim]
    bound: int

    @cached_property
    def forgotten(self) -> Sequence[Variable]:
        """The counters that are no part of a state."""
        return [v for v in self.spec.variables if v.sort is Sort.NAT and self._only_rises(v)]

    @cached_property
    def kept(self) -> Sequence[Variable]:
        """What a state consists of."""
        return [v for v in self.spec.variables if v not in self.forgotten]

    @cached_property
    def caps(self) -> Mapping[str, int]:
        """The counters that have a bound of their own."""
        found: dict[str, int] = {}
        for variable in self.kept:
            leap = max((_leap(variable, a) for a in self.spec.actions), default=1)
            if variable.sort is Sort.NAT and (variable.ghost or leap > 1):
                found[variable.name] = max(leap, 1) * self.bound
        return found

    @cached_property
    def counted(self) -> Sequence[Variable]:
        """The counters that are bounded together."""
        return [v for v in self.kept if v.sort is Sort.NAT and v.name not in self.caps]

    @property
    def _at_zero(self) -> Renaming:
        return Renaming((v.now, nat(0)) for v in self.forgotten)

    def update(self, action: Action, name: str) -> Term:
        """The new value; of a forgotten counter, by how much it rises."""
        return self._at_zero(action.updates[name])

    def said(self, term: Term) -> Term:
        """A claim's term, over by how much forgotten counters rise."""
        return self._at_zero(term)

    def fits(self, action: Action) -> BoolTerm:
        """The step, over now and next, stays within the bounds; what it does not raise it may leave as it is."""
        return conj(*self._limits(action))

    def changes(self, action: Action) -> BoolTerm:
        """The step, over now and next, changes the state."""
        return disj(*(neg(same(v.next, v.now)) for v in self.kept if v.name in action.updates))

    def ready(self, action: Action) -> BoolTerm:
        """The action is enabled in the sense of its fairness: its witness changes the state, within the bounds."""
        new = Renaming((v.next, action.at_witness(self.update(action, v.name))) for v in self._touched(action))
        found: BoolTerm = z3.simplify(new(conj(action.guard, self.changes(action), self.fits(action))))
        return found

    def _touched(self, action: Action) -> Iterable[Variable]:
        return [v for v in self.spec.variables if v.name in action.updates]

    def _limits(self, action: Action) -> Iterable[BoolTerm]:
        raised = [v for v in self._touched(action) if v in self.kept and v.sort is Sort.NAT]
        if any(v in self.counted for v in raised):
            before: NatTerm = total(*(v.now for v in self.counted))
            after = total(*(v.next if v.name in action.updates else v.now for v in self.counted))
            yield disj(after <= self.bound, after <= before)
        yield from (disj(v.next <= self.caps[v.name], v.next <= v.now) for v in raised if v.name in self.caps)

    def _only_rises(self, variable: Variable) -> bool:
        name, by = variable.name, z3.Int(f"{variable.name}.by")
        for action in self.spec.actions:
            ranges = frozenset().union(*action.choice_reads.values())
            others = (reads for target, reads in action.update_reads.items() if target != name)
            if name in action.guard_reads | ranges or any(name in reads for reads in others):
                return False
        moved = Renaming([(variable.now, variable.now + by), (variable.next, variable.next + by)])
        updates = [a.updates[name] for a in self.spec.actions if name in a.updates]
        rises = [moved(u) == u + by for u in updates]
        return all(map(_valid, rises)) and all(_valid(same(moved(t), t)) for c in self.claims for t in terms(c.claim))


def _leap(variable: Variable, action: Action) -> int:
    term = action.updates.get(variable.name)
    return 0 if term is None else max((factor for factor, part in linear(term) if not part.eq(variable.now)), default=0)


def _valid(term: BoolTerm) -> bool:
    solver = z3.SimpleSolver()
    solver.add(neg(term))
    return bool(solver.check() == z3.unsat)


def branches(term: BoolTerm) -> BoolTerm:
    """The same formula without conditional expressions: one formula for each case, which are few in what claims say."""
    found = _first_choice(term)
    if found is None:
        return term
    condition, *sides = found.children()
    yes, no = (branches(z3.substitute(term, (found, side))) for side in sides)
    condition = branches(condition)
    return conj(disj(neg(condition), yes), disj(condition, no))


def _first_choice(term: Term) -> Term | None:
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        return term
    return next((found for child in term.children() if (found := _first_choice(child)) is not None), None)
