"""Actions of several specs, each kept once: what is worked out of an action is then worked out once for all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

from spec.tla import Action, Spec


class Interned:
    """A set of actions. Two with the same terms and the same facts are one."""

    def __init__(self) -> None:
        """Empty."""
        self._known: dict[Hashable, Action] = {}

    def action(self, action: Action) -> Action:
        """The action that is kept for all that are like this one."""
        # Z3 keeps equal terms once, and its ids are unique while they live: those of what is kept here do.
        return self._known.setdefault(tuple(_identity(action)), action)

    def spec(self, spec: Spec) -> Spec:
        """The same spec over the actions that are kept."""
        return replace(spec, actions=tuple(map(self.action, spec.actions)))


def _identity(action: Action) -> Iterator[Hashable]:
    yield from (action.name, action.actor, action.engine, action.fairness, action.unit, action.help)
    yield action.guard.get_id()
    for choice in action.choices:
        high = None if choice.high is None else choice.high.get_id()
        yield (choice.name, choice.meaning, choice.low.get_id(), high, choice.witness.get_id())
    yield from ((name, term.get_id()) for name, term in action.updates.items())
