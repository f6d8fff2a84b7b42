"""Cones of influence: for a claim, the part of a spec that can influence what it speaks of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

import z3

from spec.interned import Interned
from spec.terms import NEXT, BoolTerm, Term, conj, free_names
from spec.tla import Action, Fairness, Spec

LARGE = 40
"""A claim is tried on less than its slice first where that has more variables. A smaller one is as quick as a whole."""
MUCH_SMALLER = 0.5
"""The share of the variables that is left then, at most."""


class Cones:
    """The cones of one spec. What influences each variable is worked out once."""

    def __init__(self, spec: Spec, actions: Interned | None = None) -> None:
        """Reads every term of the spec. The parts of actions in its cones are kept in `actions`."""
        self.spec = spec
        self._actions = actions or Interned()
        self._every = frozenset(v.name for v in spec.variables)
        self._mates: dict[str, list[Action]] = {}
        self._conjuncts: dict[str, list[tuple[BoolTerm, frozenset[str]]]] = {}
        for action in spec.actions:
            if action.unit and action.fairness is not Fairness.NONE:
                self._mates.setdefault(action.unit, []).append(action)
        self._flows: Mapping[str, AbstractSet[str]] = self._values()
        self._needs: Mapping[str, AbstractSet[str]] = self._influences()

    def of(self, *terms: Term, steps: AbstractSet[str] = frozenset()) -> Spec:
        """Only the variables that can influence `terms`, and the actions that touch them.

        What is dropped neither enables nor changes what is kept, so that runs of the two agree on what is kept. An
        action that changes nothing kept is a stuttering step and goes too, unless `steps` names it: a claim about
        steps that a stuttering step would break must see when such an action can be taken.
        """
        seeds = self._seeds(terms).union(*(self._guards(a) for a in self.spec.actions if a.name in steps))
        keep = _closure(self._needs, seeds & self._every)
        return self._over(keep, (_restricted(a, keep) for a in self._touching(keep, steps)))

    def local(self, *terms: Term) -> Spec | None:
        """A smaller spec that has every fair run of this one, and others; None where it would not be much smaller.

        Localisation reduction (Kurshan, 1994). Exact are the guards and the fairness of the actions that change what
        `terms` speak of, and of their units. Of any other action the guard is kept as far as it reads what is kept:
        that a gate waits for every ledger is nothing to the claim of one. It may then be taken more often, and nothing
        is assumed of its fairness. So what is proved here is proved; what is refuted here may not be.
        """
        seeds = self._seeds(terms)
        units = [unit for unit in self.spec.fair_units.values() if any(seeds & a.updates.keys() for a in unit)]
        exact = {a.name for unit in units for a in unit}
        guards = (a.guard_reads & self._every for unit in units for a in unit)
        keep = _closure(self._flows, seeds.union(*guards))
        whole = len(_closure(self._needs, seeds))
        if whole <= LARGE or len(keep) > MUCH_SMALLER * whole:
            return None
        kept = [a for a in self.spec.actions if a.name in exact or keep & a.updates.keys()]
        parts = (_restricted(a, keep) for a in kept)
        return self._over(keep, (a if a.name in exact else self._loosened(a, keep) for a in parts))

    def _over(self, keep: AbstractSet[str], actions: Iterable[Action]) -> Spec:
        variables = tuple(v for v in self.spec.variables if v.name in keep)
        kept = tuple(map(self._actions.action, actions))
        return replace(
            self.spec,
            variables=variables,
            init={v.name: self.spec.init[v.name] for v in variables},
            actions=kept,
            dropped=frozenset(a.name for a in self.spec.actions) - {a.name for a in kept},
        )

    def _seeds(self, terms: Iterable[Term]) -> frozenset[str]:
        return self._every & {n.removesuffix(NEXT) for t in terms for n in free_names(t)}

    def _loosened(self, action: Action, keep: AbstractSet[str]) -> Action:
        if action.name not in self._conjuncts:
            parts = action.guard.children() if z3.is_and(action.guard) else [action.guard]
            self._conjuncts[action.name] = [(part, free_names(part)) for part in parts]
        guard = conj(*(part for part, reads in self._conjuncts[action.name] if reads <= keep))
        return replace(action, guard=guard, fairness=Fairness.NONE, unit="")

    def _values(self) -> Mapping[str, AbstractSet[str]]:
        """For each variable what decides what it changes to, and not when it does."""
        flows: dict[str, set[str]] = {name: set() for name in self._every}
        for action in self.spec.actions:
            for name, reads in action.influences.items():
                flows[name] |= reads & self._every
        return flows

    def _influences(self) -> Mapping[str, AbstractSet[str]]:
        """For each variable what decides when and how it changes."""
        needs = {name: set(reads) for name, reads in self._flows.items()}
        for action in self.spec.actions:
            guards = self._guards(action) & self._every
            for name in action.updates:
                needs[name] |= guards
        return needs

    def _guards(self, action: Action) -> AbstractSet[str]:
        """What the guards of the action and of its fair unit read.

        Fairness of a unit is met by any of its actions: half a unit would be assumed to do what the other half may.
        """
        return action.guard_reads.union(*(mate.guard_reads for mate in self._mates_of(action)))

    def _mates_of(self, action: Action) -> list[Action]:
        return [] if action.fairness is Fairness.NONE else self._mates.get(action.unit, [])

    def _touching(self, keep: AbstractSet[str], steps: AbstractSet[str]) -> list[Action]:
        """The actions that change something kept or that `steps` names, and the rest of their fair units."""
        touching = [a for a in self.spec.actions if keep & a.updates.keys() or a.name in steps]
        named = {mate.name for a in touching for mate in (a, *self._mates_of(a))}
        return [a for a in self.spec.actions if a.name in named]


def _closure(needs: Mapping[str, AbstractSet[str]], names: AbstractSet[str]) -> AbstractSet[str]:
    keep, new = set[str](), set(names)
    while new:
        keep |= new
        new = set[str]().union(*(needs[name] for name in new)) - keep
    return keep


def _restricted(action: Action, keep: AbstractSet[str]) -> Action:
    updates = {n: t for n, t in action.updates.items() if n in keep}
    return replace(action, updates=updates, choices=action.choices_for(keep), whole=action.whole or action)
