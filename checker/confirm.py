"""A counterexample is re-run on the concrete interpreter of the whole spec before anybody sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checker.proof.interpreter import Choices, Interpreter, State, Step, Value
from checker.proof.unroll import Run
from checker.translate import to_python
from spec.terms import NEXT, BoolTerm
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo


class UnconfirmedError(Exception):
    """A counterexample that does not run, or does not break its claim: our mistake, exit code 4."""


@dataclass(frozen=True)
class Confirmed:
    """A run of the whole spec: the states before and after each step. From `loop_from` on it repeats."""

    initial: Mapping[str, Value]
    steps: tuple[Step, ...]
    loop_from: int | None

    @property
    def last(self) -> Mapping[str, Value]:
        """The state in which it ends."""
        return self.steps[-1].state if self.steps else self.initial


def confirm(interpreter: Interpreter, claim: Claim, run: Run) -> Confirmed:
    """Run the steps of a slice on the whole spec and see the claim broken. Raises UnconfirmedError."""
    state = interpreter.initial()
    steps: list[Step] = []
    for number, step in enumerate(run.steps, 1):
        choices = _complete(interpreter, state, step)
        if not interpreter.legal(state, step.action, choices):
            raise UnconfirmedError(f"step {number}, {step.action}{choices}: not enabled in the whole spec")
        state = interpreter.apply(state, step.action, choices)
        for name, value in step.state.items():
            if state[name] != value:
                raise UnconfirmedError(f"step {number}, {step.action}: {name} is {state[name]}, not {value}")
        steps.append(Step(step.action, choices, state))
    found = Confirmed(interpreter.initial(), tuple(steps), run.loop_from)
    if not _breaks(interpreter, claim, found):
        raise UnconfirmedError("the run does not break the claim")
    return found


def _complete(interpreter: Interpreter, state: State, step: Step) -> Choices:
    """The choices of the slice, and the witness for those that it does not have."""
    picked: Choices = {}
    for choice in interpreter.actions[step.action].choices:
        given = step.choices.get(choice.name)
        picked[choice.name] = int(choice.witness(state, picked)) if given is None else given
    return picked


def _breaks(interpreter: Interpreter, claim: Claim, run: Confirmed) -> bool:
    states: Sequence[Mapping[str, Value]] = [run.initial, *(s.state for s in run.steps)]
    if isinstance(claim, Always):
        return not interpreter.holds(claim.holds)(run.last)
    if isinstance(claim, EachStep):
        return run.steps[-1].action not in claim.but and not over(claim.holds, states[-2], states[-1])
    if run.loop_from is None:
        return False
    tail = states[run.loop_from :]
    if isinstance(claim, FinitelyOften):
        during = interpreter.holds(claim.during)
        return all(map(during, tail)) and any(map(lambda a, b: over(claim.event, a, b), tail, tail[1:]))
    return _never_reaches(interpreter, claim, states, run.loop_from)


def _never_reaches(
    interpreter: Interpreter, claim: LeadsTo, states: Sequence[Mapping[str, Value]], loop_from: int
) -> bool:
    """From some state in which it is pending on, the goal holds nowhere, the loop included."""
    pending, goal = interpreter.holds(claim.pending), interpreter.holds(claim.goal)
    start = next((i for i, s in enumerate(states) if pending(s) and not any(map(goal, states[i:]))), None)
    return start is not None and start <= max(loop_from, len(states) - 1)


def over(term: BoolTerm, before: Mapping[str, Value], after: Mapping[str, Value]) -> bool:
    """A term over now and next, for one step."""
    source = to_python(term, lambda n: f"t[{n.removesuffix(NEXT)!r}]" if n.endswith(NEXT) else f"s[{n!r}]")
    function: Any = eval(f"lambda s, t: {source}", {})  # noqa: S307 - our own terms, not input
    return bool(function(before, after))
