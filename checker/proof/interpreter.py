"""The concrete interpreter: runs a spec on plain numbers, with no solver, to re-run what a solver found.

A state maps each variable to an int or a bool. The actions' guards and updates are translated to Python once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from checker.translate import Translation
from spec.terms import BoolTerm, Term
from spec.tla import Action, Fairness, Spec

Value = int | bool
State = dict[str, Value]
Choices = dict[str, int]

# How far above its lower bound a random choice goes: small numbers meet the corner cases.
_SPREAD = 2
# How often a walk prefers what is fair, one walk after the other: the more, the more transfers land and the more passes
# go round before anybody asks for something new.
_EAGER = (0.0, 0.5, 0.7)


@dataclass(frozen=True)
class Step:
    """One step of a run: the action, what the environment chose, and the state after it."""

    action: str
    choices: Mapping[str, int]
    state: Mapping[str, Value]


class Interpreter:
    """Executes the actions of one spec."""

    def __init__(self, spec: Spec, compiler: Compiler | None = None) -> None:
        """Raises SpecError later, where a term has no translation. What a compiler has compiled it shares."""
        self.spec = spec
        self._compiler = compiler or Compiler()
        self.actions = {a.name: self._compiler.action(a) for a in spec.actions}
        self._fair = [a.name for a in spec.actions if a.fairness is not Fairness.NONE]

    @cached_property
    def _able(self) -> Callable[[Mapping[str, Value]], list[str]]:
        """The actions whose guards hold in a state: one function for all, since each walk asks it at each step."""
        guards = ", ".join(f"({a.name!r}, {self._compiler.source(a.guard)})" for a in self.spec.actions)
        return _evaluate(f"lambda s: [n for n, able in ({guards}, ) if able]")

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
        """A state predicate as a function. Raises SpecError where a term has no translation."""
        return _evaluate(f"lambda s: bool({self._compiler.source(term)})")

    def walks(self, walks: int, length: int, seed: int) -> Iterator[tuple[Step, ...]]:
        """Random runs from the initial state; deterministic for a seed."""
        rng = random.Random(seed)  # noqa: S311 - not for secrets
        for number in range(walks):
            yield self._walk(length, rng, _EAGER[number % len(_EAGER)])

    def _walk(self, length: int, rng: random.Random, eager: float) -> tuple[Step, ...]:
        state, run = self.initial(), []
        for _ in range(length):
            able = self._able(state)
            if not able:
                break
            fair = [n for n in able if n in self._fair] if rng.random() < eager else []
            among = fair or able
            name = among[int(rng.random() * len(among))]
            choices = self._pick(state, name, rng)
            state = self.apply(state, name, choices)
            run.append(Step(name, choices, state))
        return tuple(run)

    def _pick(self, state: Mapping[str, Value], name: str, rng: random.Random) -> Choices:
        picked: Choices = {}
        for choice in self.actions[name].choices:
            low = int(choice.low(state, picked))
            top = low + _SPREAD if choice.high is None else int(choice.high(state, picked))
            values = (low, low + 1, min(low + _SPREAD, top), top, int(choice.witness(state, picked)))
            picked[choice.name] = low if low == top else values[int(rng.random() * len(values))]
        return picked

    def settle(
        self, state: State, allowed: Callable[[Mapping[str, Value]], bool], limit: int = 400
    ) -> list[Step] | None:
        """Let every fair action run in turn until nothing changes; the last state then repeats for ever.

        None where it does not settle. Raises RuntimeError at a step that leaves `allowed`.
        """
        steps: list[Step] = []
        while moving := [n for n in self._fair if self.changes(state, n)]:
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


@dataclass(frozen=True)
class _CompiledChoice:
    name: str
    low: Callable[..., Any]
    high: Callable[..., Any] | None
    witness: Callable[..., Any]


class Compiler:
    """Actions as functions of (state, choices); each action, and each term, is compiled once."""

    def __init__(self) -> None:
        """Nothing is compiled yet."""
        self._translation = Translation(_reader)
        self._actions: dict[int, _Compiled] = {}

    def source(self, term: Term) -> str:
        """`term` in Python, over the dicts `s` (the state) and `c` (the choices). Raises SpecError."""
        return self._translation.expression(term)

    def action(self, action: Action) -> _Compiled:
        """The action, compiled when it is first used."""
        # By identity: what is compiled keeps its action, so that no other takes its place.
        return self._actions.setdefault(id(action), _Compiled(action, self))


class _Compiled:
    """One action, each part translated when it is first used: a replay needs few."""

    def __init__(self, action: Action, compiler: Compiler) -> None:
        self._action = action
        self._compiler = compiler

    def _function(self, term: Term) -> Callable[..., Any]:
        return _evaluate(f"lambda s, c: {self._compiler.source(term)}")

    @cached_property
    def guard(self) -> Callable[..., Any]:
        return self._function(self._action.guard)

    @cached_property
    def choices(self) -> list[_CompiledChoice]:
        return [
            _CompiledChoice(
                c.term.decl().name(),
                self._function(c.low),
                None if c.high is None else self._function(c.high),
                self._function(c.witness),
            )
            for c in self._action.choices
        ]

    @cached_property
    def update(self) -> Callable[..., Any]:
        updates = self._action.updates.items()
        items = ", ".join(f"{name!r}: {self._compiler.source(term)}" for name, term in updates)
        return _evaluate(f"lambda s, c: {{**s, {items}}}")


def _reader(name: str) -> str:
    return f"c[{name!r}]" if "." in name else f"s[{name!r}]"


def _evaluate(source: str) -> Callable[..., Any]:
    function: Callable[..., Any] = eval(source, {})  # noqa: S307 - our own terms, not input
    return function
