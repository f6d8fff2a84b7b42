"""Mutants: each is one change, found by its name in each spec, and what it changes is all that it changes."""

from __future__ import annotations

from collections import Counter

import pytest
import z3

from checker.mutate.mutants import KINDS, Mutant, mutated, mutated_profile, of_profile, of_spec
from spec.profile import Configuration, load_profile
from spec.protocol import Protocol
from spec.tla import Spec

PROFILE = load_profile("sglang-0.5.23").with_remedies(["all"])
PLACE = Configuration("normal", "retract", "file")


@pytest.fixture(scope="module")
def spec() -> Spec:
    return Protocol(PROFILE, PLACE, follow_request=True).spec()


def test_every_mutant_has_a_name_of_its_own_and_changes_the_spec(spec: Spec) -> None:
    mutants = list(of_spec(spec))
    assert len(set(mutants)) == len(mutants)
    assert {m.kind for m in mutants} == set(KINDS) - {"step"}
    for mutant in mutants:
        assert mutated(spec, mutant) is not spec, mutant


def test_each_guard_update_fair_unit_and_gate_term_is_there(spec: Spec) -> None:
    count = Counter(m.kind for m in of_spec(spec))
    assert count["update"] == sum(len(a.updates) for a in spec.actions)
    assert count["fairness"] == len(spec.fair_units)
    names = {str(m) for m in of_spec(spec)}
    assert "guard Continue: drop ~update_waiting" in names
    assert "guard FlushGranted: drop gate flush" in names
    assert "guard FlushRefused: drop ~gate flush" in names
    assert "gate deferred_flush: drop waiting = 0" in names
    assert "gate deferred_flush: weaken waiting = 0" in names
    # 16 terms and 14 of them counters; the last one of `flush` is a conditional.
    assert (
        sum(m.place == "flush" for m in of_spec(spec) if m.kind == "gate")
        == len(spec.definitions["flush"].children()) * 2 - 1
    )


def test_an_update_less(spec: Spec) -> None:
    found = mutated(spec, Mutant("update", "ArriveLate", "late unchanged"))
    changed = [(a, b) for a, b in zip(spec.actions, found.actions, strict=True) if a is not b]
    ((before, after),) = changed
    assert before.updates.keys() - after.updates.keys() == {"late"}
    assert after.guard.eq(before.guard)


def test_a_gate_less_one_term_is_less_everywhere(spec: Spec) -> None:
    found = mutated(spec, Mutant("gate", "flush", "drop backup_ready = 0"))
    changed = {a.name for a, b in zip(found.actions, spec.actions, strict=True) if a is not b}
    assert changed == {"FlushGranted", "FlushRefused", "UpdateFlushed", "UpdateRefused"}
    solver = z3.Solver()
    kept = z3.And(*(p for p in spec.definitions["flush"].children() if "backup_ready" not in str(p)))
    solver.add(found.definitions["flush"] != kept)
    assert solver.check() == z3.unsat
    assert found.definitions["deferred_flush"].eq(spec.definitions["deferred_flush"])
    for name in changed:
        assert "backup_ready" not in str(found.action(name).guard), name


def test_weaker_is_weaker(spec: Spec) -> None:
    found = mutated(spec, Mutant("gate", "deferred_flush", "weaken waiting = 0"))
    strong, weak = spec.definitions["deferred_flush"], found.definitions["deferred_flush"]
    for left, right, verdict in ((strong, weak, z3.unsat), (weak, strong, z3.sat)):
        solver = z3.Solver()
        solver.add(spec.naturals, left, z3.Not(right))
        assert solver.check() == verdict


def test_a_step_less() -> None:
    mutants = list(of_profile(PROFILE, PLACE))
    assert [str(m) for m in mutants if "paused" in m.place] == [
        "step loops.normal.paused: drop 1 reap",
        "step loops.normal.paused: drop 2 record",
    ]
    less = mutated_profile(PROFILE, PLACE, mutants[0])
    assert less.loops["normal"].paused == ("record",)
    assert less.loops["normal"].running == PROFILE.loops["normal"].running
    assert less.loops["overlap"] == PROFILE.loops["overlap"]
    less = mutated_profile(PROFILE, PLACE, Mutant("step", "pause.retract", "drop 2 requeue"))
    assert less.pause["retract"].steps == ("process",)


def test_what_a_spec_does_not_have_is_no_mutant_of_it(spec: Spec) -> None:
    for mutant in (
        Mutant("update", "Nobody", "late unchanged"),
        Mutant("update", "Arrive", "late unchanged"),
        Mutant("guard", "Arrive", "drop paused"),
        Mutant("gate", "flush", "drop late = 0"),
        Mutant("gate", "nowhere", "drop late = 0"),
        Mutant("fairness", "Arrive", "none"),
    ):
        assert mutated(spec, mutant) is spec, mutant
