"""Bounded unrolling: the shortest run to a state, a step or a fair loop. It finds, and never proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import z3

from checker.proof.interpreter import Step
from checker.proof.system import System
from spec.terms import NEXT, BoolTerm, NatTerm, Renaming, Term, conj, disj, free_names, implies, ite, nat, neg, same
from spec.tla import Action, Choice, EachStep, Fairness, Sort, Variable

STUTTER = -1
TAKEN = z3.Int("taken")


@dataclass(frozen=True)
class Run:
    """A run that a solver found, from the initial state. From step `loop_from` on it repeats; None: it does not."""

    steps: tuple[Step, ...]
    loop_from: int | None = None
    ignored: frozenset[str] = frozenset()
    """Counters that grow in the loop and that nothing reads, the claim included."""


class Unrolling:
    """Frames 0, 1, 2, … of one system in one incremental solver.

    One step is a single term over now, next, the choices and the index of the action taken; a frame is that term with
    its constants renamed, so that a frame costs one substitution.
    """

    def __init__(self, system: System) -> None:
        """Frame 0 is the initial state."""
        self.system = system
        self.frames = 0
        self._step = _one_step(system)
        self._choices = [c.term for a in system.spec.actions for c in a.choices]
        self._renamings: dict[int, Renaming] = {}
        self._off: dict[str, BoolTerm] = {}
        self.solver = system.solver(self.at(system.spec.initial, 0))

    def at(self, term: Term, frame: int) -> Term:
        """`term` in a frame, its choices those of this frame; what it says of next is said of the frame after."""
        if frame not in self._renamings:
            pairs = [(TAKEN, self.taken(frame))]
            for v in self.system.spec.variables:
                pairs += [(v.now, _constant(v, frame)), (v.next, _constant(v, frame + 1))]
            pairs += [(c, z3.Int(f"{c.decl().name()}@{frame}")) for c in self._choices]
            self._renamings[frame] = Renaming(pairs)
        return self._renamings[frame](term)

    def off(self, actions: Sequence[Action], frame: int) -> BoolTerm:
        """These actions cannot change the state of this frame."""
        for action in actions:
            if action.name not in self._off:
                self._off[action.name] = disabled(action)
        return self.at(conj(*(self._off[action.name] for action in actions)), frame)

    def taken(self, frame: int) -> NatTerm:
        """Which action leads from this frame to the next, by its index; STUTTER is none."""
        return z3.Int(f"taken@{frame}")

    def extend(self, frames: int) -> None:
        """At least so many steps."""
        while self.frames < frames:
            self.solver.add(self.at(self._step, self.frames))
            self.frames += 1

    def small(self, frames: int, least: int) -> BoolTerm:
        """The environment chooses no more than the witness, or `least`: easier to read. A wish, not a bound."""
        wish = conj(
            *(
                implies(index == TAKEN, c.term <= ite(c.witness > least, c.witness, nat(least)))
                for index, action in enumerate(self.system.spec.actions)
                for c in action.choices
            )
        )
        return conj(*(self.at(wish, frame) for frame in range(frames)))

    def find(self, goal: BoolTerm, frames: int) -> z3.ModelRef | None:
        """A model of `goal` over these frames, with small numbers where there is one."""
        model = self.system.query(self.solver, goal)
        if model is None:
            return None
        for least in (0, 1):
            easier = self.system.query(self.solver, goal, self.small(frames, least))
            if easier is not None:
                return easier if least == 0 else self._easier(conj(goal, self.small(frames, 1)), easier, frames)
        return self._easier(goal, model, frames)

    def _easier(self, goal: BoolTerm, model: z3.ModelRef, frames: int) -> z3.ModelRef:
        """The same actions, each choice at its witness where the goal allows that: one after the other."""
        kept = [goal]
        for frame in range(frames):
            index = model.eval(self.taken(frame), model_completion=True).as_long()
            kept.append(self.taken(frame) == index)
            for c in self.system.spec.actions[index].choices if index != STUTTER else ():
                wish = self.at(c.term <= c.witness, frame)
                if z3.is_true(model.eval(wish, model_completion=True)):
                    kept.append(wish)
                elif (found := self.system.query(self.solver, *kept, wish)) is not None:
                    kept.append(wish)
                    model = found
        return model

    def steps(self, model: z3.ModelRef, frames: int) -> tuple[Step, ...]:
        """The first steps of the run in a model."""
        found = []
        for frame in range(frames):
            index = model.eval(self.taken(frame), model_completion=True).as_long()
            if index == STUTTER:
                continue
            action = self.system.spec.actions[index]
            names = {c.term.decl().name(): c.term for c in action.choices}
            picked = {n: model.eval(self.at(t, frame), model_completion=True).as_long() for n, t in names.items()}
            found.append(Step(action.name, picked, self.system.state_of(model, suffix=f"@{frame + 1}")))
        return tuple(found)


def reach_state(unrolling: Unrolling, target: BoolTerm, depths: range | None = None) -> Run | None:
    """A shortest run to a state in `target`, of these depths; by default up to the depth limit."""
    for depth in depths or range(unrolling.system.limits.depth + 1):
        unrolling.extend(depth)
        model = unrolling.find(unrolling.at(target, depth), depth)
        if model is not None:
            return Run(unrolling.steps(model, depth))
    return None


def reach_step(unrolling: Unrolling, claim: EachStep, depths: range | None = None) -> Run | None:
    """A shortest run whose last step breaks the claim, of these depths; by default up to the depth limit."""
    bad = _breaks(unrolling.system, claim)
    for depth in depths or range(1, unrolling.system.limits.depth + 1):
        unrolling.extend(depth)
        model = unrolling.find(unrolling.at(bad, depth - 1), depth)
        if model is not None:
            return Run(unrolling.steps(model, depth))
    return None


def _breaks(system: System, claim: EachStep) -> BoolTerm:
    """The steps that break the claim: over now, next and the action taken."""
    broken = [
        conj(index == TAKEN, neg(claim.holds))
        for index, action in enumerate(system.spec.actions)
        if action.name not in claim.but
    ]
    return disj(*broken)


def fair_lasso(unrolling: Unrolling, inside: BoolTerm, event: BoolTerm | None = None) -> Run | None:
    """A run that in the end stays in `inside` for ever, fair to every action, with `event` (if any) in its loop.

    The loop revisits the same full state, but for counters that nothing reads. Stuttering is a step, but never counts
    as taking an action. Finding none proves nothing.
    """
    limits = unrolling.system.limits
    pure = pure_counters(unrolling.system) - free_names(inside) - _bound_by(unrolling.system, event)
    for length in range(limits.lasso + 1):
        unrolling.extend(length)
        for loop in range(1 if event is not None else 0, min(length, limits.loop) + 1):
            start = length - loop
            model = unrolling.find(_closes(unrolling, (start, length), inside, event, pure), length)
            if model is not None:
                taken = [model.eval(unrolling.taken(f), model_completion=True).as_long() for f in range(start)]
                stutters = taken.count(STUTTER)
                return Run(unrolling.steps(model, length), start - stutters, pure)
    return None


def _bound_by(system: System, event: BoolTerm | None) -> frozenset[str]:
    """The counters whose value, not only whose change, decides the event."""
    if event is None:
        return frozenset()
    shift = z3.Int("shift")
    bound = set()
    for v in system.spec.variables:
        if v.sort is Sort.NAT and v.name in {n.removesuffix(NEXT) for n in free_names(event)}:
            moved = z3.substitute(event, (v.now, v.now + shift), (v.next, v.next + shift))
            if not system.impossible(system.solver(), event != moved):
                bound.add(v.name)
    return frozenset(bound)


def _closes(
    u: Unrolling, loop: tuple[int, int], inside: BoolTerm, event: BoolTerm | None, pure: frozenset[str]
) -> BoolTerm:
    start, end = loop
    frames = range(start, end + 1)
    parts = [u.at(inside, f) for f in frames]
    parts += [_constant(v, start) == _constant(v, end) for v in u.system.spec.variables if v.name not in pure]
    if event is not None:
        parts.append(disj(*(u.at(event, f) for f in range(start, end))))
    index = {action.name: i for i, action in enumerate(u.system.spec.actions)}
    for actions in u.system.spec.fair_units.values():
        off = [u.off(actions, f) for f in frames]
        took = [conj(u.taken(f) == index[a.name], _changes(u, a, f)) for f in range(start, end) for a in actions]
        parts.append(disj(*took, disj(*off) if actions[0].fairness is Fairness.WEAK else conj(*off)))
    return conj(*parts)


def disabled(action: Action) -> BoolTerm:
    """Implies not ENABLED <<A>>_vars: the guard is false, or all choices there are change as little as the witness."""
    unfree: dict[str, BoolTerm] = {}  # of the choices that come later: where they matter
    for c in reversed(action.choices):
        ranged = [later.full_name for later in action.choices if later.full_name in unfree and _bounded_by(later, c)]
        matters = [_matters(c, u) for u in action.updates.values()]
        unfree[c.full_name] = action.at_witness(disj(*matters, *(unfree[name] for name in ranged)))
    single = [
        disj(neg(unfree[c.full_name]), action.at_witness(c.low) == action.at_witness(c.high))
        if c.high is not None
        else neg(unfree[c.full_name])
        for c in action.choices
    ]
    return disj(neg(action.guard), conj(neg(action.enabled), *single))


def _bounded_by(later: Choice, choice: Choice) -> bool:
    """Whether the range of the later choice depends on this one: then what matters of it matters of both."""
    return any(choice.full_name in free_names(bound) for bound in (later.low, later.high) if bound is not None)


def _matters(choice: Choice, term: Term) -> BoolTerm:
    """Where the value of a term may depend on a choice: all but the branches that it is not in."""
    if choice.full_name not in free_names(term):
        return z3.BoolVal(val=False)
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        test, then, otherwise = term.children()
        branches = ite(test, _matters(choice, then), _matters(choice, otherwise))
        return disj(_matters(choice, test), branches)
    if not term.num_args():
        return z3.BoolVal(val=True)
    return disj(*(_matters(choice, part) for part in term.children()))


def _changes(u: Unrolling, action: Action, frame: int) -> BoolTerm:
    changed = [v for v in u.system.spec.variables if v.name in action.updates]
    return disj(*(_constant(v, frame) != _constant(v, frame + 1) for v in changed))


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


def _constant(variable: Variable, frame: int) -> Term:
    full = f"{variable.name}@{frame}"
    return z3.Bool(full) if variable.sort is Sort.BOOL else z3.Int(full)


def _one_step(system: System) -> BoolTerm:
    """Some action, or none, leads from now to next."""
    spec = system.spec
    parts = [TAKEN >= STUTTER, len(spec.actions) > TAKEN]
    after: dict[str, Term] = {v.name: v.now for v in spec.variables}
    for index, action in enumerate(spec.actions):
        parts.append(implies(index == TAKEN, conj(action.guard, action.where)))
        for name, update in action.updates.items():
            after[name] = ite(index == TAKEN, update, after[name])
    return conj(*parts, *(same(v.next, after[v.name]) for v in spec.variables))
