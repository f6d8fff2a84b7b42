"""Bounded unrolling: the shortest run that reaches a state, takes a step, or closes a fair loop. Finds, never proves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import z3

from checker.proof.interpreter import Step
from checker.proof.obligations import over_step
from checker.proof.system import System
from spec.terms import BoolTerm, NatTerm, Term, conj, disj, ite, nat, neg
from spec.tla import Action, EachStep, Fairness, Sort

STUTTER = -1


@dataclass(frozen=True)
class Run:
    """A run that a solver found, from the initial state. From step `loop_from` on it repeats; None: it does not."""

    steps: tuple[Step, ...]
    loop_from: int | None = None


@dataclass
class Unrolling:
    """Frames 0, 1, 2, … of one system in one incremental solver."""

    system: System
    solver: z3.Solver = field(init=False)
    frames: int = 0

    def __post_init__(self) -> None:
        """Frame 0 is the initial state."""
        self.solver = self.system.solver(self.at(self.system.spec.initial, 0))

    def at(self, term: Term, frame: int) -> Term:
        """`term` in a frame; what it says of next is said of the frame after."""
        pairs = []
        for v in self.system.spec.variables:
            pairs += [(v.now, _constant(v.name, v.sort, frame)), (v.next, _constant(v.name, v.sort, frame + 1))]
        return z3.substitute(term, *pairs)

    def choice(self, action: Action, term: Term, frame: int) -> Term:
        """`term`, with the choices of `action` renamed for this frame."""
        pairs = [(c.term, z3.Int(f"{c.term.decl().name()}@{frame}")) for c in action.choices]
        return self.at(z3.substitute(term, *pairs) if pairs else term, frame)

    def taken(self, frame: int) -> NatTerm:
        """Which action leads from this frame to the next, by its index; STUTTER is none."""
        return z3.Int(f"taken@{frame}")

    def extend(self) -> None:
        """One more step."""
        frame, actions = self.frames, self.system.spec.actions
        taken = self.taken(frame)
        self.solver.add(taken >= STUTTER, taken < len(actions))
        after: dict[str, Term] = {v.name: _constant(v.name, v.sort, frame) for v in self.system.spec.variables}
        for index, action in enumerate(actions):
            self.solver.add(z3.Implies(taken == index, self.choice(action, conj(action.guard, action.where), frame)))
            for name, update in action.updates.items():
                after[name] = ite(taken == index, self.choice(action, update, frame), after[name])
        for v in self.system.spec.variables:
            self.solver.add(_constant(v.name, v.sort, frame + 1) == after[v.name])
        self.frames += 1

    def small(self) -> BoolTerm:
        """The environment chooses small numbers: easier to read. A wish, not a bound on the search."""
        wishes = []
        for frame in range(self.frames):
            for index, action in enumerate(self.system.spec.actions):
                for c in action.choices:
                    top = ite(c.witness > 1, c.witness, nat(1))
                    wish = self.choice(action, c.term <= top, frame)
                    wishes.append(z3.Implies(self.taken(frame) == index, wish))
        return conj(*wishes)

    def find(self, goal: BoolTerm) -> z3.ModelRef | None:
        """A model of `goal` over the frames so far, with small numbers where there is one."""
        model = self.system.query(self.solver, goal)
        if model is None:
            return None
        return self.system.query(self.solver, goal, self.small()) or model

    def steps(self, model: z3.ModelRef) -> tuple[Step, ...]:
        """The run in a model."""
        found = []
        for frame in range(self.frames):
            index = model.eval(self.taken(frame), model_completion=True).as_long()
            if index == STUTTER:
                continue
            action = self.system.spec.actions[index]
            names = {c.term.decl().name(): c.term for c in action.choices}
            picked = {
                n: model.eval(self.choice(action, t, frame), model_completion=True).as_long() for n, t in names.items()
            }
            found.append(Step(action.name, picked, self.system.state_of(model, suffix=f"@{frame + 1}")))
        return tuple(found)


def reach_state(system: System, target: BoolTerm) -> Run | None:
    """A shortest run to a state in `target`, up to the depth limit."""
    unrolling = Unrolling(system)
    for depth in range(system.limits.depth + 1):
        if depth:
            unrolling.extend()
        model = unrolling.find(unrolling.at(target, depth))
        if model is not None:
            return Run(unrolling.steps(model))
    return None


def reach_step(system: System, claim: EachStep) -> Run | None:
    """A shortest run whose last step breaks the claim, up to the depth limit."""
    unrolling = Unrolling(system)
    for frame in range(system.limits.depth):
        unrolling.extend()
        bad = disj(*_breaks(unrolling, claim, frame))
        model = unrolling.find(bad)
        if model is not None:
            return Run(unrolling.steps(model))
    return None


def _breaks(unrolling: Unrolling, claim: EachStep, frame: int) -> Iterator[BoolTerm]:
    for index, action in enumerate(unrolling.system.spec.actions):
        if action.name not in claim.but:
            transition = unrolling.system.transitions[action.name]
            broken = neg(over_step(unrolling.system, transition, claim.holds))
            yield conj(unrolling.taken(frame) == index, unrolling.at(broken, frame))


def fair_lasso(system: System, inside: BoolTerm, event: BoolTerm | None = None) -> Run | None:
    """A run that in the end stays in `inside` for ever, fair to every action, with `event` (if any) in its loop.

    The loop revisits the same full state, but for counters that nothing reads. Stuttering is a step, but never counts
    as taking an action. Finding none proves nothing.
    """
    unrolling = Unrolling(system)
    for length in range(system.limits.depth + 1):
        if length:
            unrolling.extend()
        for loop in range(1 if event is not None else 0, min(length, system.limits.loop) + 1):
            start = length - loop
            model = unrolling.find(_closes(unrolling, start, length, inside, event))
            if model is not None:
                stutters = sum(model.eval(unrolling.taken(f), model_completion=True).as_long() < 0 for f in range(start))
                return Run(unrolling.steps(model), start - stutters)
    return None


def _closes(u: Unrolling, start: int, end: int, inside: BoolTerm, event: BoolTerm | None) -> BoolTerm:
    frames = range(start, end + 1)
    parts = [u.at(inside, f) for f in frames]
    pure = pure_counters(u.system)
    for v in u.system.spec.variables:
        if v.name not in pure:
            parts.append(_constant(v.name, v.sort, start) == _constant(v.name, v.sort, end))
    if event is not None:
        parts.append(disj(*(u.at(event, f) for f in range(start, end))))
    for index, action in enumerate(u.system.spec.actions):
        if action.fairness is Fairness.NONE:
            continue
        off = [u.at(disabled(action), f) for f in frames]
        took = [conj(u.taken(f) == index, _changes(u, action, f)) for f in range(start, end)]
        parts.append(disj(*took, disj(*off) if action.fairness is Fairness.WEAK else conj(*off)))
    return conj(*parts)


def disabled(action: Action) -> BoolTerm:
    """An upper bound of not ENABLED <<A>>_vars: the guard is false, or the only choice there is changes nothing."""
    only = [action.at_witness(c.low) == (action.at_witness(c.low) - 1 if c.high is None else action.at_witness(c.high))
            for c in action.choices]
    return disj(neg(action.guard), conj(neg(action.enabled), *only))


def _changes(u: Unrolling, action: Action, frame: int) -> BoolTerm:
    by_name = {v.name: v for v in u.system.spec.variables}
    return disj(*(
        _constant(n, by_name[n].sort, frame) != _constant(n, by_name[n].sort, frame + 1) for n in action.updates
    ))


def pure_counters(system: System) -> frozenset[str]:
    """Variables that no guard, range or other variable's update reads: their value changes nothing else."""
    read: set[str] = set()
    for action in system.spec.actions:
        read |= action.guard_reads
        for names in action.choice_reads.values():
            read |= names
        for name, names in action.update_reads.items():
            read |= names - {name}
    return frozenset(v.name for v in system.spec.variables if v.sort is Sort.NAT and v.name not in read)


def _constant(name: str, sort: Sort, frame: int) -> Term:
    full = f"{name}@{frame}"
    return z3.Bool(full) if sort is Sort.BOOL else z3.Int(full)


def last_state(run: Run, initial: dict[str, int | bool]) -> dict[str, int | bool]:
    """The state in which the run ends."""
    return dict(run.steps[-1].state) if run.steps else initial


def actions_of(steps: Sequence[Step]) -> list[str]:
    """The names of the actions, in order."""
    return [step.action for step in steps]
