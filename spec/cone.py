"""Cones of influence: for a claim, the part of a spec that can influence what it speaks of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from spec.interned import Interned
from spec.terms import NEXT, Term, free_names
from spec.tla import Action, Fairness, Spec


class Cones:
    """The cones of one spec. What influences each variable is worked out once."""

    def __init__(self, spec: Spec, actions: Interned | None = None) -> None:
        """Reads every term of the spec. The parts of actions in its cones are kept in `actions`."""
        self.spec = spec
        self._actions = actions or Interned()
        self._every = frozenset(v.name for v in spec.variables)
        self._mates: dict[str, list[Action]] = {}
        for action in spec.actions:
            if action.unit and action.fairness is not Fairness.NONE:
                self._mates.setdefault(action.unit, []).append(action)
        self._needs: Mapping[str, AbstractSet[str]] = self._influences()

    def of(self, *terms: Term, steps: AbstractSet[str] = frozenset()) -> Spec:
        """Only the variables that can influence `terms`, and the actions that touch them.

        What is dropped neither enables nor changes what is kept, so that runs of the two agree on what is kept. An
        action that changes nothing kept is a stuttering step and goes too, unless `steps` names it: a claim about
        steps that a stuttering step would break must see when such an action can be taken.
        """
        seeds = {n.removesuffix(NEXT) for t in terms for n in free_names(t)}
        seeds.update(*(self._guards(a) for a in self.spec.actions if a.name in steps))
        keep = self._closure(seeds & self._every)
        kept = self._touching(keep, steps)
        variables = tuple(v for v in self.spec.variables if v.name in keep)
        return replace(
            self.spec,
            variables=variables,
            init={v.name: self.spec.init[v.name] for v in variables},
            actions=tuple(self._actions.action(_restricted(a, keep)) for a in kept),
            dropped=frozenset(a.name for a in self.spec.actions) - {a.name for a in kept},
        )

    def _closure(self, names: Iterable[str]) -> AbstractSet[str]:
        keep, new = set[str](), set(names)
        while new:
            keep |= new
            new = set[str]().union(*(self._needs[name] for name in new)) - keep
        return keep

    def _influences(self) -> Mapping[str, AbstractSet[str]]:
        """For each variable what decides when and how it changes."""
        needs: dict[str, set[str]] = {name: set() for name in self._every}
        for action in self.spec.actions:
            guards = self._guards(action) & self._every
            for name, reads in action.influences.items():
                needs[name] |= guards | (reads & self._every)
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


def _restricted(action: Action, keep: AbstractSet[str]) -> Action:
    updates = {n: t for n, t in action.updates.items() if n in keep}
    return replace(action, updates=updates, choices=action.choices_for(keep), whole=action.whole or action)
