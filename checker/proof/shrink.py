"""A run that breaks a claim, made shorter: what can be left out is left out, what can be plain is plain.

The result is minimal in the sense of delta debugging: it breaks the claim, and no single step can be left out. That it
is the shortest of all runs is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from checker.proof.interpreter import Choices, Interpreter, Step, Value

# How many runs are shrunk: they end in different places, and one of a few is mostly as short as can be.
_TRIES = 5

Breaks = Callable[[Step, Mapping[str, Value]], bool]
"""Whether the claim is broken by a step, taken from the state given second."""


def shortest(
    interpreter: Interpreter, runs: Iterable[tuple[Step, ...]], breaks: Breaks, enough: int | None = None
) -> tuple[Step, ...] | None:
    """The shortest that comes of the runs which break soonest; None where none breaks anything.

    With `enough`, no more runs are looked at once so many break.
    """
    found = (run for run in (_until(interpreter, run, breaks) for run in runs) if run)
    broken = sorted(islice(found, enough), key=len)
    shrunk = (shrink(interpreter, run, breaks) for run in broken[:_TRIES])
    return min((run for run in shrunk if run), key=weight, default=None)


def weight(run: Sequence[Step]) -> tuple[int, int, int]:
    """What makes a run worse to read: its steps, what the environment chooses in them, what is set at the end."""
    return len(run), sum(sum(step.choices.values()) for step in run), sum(map(bool, run[-1].state.values()))


def _until(interpreter: Interpreter, run: Sequence[Step], breaks: Breaks) -> Sequence[Step] | None:
    """The run up to its first breaking step, by the states that it came with: a guess, since it is not replayed."""
    before: Mapping[str, Value] = interpreter.initial()
    for number, step in enumerate(run, 1):
        if breaks(step, before):
            return run[:number]
        before = step.state
    return None


def replayed(interpreter: Interpreter, steps: Sequence[Step]) -> Iterator[tuple[Step, Mapping[str, Value]]]:
    """Those of the steps that can be taken here, one after the other, each with the state before it."""
    state = interpreter.initial()
    for step in steps:
        if step.action not in interpreter.actions or not interpreter.enabled(state, step.action):
            continue
        choices = _fitting(interpreter, state, step)
        before, state = state, interpreter.apply(state, step.action, choices)
        yield Step(step.action, choices, state), before


def prefix_to(interpreter: Interpreter, steps: Sequence[Step], breaks: Breaks) -> tuple[Step, ...] | None:
    """The shortest beginning of the replayed steps that ends in a breaking one; None where none is."""
    taken: list[Step] = []
    for step, before in replayed(interpreter, steps):
        taken.append(step)
        if breaks(step, before):
            return tuple(taken)
    return None


def shrink(interpreter: Interpreter, steps: Sequence[Step], breaks: Breaks) -> tuple[Step, ...] | None:
    """The steps without all that the break does not need; None where they break nothing."""
    run = prefix_to(interpreter, steps, breaks)
    while run is not None:
        shorter = _plainer(interpreter, _fewer(interpreter, run, breaks), breaks)
        if len(shorter) == len(run):
            return shorter
        run = shorter
    return None


def _fewer(interpreter: Interpreter, run: tuple[Step, ...], breaks: Breaks) -> tuple[Step, ...]:
    """Leave out runs of steps, long ones first, until no single one can go."""
    size = max(1, len(run) // 2)
    while True:
        start, shorter = len(run) - size, False
        while start >= 0:
            found = prefix_to(interpreter, run[:start] + run[start + size :], breaks)
            if found is not None and len(found) < len(run):
                run, shorter = found, True
            start = min(start, len(run)) - size
        if size > 1:
            size //= 2
        elif not shorter:
            return run


def _plainer(interpreter: Interpreter, run: tuple[Step, ...], breaks: Breaks) -> tuple[Step, ...]:
    """Each choice as low as it goes, or at its witness, where the run still breaks the claim."""
    for place, name in [
        (place, name) for place, step in enumerate(run) for name, chosen in step.choices.items() if chosen
    ]:
        if place >= len(run) or not run[place].choices.get(name):
            continue
        for plain in ({name: 0}, {name: 1}, {}):
            others = {n: c for n, c in run[place].choices.items() if n != name}
            step = Step(run[place].action, others | plain, {})
            found = prefix_to(interpreter, (*run[:place], step, *run[place + 1 :]), breaks)
            if found is not None and len(found) <= len(run):
                run = found
                break
    return run


def _fitting(interpreter: Interpreter, state: Mapping[str, Value], step: Step) -> Choices:
    """The choices of the step, brought into their ranges here; the witness where the step has none."""
    picked: Choices = {}
    for choice in interpreter.actions[step.action].choices:
        given = step.choices.get(choice.name)
        if given is None:
            picked[choice.name] = int(choice.witness(state, picked))
            continue
        low = int(choice.low(state, picked))
        high = given if choice.high is None else int(choice.high(state, picked))
        picked[choice.name] = max(low, min(given, high))
    return picked
