"""An action under construction: the guard first, then updates, written as a person writes TLA+."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import z3

from spec.errors import SpecError
from spec.terms import BoolTerm, NatTerm, Term, conj, nat
from spec.tla import Action, Choice, Variable


class Draft:
    """A state under construction: reading gives the value so far, assigning updates it; primitives compose in order."""

    def __init__(self, variables: Mapping[str, Variable], action_name: str) -> None:
        """Start from the current state."""
        object.__setattr__(self, "_variables", variables)
        object.__setattr__(self, "_name", action_name)
        object.__setattr__(self, "_values", {name: v.now for name, v in variables.items()})
        object.__setattr__(self, "_guard", [])
        object.__setattr__(self, "_choices", [])
        object.__setattr__(self, "_touched", set())

    _variables: Mapping[str, Variable]
    _name: str
    _values: dict[str, Term]
    _guard: list[BoolTerm]
    _choices: list[Choice]
    _touched: set[str]

    def __contains__(self, name: str) -> bool:
        return name in self._variables

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a term of either sort
        if name not in self._values:
            raise SpecError(f"{self._name}: no variable {name!r}; valid: {', '.join(sorted(self._values))}")
        return self._values[name]

    def __setitem__(self, name: str, value: Term | int | bool) -> None:
        variable = self._variables.get(name)
        if variable is None:
            raise SpecError(f"{self._name}: no variable {name!r}; valid: {', '.join(sorted(self._values))}")
        if isinstance(value, bool):
            value = z3.BoolVal(value)
        elif isinstance(value, int):
            value = nat(value)
        self._values[name] = value
        self._touched.add(name)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a term of either sort
        return self[name]

    def __setattr__(self, name: str, value: Term | int | bool) -> None:  # noqa: FBT001 - a flag's value
        self[name] = value

    def before(self, name: str) -> Term:
        """The value of a variable when the action began."""
        return self._variables[name].now

    def when(self, *conditions: BoolTerm) -> None:
        """Add to the guard. Raises SpecError after an update or a choice: guard first."""
        if self._touched or self._choices:
            raise SpecError(f"{self._name}: a guard after an update or a choice")
        self._guard.extend(conditions)

    def choose(
        self,
        name: str,
        *,
        low: NatTerm | int = 0,
        high: NatTerm | int | None = None,
        witness: NatTerm | int | None = None,
        meaning: str = "",
    ) -> NatTerm:
        """A number picked by the environment, between `low` and `high`; `witness` defaults to `low`.

        Raises SpecError where the action has a pick of this name: both would be one number.
        """
        if any(choice.name == name for choice in self._choices):
            raise SpecError(f"{self._name} picks {name!r} twice, which would be one number")
        term = z3.Int(f"{self._name}.{name}")
        low = nat(low) if isinstance(low, int) else low
        high = nat(high) if isinstance(high, int) else high
        picked = low if witness is None else (nat(witness) if isinstance(witness, int) else witness)
        self._choices.append(Choice(name, term, low, high, picked, meaning))
        return term

    def unpicked(self, name: str) -> str:
        """This name, numbered where the action has a pick that is called so."""
        taken = {choice.name for choice in self._choices}
        numbered = (f"{name}_{n}" for n in itertools.count(2))
        return next(n for n in itertools.chain([name], numbered) if n not in taken)

    def finish(self, **parts: Any) -> Action:  # noqa: ANN401 - the rest of Action's fields
        """The action that was drafted."""
        updates = {
            name: z3.simplify(self._values[name])
            for name in self._variables
            if name in self._touched and not self._values[name].eq(self._variables[name].now)
        }
        guard = z3.simplify(conj(*self._guard))
        return Action(name=self._name, guard=guard, choices=tuple(self._choices), updates=updates, **parts)
