"""A counterexample is re-run on the concrete interpreter of the whole spec before anybody sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any

from checker.proof.interpreter import Choices, Interpreter, State, Step, Value
from checker.proof.refute import Refutation, Stuck
from checker.proof.system import System
from checker.proof.unroll import Run, pure_counters
from checker.translate import to_python
from spec.terms import NEXT, BoolTerm, conj, free_names, neg
from spec.tla import Always, Claim, EachStep, Fairness, FinitelyOften, LeadsTo, Spec


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


def confirm(interpreter: Interpreter, claim: Claim, refutation: Refutation, piece: Interpreter) -> Confirmed:
    """Run the steps, found in the slice `piece`, on the whole spec; see the claim broken. Raises UnconfirmedError."""
    run = refutation.run
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
    if refutation.stuck is not None:
        _check_stuck(interpreter, refutation.stuck, found)
    if run.loop_from is not None:
        _check_loop(piece, claim, run, found)
    if not _breaks(interpreter, claim, found, closed=refutation.stuck is not None):
        raise UnconfirmedError("the run does not break the claim")
    return found


def _check_stuck(interpreter: Interpreter, stuck: Stuck, run: Confirmed) -> None:
    """The run ends in the region, which was proved to be closed."""
    if not interpreter.holds(stuck.region)(run.last):
        raise UnconfirmedError("the run does not end in the stuck region")


def _check_loop(piece: Interpreter, claim: Claim, run: Run, found: Confirmed) -> None:
    """The loop ends where it began, and each fair action is taken in it or disabled somewhere in it."""
    states = [found.initial, *(s.state for s in found.steps)]
    if run.loop_from not in range(len(states)):
        raise UnconfirmedError(f"the loop would begin at step {run.loop_from} of {len(found.steps)}")
    loop = [{v: s[v] for v in piece.spec.init} for s in states[run.loop_from :]]
    moved = {v for v in loop[0] if loop[0][v] != loop[-1][v]}
    if moved and not moved <= run.ignored & _unread(piece.spec, claim):
        raise UnconfirmedError("the loop does not end where it began")
    moves = zip(found.steps[run.loop_from :], pairwise(loop), strict=True)
    taken = {step.action for step, (before, after) in moves if before != after}
    for unit, actions in piece.spec.fair_units.items():
        if not taken.isdisjoint(a.name for a in actions):
            continue
        off = [not any(piece.changes(dict(state), a.name) for a in actions) for state in loop]
        if not (any(off) if actions[0].fairness is Fairness.WEAK else all(off)):
            raise UnconfirmedError(f"the loop is not fair to {unit}")


def _unread(spec: Spec, claim: Claim) -> frozenset[str]:
    """The counters whose value nothing follows from: a loop may end with others than it began with."""
    if isinstance(claim, LeadsTo):
        return pure_counters(System(spec)) - free_names(conj(claim.pending, neg(claim.goal)))
    return pure_counters(System(spec)) - free_names(claim.during) if isinstance(claim, FinitelyOften) else frozenset()


def _complete(interpreter: Interpreter, state: State, step: Step) -> Choices:
    """The choices of the slice, and the witness for those that it does not have."""
    picked: Choices = {}
    for choice in interpreter.actions[step.action].choices:
        given = step.choices.get(choice.name)
        picked[choice.name] = int(choice.witness(state, picked)) if given is None else given
    return picked


def _breaks(interpreter: Interpreter, claim: Claim, run: Confirmed, *, closed: bool) -> bool:
    states: Sequence[Mapping[str, Value]] = [run.initial, *(s.state for s in run.steps)]
    tail = states[run.loop_from :] if run.loop_from is not None else []
    if isinstance(claim, Always):
        return not interpreter.holds(claim.holds)(run.last)
    if isinstance(claim, EachStep):
        last = run.steps[-1:]
        return bool(last) and last[0].action not in claim.but and not over(claim.holds)(states[-2], states[-1])
    if isinstance(claim, LeadsTo):
        return (closed or run.loop_from is not None) and _never_reaches(interpreter, claim, states, tail)
    during = interpreter.holds(claim.during)
    return all(map(during, tail)) and any(starmap(over(claim.event), pairwise(tail)))


def _never_reaches(
    interpreter: Interpreter, claim: LeadsTo, states: Sequence[Mapping[str, Value]], loop: Sequence[Mapping[str, Value]]
) -> bool:
    """From some state in which it is pending on, the goal holds nowhere: nor in the loop, which comes again."""
    pending, goal = interpreter.holds(claim.pending), interpreter.holds(claim.goal)
    if any(map(goal, loop)):
        return False
    return any(pending(s) and not any(map(goal, states[i:])) for i, s in enumerate(states))


def over(term: BoolTerm) -> Callable[[Mapping[str, Value], Mapping[str, Value]], bool]:
    """A term over now and next as a function of the states before and after a step."""
    source = to_python(term, lambda n: f"t[{n.removesuffix(NEXT)!r}]" if n.endswith(NEXT) else f"s[{n!r}]")
    function: Any = eval(f"lambda s, t: {source}", {})  # noqa: S307 - our own terms, not input
    return lambda before, after: bool(function(before, after))
