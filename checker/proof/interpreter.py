"""The concrete interpreter: runs a spec on plain numbers, with no solver, to re-run what a solver found.

A state maps each variable to an int or a bool. The actions' guards and updates are translated to Python once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checker.translate import to_python
from spec.terms import BoolTerm, Term
from spec.tla import Action, Fairness, Spec

Value = int | bool
State = dict[str, Value]
Choices = dict[str, int]
Taken = tuple[str, State, State]
"""A step that was taken: the action, the state before, the state after."""

# How far above its lower bound a random choice goes: small numbers meet the corner cases.
_SPREAD = 2


@dataclass(frozen=True)
class Step:
    """One step of a run: the action, what the environment chose, and the state after it."""

    action: str
    choices: Mapping[str, int]
    state: Mapping[str, Value]


class Interpreter:
    """Executes the actions of one spec."""

    def __init__(self, spec: Spec) -> None:
        """Translate the spec; raises SpecError where a term has no translation."""
        self.spec = spec
        self.actions = {a.name: _Compiled(a) for a in spec.actions}

    def initial(self) -> State:
        """A fresh copy of the initial state."""
        return dict(self.spec.init)

    def enabled(self, state: Mapping[str, Value], name: str) -> bool:
        """The guard holds in `state`."""
        return bool(self.actions[name].guard(state, {}))

    def changes(self, state: Mapping[str, Value], name: str) -> bool:
        """The action is enabled, and its witness changes the state."""
        return self.enabled(state, name) and self.apply(state, name, self.witness(state, name)) != state

    def witness(self, state: Mapping[str, Value], name: str) -> Choices:
        """The witness of each choice, in order."""
        picked: Choices = {}
        for choice in self.actions[name].choices:
            picked[choice.name] = int(choice.witness(state, picked))
        return picked

    def legal(self, state: Mapping[str, Value], name: str, choices: Mapping[str, int]) -> bool:
        """The guard holds and each choice lies in its range."""
        action = self.actions[name]
        if not action.guard(state, {}):
            return False
        for choice in action.choices:
            value = choices.get(choice.name)
            if value is None or value < choice.low(state, choices):
                return False
            if choice.high is not None and value > choice.high(state, choices):
                return False
        return True

    def apply(self, state: Mapping[str, Value], name: str, choices: Mapping[str, int]) -> State:
        """The state after the action; the caller has checked that the step is legal."""
        after: State = self.actions[name].update(state, choices)
        return after

    def holds(self, term: BoolTerm) -> Callable[[Mapping[str, Value]], bool]:
        """A state predicate as a function."""
        function = _function(term)
        return lambda state: bool(function(state, {}))

    def walks(self, walks: int, length: int, seed: int) -> tuple[list[State], list[Taken]]:
        """Distinct states of random runs from the initial state, and the steps taken; deterministic for a seed."""
        rng, names = random.Random(seed), list(self.actions)  # noqa: S311 - not for secrets
        seen: dict[tuple[Value, ...], State] = {}
        taken: list[Taken] = []
        for _ in range(walks):
            state = self.initial()
            for _ in range(length):
                seen[tuple(state.values())] = state
                able = [n for n in names if self.actions[n].guard(state, {})]
                if not able:
                    break
                name = rng.choice(able)
                after = self.apply(state, name, self._pick(state, name, rng))
                taken.append((name, state, after))
                state = after
        return list(seen.values()), taken

    def _pick(self, state: Mapping[str, Value], name: str, rng: random.Random) -> Choices:
        picked: Choices = {}
        for choice in self.actions[name].choices:
            low = int(choice.low(state, picked))
            top = low + _SPREAD if choice.high is None else int(choice.high(state, picked))
            values = sorted({low, min(low + 1, top), min(low + _SPREAD, top), top, int(choice.witness(state, picked))})
            picked[choice.name] = rng.choice(values)
        return picked

    def settle(
        self, state: State, allowed: Callable[[Mapping[str, Value]], bool], limit: int = 400
    ) -> list[Step] | None:
        """Let every fair action run in turn until nothing changes; the last state then repeats for ever.

        None where it does not settle. Raises RuntimeError at a step that leaves `allowed`.
        """
        fair = [a.name for a in self.spec.actions if a.fairness is not Fairness.NONE]
        steps: list[Step] = []
        while moving := [n for n in fair if self.changes(state, n)]:
            for name in moving:
                if not self.changes(state, name):
                    continue
                choices = self.witness(state, name)
                state = self.apply(state, name, choices)
                steps.append(Step(name, choices, state))
                if not allowed(state):
                    raise RuntimeError(f"{name} leaves a set that was proved to be closed")
                if len(steps) > limit:
                    return None
        return steps

    def replay(self, steps: Sequence[Step]) -> State:
        """Run the steps from the initial state. Raises RuntimeError at the first that is illegal or ends elsewhere."""
        state = self.initial()
        for number, step in enumerate(steps, 1):
            if not self.legal(state, step.action, step.choices):
                raise RuntimeError(f"step {number}, {step.action}: not enabled")
            state = self.apply(state, step.action, step.choices)
            if state != dict(step.state):
                raise RuntimeError(f"step {number}, {step.action}: another state than the solver's")
        return state


@dataclass(frozen=True)
class _CompiledChoice:
    name: str
    low: Callable[..., Any]
    high: Callable[..., Any] | None
    witness: Callable[..., Any]


class _Compiled:
    """One action, each part translated when it is first used: a replay needs few."""

    def __init__(self, action: Action) -> None:
        self._action = action

    @cached_property
    def guard(self) -> Callable[..., Any]:
        return _function(self._action.guard)

    @cached_property
    def choices(self) -> list[_CompiledChoice]:
        return [
            _CompiledChoice(
                c.term.decl().name(),
                _function(c.low),
                None if c.high is None else _function(c.high),
                _function(c.witness),
            )
            for c in self._action.choices
        ]

    @cached_property
    def update(self) -> Callable[..., Any]:
        items = ", ".join(f"{name!r}: {_source(term)}" for name, term in self._action.updates.items())
        return _evaluate(f"{{**s, {items}}}")


def _source(term: Term) -> str:
    return to_python(term, lambda n: f"c[{n!r}]" if "." in n else f"s[{n!r}]")


def _function(term: Term) -> Callable[..., Any]:
    """`term` as a function of (state, choices)."""
    return _evaluate(_source(term))


def _evaluate(source: str) -> Callable[..., Any]:
    function: Callable[..., Any] = eval(f"lambda s, c: {source}", {})  # noqa: S307 - our own terms, not input
    return function
