"""What earlier configurations taught: tried first in the next one, never trusted.

A run of one configuration is replayed step by step in another, and counts only if it breaks the claim there. A rank is
checked like any other. So a hint can save time, and cannot change a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from checker.proof.interpreter import Choices, Interpreter, Step, Value

Parts = tuple[tuple[int, str], ...]


@dataclass
class Hints:
    """By claim: the runs that broke it, and the rank that proved it."""

    runs: dict[str, list[tuple[Step, ...]]] = field(default_factory=dict)
    ranks: dict[str, list[Parts]] = field(default_factory=dict)

    def refuted(self, claim: str, steps: Sequence[Step]) -> None:
        """Remember a run."""
        self.runs.setdefault(claim, []).insert(0, tuple(steps))

    def proved(self, claim: str, rank: Sequence[Parts]) -> None:
        """Remember a rank."""
        self.ranks[claim] = list(rank)


def replayed(interpreter: Interpreter, steps: Sequence[Step]) -> Iterator[tuple[Step, Mapping[str, Value]]]:
    """The steps as far as they can be taken here, each with the state before it."""
    state = interpreter.initial()
    for step in steps:
        if step.action not in interpreter.actions:
            return
        choices = _fitting(interpreter, state, step)
        if not interpreter.legal(state, step.action, choices):
            return
        before, state = state, interpreter.apply(state, step.action, choices)
        yield Step(step.action, choices, state), before


def prefix_to(
    interpreter: Interpreter, steps: Sequence[Step], reached: Callable[[Step, Mapping[str, Value]], bool]
) -> tuple[Step, ...] | None:
    """The shortest beginning of the replayed steps whose last step (and the state before it) satisfies `reached`."""
    taken: list[Step] = []
    for step, before in replayed(interpreter, steps):
        taken.append(step)
        if reached(step, before):
            return tuple(taken)
    return None


def _fitting(interpreter: Interpreter, state: Mapping[str, Value], step: Step) -> Choices:
    """The choices of the step where they exist and fit here, the witness elsewhere."""
    picked: Choices = {}
    for choice in interpreter.actions[step.action].choices:
        given = step.choices.get(choice.name)
        low = int(choice.low(state, picked))
        high = None if choice.high is None else int(choice.high(state, picked))
        fits = given is not None and given >= low and (high is None or given <= high)
        picked[choice.name] = given if fits and given is not None else int(choice.witness(state, picked))
    return picked
