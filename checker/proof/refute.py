"""Refutations: a stuck region that is closed and reached, or a fair lasso. Everything found is re-run without a solver.

A gap in a proof is not a refutation. Only what is reachable, and in which a fair run can stay, is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import z3

from checker.proof.interpreter import Interpreter, Value
from checker.proof.lemmas import Samples
from checker.proof.system import System, Transition
from checker.proof.unroll import Run, Unrolling, fair_lasso
from spec.terms import BoolTerm, conj, disj, neg
from spec.tla import Fairness, FinitelyOften, LeadsTo, Sort


@dataclass(frozen=True)
class Stuck:
    """A closed set of pending states: no action leaves it but help. `atoms` are its disjuncts, by name."""

    region: BoolTerm
    atoms: tuple[str, ...]
    lemmas: tuple[BoolTerm, ...] = ()
    """What else holds in it."""
    flag: BoolTerm | None = None
    """What only help can change, where the region lies inside it."""


@dataclass(frozen=True)
class Refutation:
    """A run that breaks the claim, the way it was found, and the stuck region where there is one."""

    run: Run
    method: str
    stuck: Stuck | None = None


@dataclass(frozen=True)
class _Question:
    """What a stuck region is sought by."""

    system: System
    lemmas: tuple[BoolTerm, ...]
    sought: Sought


@dataclass(frozen=True)
class Sought:
    """How a stuck region is sought: nothing that makes it one."""

    samples: Samples | None = None
    """Random runs: each atom that they rule out is a question less."""
    first: BoolTerm | None = None
    """The flag inside which it is sought first."""
    fewest: bool = True
    """Whether disjuncts that the others imply are left out."""


def stuck_region(
    system: System,
    claim: LeadsTo,
    lemmas: Iterable[BoolTerm],
    sought: Sought | None = None,
) -> Stuck | None:
    """The greatest closed set of the form R and (some counter is above 0, or some flag is set or not set).

    Where there is none, the same inside each flag that only help can change.
    """
    question = _Question(system, tuple(lemmas), sought or Sought())
    inside, first = conj(claim.pending, neg(claim.goal)), question.sought.first
    for flag in chain([] if first is None else [first], [None], _held_flags(system, conj(*question.lemmas, inside))):
        found = _closed_region(question, inside if flag is None else conj(inside, flag))
        if found is not None:
            return replace(found, flag=flag)
    return None


def stuck_of(
    system: System, claim: LeadsTo, lemmas: Iterable[BoolTerm], atoms: Sequence[str], flag: BoolTerm | None
) -> Stuck:
    """The region of these parts, which may be closed or not."""
    lemmas, every = tuple(lemmas), dict(_atoms(system))
    inside = conj(claim.pending, neg(claim.goal), *([] if flag is None else [flag]))
    region = conj(system.spec.naturals, *lemmas, inside, disj(*(every[atom] for atom in atoms)))
    return Stuck(region, tuple(atoms), lemmas, flag)


def held_actions(system: System) -> dict[str, Transition]:
    """What a stuck region must be closed under: all but help. Help that is fair comes without being asked."""
    return {n: t for n, t in system.transitions.items() if not t.action.help or t.action.fairness is not Fairness.NONE}


def _held_flags(system: System, region: BoolTerm) -> Iterator[BoolTerm]:
    """Flags, or their negations, that hold somewhere in the region and that no held action changes there."""
    held, here = held_actions(system), system.solver(system.spec.naturals, region)
    for variable in system.spec.variables:
        if variable.sort is not Sort.BOOL:
            continue
        moving = [t for t in held.values() if variable.name in t.action.updates]
        for flag in (variable.now, neg(variable.now)):
            if not system.impossible(here, flag) and all(_keeps(system, t, region, flag) for t in moving):
                yield flag


def _keeps(system: System, transition: Transition, region: BoolTerm, flag: BoolTerm) -> bool:
    with system.step(transition.action.name, region) as solver:
        return system.impossible(solver, flag, neg(transition.primed(flag)))


def _closed_region(question: _Question, inside: BoolTerm) -> Stuck | None:
    """A greatest fixpoint: while some held action leaves it, all atoms true in that state go."""
    system = question.system
    alive = _sampled(question, inside, dict(_atoms(system)))
    region = conj(system.spec.naturals, *question.lemmas, inside)
    here, held, dirty = conj(*question.lemmas, inside), held_actions(system), True
    while dirty and alive:
        dirty = False
        for name, transition in held.items():
            with system.step(name, here) as solver:
                while alive and (model := _leaves(system, solver, transition, inside, alive)) is not None:
                    alive = {a: t for a, t in alive.items() if not z3.is_true(model.eval(t, model_completion=True))}
                    dirty = True
    if not alive or system.impossible(system.solver(region), disj(*alive.values())):
        return None
    if question.sought.fewest:
        alive = _fewest(system, region, alive)
    return Stuck(conj(region, disj(*alive.values())), tuple(alive), question.lemmas)


def _sampled(question: _Question, inside: BoolTerm, alive: dict[str, BoolTerm]) -> dict[str, BoolTerm]:
    """The atoms that no step of the random runs rules out: each is a question less to the solver."""
    if question.sought.samples is None:
        return alive
    pending, held = Interpreter(question.system.spec).holds(inside), held_actions(question.system)
    steps = [
        (_true_atoms(before, alive), _true_atoms(after, alive) if pending(after) else frozenset[str]())
        for action, before, after in question.sought.samples.steps
        if action in held and pending(before)
    ]
    names, gone = set(alive), set(alive)
    while gone:
        gone = {atom for before, after in steps if not names & after for atom in names & before}
        names -= gone
    return {name: term for name, term in alive.items() if name in names}


def _true_atoms(state: Mapping[str, Value], names: Iterable[str]) -> frozenset[str]:
    return frozenset(n for n in names if (not state[n[1:]] if n.startswith("~") else state[n]))


def _fewest(system: System, region: BoolTerm, alive: dict[str, BoolTerm]) -> dict[str, BoolTerm]:
    """The same set with fewer disjuncts: flags go first, then counters in their order, so that ledgers remain."""
    whole = system.solver(region, disj(*alive.values()))
    for name in sorted(alive, key=lambda n: z3.is_gt(alive[n])):
        rest = {n: t for n, t in alive.items() if n != name}
        if rest and system.impossible(whole, *(neg(t) for t in rest.values())):
            alive = rest
    return alive


def _leaves(
    system: System, solver: z3.Solver, transition: Transition, inside: BoolTerm, alive: dict[str, BoolTerm]
) -> z3.ModelRef | None:
    """A state of the set that this action can leave it from."""
    here = disj(*alive.values())
    return system.query(solver, here, neg(conj(transition.primed(inside), transition.primed(here))))


def _atoms(system: System) -> Iterable[tuple[str, BoolTerm]]:
    for variable in system.spec.variables:
        if variable.sort is Sort.NAT:
            yield variable.name, variable.now > 0
        else:
            yield variable.name, variable.now
            yield f"~{variable.name}", neg(variable.now)


def refute_by_stuck_region(interpreter: Interpreter, stuck: Stuck, run: Run | None) -> Refutation | None:
    """The region, a run that reaches it, and a fair way to stay there; None without a run, which proves nothing.

    The interpreter is of the slice of the region.
    """
    return Refutation(_stay(interpreter, run, stuck), "stuck-region", stuck) if run else None


def refute_by_lasso(unrolling: Unrolling, claim: LeadsTo) -> Refutation | None:
    """A fair lasso that stays pending, or None (which proves nothing)."""
    run = fair_lasso(unrolling, conj(claim.pending, neg(claim.goal)))
    return Refutation(run, "fair-lasso") if run is not None else None


def refute_finitely_often(unrolling: Unrolling, claim: FinitelyOften) -> Refutation | None:
    """A fair lasso with the event in its loop."""
    run = fair_lasso(unrolling, claim.during, claim.event)
    return Refutation(run, "fair-lasso") if run is not None else None


def _stay(interpreter: Interpreter, run: Run, stuck: Stuck) -> Run:
    """The run, and then every fair action until nothing moves: the last state repeats for ever.

    Where something moves for ever (a counter that grows), the run ends in the region: that it is closed is the proof.
    """
    # The run may be one of a larger spec.
    state = {v: run.steps[-1].state[v] if run.steps else first for v, first in interpreter.initial().items()}
    tail = interpreter.settle(state, interpreter.holds(stuck.region))
    if tail is None:
        return run
    steps = (*run.steps, *tail)
    return Run(steps, len(steps))
