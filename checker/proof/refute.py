"""Refutations: a stuck region that is closed and reached, or a fair lasso. Everything found is re-run without a solver.

A gap in a proof is not a refutation. Only what is reachable, and in which a fair run can stay, is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import z3

from checker.hints import prefix_to
from checker.proof.interpreter import Interpreter, Step
from checker.proof.system import System, Transition
from checker.proof.unroll import Run, Unrolling, fair_lasso, reach_state
from spec.terms import BoolTerm, conj, disj, neg
from spec.tla import Fairness, FinitelyOften, LeadsTo, Sort


@dataclass(frozen=True)
class Stuck:
    """A closed set of pending states: no action leaves it but help. `atoms` are its disjuncts, by name."""

    region: BoolTerm
    atoms: tuple[str, ...]


@dataclass(frozen=True)
class Refutation:
    """A run that breaks the claim, the way it was found, and the stuck region where there is one."""

    run: Run
    method: str
    stuck: Stuck | None = None


def stuck_region(system: System, claim: LeadsTo, lemmas: Iterable[BoolTerm], *, fewest: bool = True) -> Stuck | None:
    """The greatest closed set of the form R and (some counter is above 0, or some flag is set or not set).

    Where there is none, the same inside each flag that only help can change.
    """
    lemmas = tuple(lemmas)
    inside = conj(claim.pending, neg(claim.goal))
    found = _closed_region(system, lemmas, inside, fewest=fewest)
    if found is not None:
        return found
    for flag in _held_flags(system, conj(system.spec.naturals, *lemmas, inside)):
        found = _closed_region(system, lemmas, conj(inside, flag), fewest=fewest)
        if found is not None:
            return found
    return None


def _held(system: System) -> dict[str, Transition]:
    """What a stuck region must be closed under: all but help. Help that is fair comes without being asked."""
    return {n: t for n, t in system.transitions.items() if not t.action.help or t.action.fairness is not Fairness.NONE}


def _held_flags(system: System, region: BoolTerm) -> Iterator[BoolTerm]:
    """Flags, or their negations, that hold somewhere in the region and that no held action changes there."""
    held = _held(system)
    for variable in system.spec.variables:
        if variable.sort is not Sort.BOOL:
            continue
        for flag in (variable.now, neg(variable.now)):
            moving = [t for t in held.values() if variable.name in t.action.updates]
            stays = all(system.impossible(system.solver(region, t.relation), flag, neg(t.primed(flag))) for t in moving)
            if stays and not system.impossible(system.solver(region), flag):
                yield flag


def _closed_region(system: System, lemmas: tuple[BoolTerm, ...], inside: BoolTerm, *, fewest: bool) -> Stuck | None:
    """A greatest fixpoint: while some held action leaves it, all atoms true in that state go."""
    region = conj(system.spec.naturals, *lemmas, inside)
    alive = dict(_atoms(system))
    held = _held(system)
    solvers = {n: system.solver(region, t.relation) for n, t in held.items()}
    dirty = True
    while dirty and alive:
        dirty = False
        for name, transition in held.items():
            while alive and (model := _leaves(system, solvers[name], transition, inside, alive)) is not None:
                gone = [a for a, term in alive.items() if z3.is_true(model.eval(term, model_completion=True))]
                for atom in gone:
                    del alive[atom]
                dirty = True
    if not alive or system.impossible(system.solver(region), disj(*alive.values())):
        return None
    if fewest:
        alive = _fewest(system, region, alive)
    return Stuck(conj(region, disj(*alive.values())), tuple(alive))


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


def refute_by_stuck_region(
    unrolling: Unrolling, claim: LeadsTo, lemmas: Iterable[BoolTerm], known: Iterable[Sequence[Step]] = ()
) -> Refutation | None:
    """A reached stuck region with a fair way to stay there, or None (which proves nothing).

    `known` are runs of other configurations: where one of them reaches the region, none is sought.
    """
    stuck = stuck_region(unrolling.system, claim, lemmas)
    if stuck is None:
        return None
    run = _known_way(unrolling.system, stuck, known) or reach_state(unrolling, stuck.region)
    return Refutation(_stay(unrolling.system, run, stuck), "stuck-region", stuck) if run else None


def _known_way(system: System, stuck: Stuck, known: Iterable[Sequence[Step]]) -> Run | None:
    interpreter = Interpreter(system.spec)
    inside = interpreter.holds(stuck.region)
    found = (prefix_to(interpreter, steps, lambda step, _before: inside(step.state)) for steps in known)
    return next((Run(steps) for steps in found if steps), None)


def refute_by_lasso(unrolling: Unrolling, claim: LeadsTo) -> Refutation | None:
    """A fair lasso that stays pending, or None (which proves nothing)."""
    run = fair_lasso(unrolling, conj(claim.pending, neg(claim.goal)))
    return Refutation(run, "fair-lasso") if run is not None else None


def refute_finitely_often(unrolling: Unrolling, claim: FinitelyOften) -> Refutation | None:
    """A fair lasso with the event in its loop."""
    run = fair_lasso(unrolling, claim.during, claim.event)
    return Refutation(run, "fair-lasso") if run is not None else None


def _stay(system: System, run: Run, stuck: Stuck) -> Run:
    """The run, and then every fair action until nothing moves: the last state repeats for ever.

    Where something moves for ever (a counter that grows), the run ends in the region: that it is closed is the proof.
    """
    interpreter = Interpreter(system.spec)
    state = interpreter.replay(run.steps)
    tail = interpreter.settle(state, interpreter.holds(stuck.region))
    if tail is None:
        return run
    steps = (*run.steps, *tail)
    return Run(steps, len(steps))
