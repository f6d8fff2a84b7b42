"""What is learned from a line allows nothing that the spec does not, and random runs of the spec are all accepted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest
import z3
from replay_traces import header_of, load, numbered, recorded, replayed, text_of

from checker.replay.cubes import Cube, Linear, Reader, project
from checker.replay.judge import Carried, Judge
from checker.replay.relation import CARRIED, Relations, after, before
from checker.replay.results import ACCEPTED
from checker.replay.run import Judges
from checker.replay.sample import Sampler
from engine_hooks.trace import Step, TraceState
from spec.profile import load_profile
from spec.tla import Sort

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = "sglang-0.5.23"


@pytest.mark.parametrize(("loop", "storage", "remedies"), [
    ("normal", "none", ()), ("overlap", "file", ()), ("overlap", "file", ("reap-while-paused",)),
])  # fmt: skip
def test_random_runs_of_the_spec_are_accepted(
    tmp_path: Path, loop: str, storage: str, remedies: tuple[str, ...]
) -> None:
    header = header_of(loop, storage, remedies=remedies)
    judges = Judges(load)
    for seed in range(3):
        steps = [Step(1, "start", TraceState()), *Sampler(load(header), loop, storage, seed).segment(300)]
        path = tmp_path / f"{seed}.trace.ndjson"
        path.write_bytes(text_of(header, numbered(steps)))
        found = replayed(path, judges)
        assert (found.verdict, found.steps) == (ACCEPTED, len(steps))
        assert not found.differences


def test_a_cube_is_as_wide_as_its_formula_where_that_is_one_branch() -> None:
    x, y, n = z3.Int("x:a"), z3.Int("y:a"), z3.Int("e:n")
    formula = z3.And(n >= 1, n <= x, y == x - n, z3.Or(y > 5, x < 3))
    cube = project(Reader().read(formula), {"x:a": 9, "y:a": 7, "e:n": 2})
    assert cube.flags == {}
    # 1 <= n and n <= x, with n = x - y, and the branch y > 5.
    assert {(tuple(sorted(one.parts.items())), one.constant) for one in cube.conditions} == {
        ((("x:a", 1), ("y:a", -1)), -1),
        ((("y:a", 1),), -6),
    }


def holds(cube: Cube, numbers: dict[str, int]) -> bool:
    def true(one: Linear) -> bool:
        value = one.at(numbers)
        return value == 0 if one.zero else value >= 0

    return all(bool(numbers[n]) == v for n, v in cube.flags.items()) and all(map(true, cube.conditions))


def test_no_cube_allows_what_the_solver_refuses() -> None:
    """Each cube of a real trace, at random points near the line that it was made from: inside it, the formula holds."""
    header, steps = recorded("overlap-none-repaired")
    relations = Relations(load(header), header.loop, header.storage)
    judge = Judge(relations)
    rng = random.Random(1)  # noqa: S311 - not for secrets

    class Where:
        number = 0

    inside = 0
    carried, x = Carried(), steps[0].state
    for step in steps[1:120]:
        found = judge.judge(step.do, step.how, x, step.state, carried, Where())
        carried, x = found or carried, step.state
    for (do, how, *_), cubes in judge._cubes.items():
        solver = z3.Solver()
        solver.add(z3.Or(*(way.formula for way in judge.ways(do, how))))
        for known in cubes.known:
            for _ in range(12):
                point = nearby(known.cube, relations, rng)
                if point is None or not holds(known.cube, point):
                    continue
                inside += 1
                assert solver.check(*fixed(relations, point)) == z3.sat, (do, how, known.cube, point)
    assert inside == 168


def nearby(cube: Cube, relations: Relations, rng: random.Random) -> dict[str, int] | None:
    """Numbers that a solver finds in a cube, pushed by random wishes: it need not know the formula for that."""
    solver = z3.Solver()
    solver.set("random_seed", rng.randrange(1000))
    names: dict[str, z3.ExprRef] = {}
    for name, variable in relations.variables.items():
        for side, make in (("x", before), ("y", after)):
            names[f"{side}:{name}"] = make(name, variable.sort)
            if variable.sort is Sort.NAT:
                solver.add(names[f"{side}:{name}"] >= 0)
    for name, value in cube.flags.items():
        solver.add(names[name] == value)
    for one in cube.conditions:
        total = z3.Sum([factor * names[n] for n, factor in one.parts.items()]) + one.constant
        solver.add(total == 0 if one.zero else total >= 0)
    for term in names.values():
        wish = term == rng.randrange(4) if z3.is_int(term) else term == bool(rng.randrange(2))
        solver.push()
        solver.add(wish)
        if solver.check() != z3.sat:
            solver.pop()
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    return {n: int(str(v)) if z3.is_int(v := model.eval(t, model_completion=True)) else int(z3.is_true(v))
            for n, t in names.items()}  # fmt: skip


def fixed(relations: Relations, numbers: dict[str, int]) -> list[z3.BoolRef]:
    found = []
    for name, variable in relations.variables.items():
        for side, make in (("x", before), ("y", after)):
            value = numbers[f"{side}:{name}"]
            found.append(make(name, variable.sort) == (bool(value) if variable.sort is Sort.BOOL else value))
    return found


def test_what_is_carried_is_what_the_formula_says() -> None:
    """The attempts left are worked out beside the formula, which refuses any other number."""
    assert CARRIED == ("has_host", "prefetch_budget", "prefix_lost")
    judge = Judge(Relations(load_profile(PROFILE), "normal", "file"))
    arrived = TraceState(waiting=1, prefetch_query=1, lookups=1)

    class Where:
        number = 2

    found = judge.judge("arrive", "", TraceState(), arrived, Carried(), Where())
    assert found == Carried(has_host=False, prefetch_budget=8)
    numbers = judge.numbers(TraceState(), arrived, Carried(), Carried(has_host=False, prefetch_budget=7))
    assert numbers is not None
    (way, *_) = judge.ways("arrive", "")
    assert judge._ask(way, numbers) is None
    worse = msgspec.structs.replace(arrived, waiting=2)
    assert judge.judge("arrive", "", TraceState(), worse, Carried(), Where()) is None
