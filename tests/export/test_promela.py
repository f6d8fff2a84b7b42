"""Exported Promela: spin's verdict on a small instance is ours on the spec, and both have the same reachable states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from spin_runner import COUNTING, MISSING, WHY, Spin, SpinError

from checker.confirm import over
from checker.export.chosen import Model, Selection
from checker.export.instance import Instance
from checker.export.promela import Bounds, formula, promela, unsaid
from checker.proof.interpreter import Choices, Interpreter, State
from checker.workbench import Workbench, decide_part
from spec.profile import Configuration, load_profile
from spec.properties import catalogue
from spec.tla import Fairness

needs_spin = pytest.mark.skipif(bool(MISSING), reason=WHY)
ALL, ABOUT_A_REQUEST = ([i for i, p in catalogue().items() if p.needs_request is follows] for follows in (False, True))
# A parked request goes on into a queue that has room at any length, and not in an instance whose queue is full again
# and again: a difference of the bound, not of the spec.
BOUND_BREAKS = {"RequestsReturn_parked"}
NONE_KEPT = "rejected-retrying-reap-unbounded"
CASES = [
    ("sglang-0.5.23", ("reap-while-paused",), "normal retract none", ALL),
    ("sglang-0.5.23", (), "overlap in_place none", ALL),
    ("sglang-0.5.23", (), "normal abort none", ALL),
    ("sglang-0.5.23", ("reap-while-paused",), "overlap retract none", ABOUT_A_REQUEST),
    (NONE_KEPT, (), "normal retract file", ["paused-work-ends"]),
]


def selection(profile: str, remedies: tuple[str, ...], place: str, properties: list[str]) -> Selection:
    engine = load_profile(profile).with_remedies(remedies)
    loop, mode, storage = place.split()
    return Selection(engine, Configuration(loop, mode, storage), tuple(properties))


def ours(chosen: Selection, model: Model) -> dict[str, bool]:
    """Of each claim by itself, whether it is refuted on the spec without any bound."""
    bench = Workbench(chosen.profile, chosen.configuration)
    found = {}
    for claim in model.claims:
        subject = bench.subject(follow_request=claim.of.needs_request)
        verdict = decide_part(subject, claim.part).verdict.value
        assert verdict in ("proved", "refuted"), claim.name
        found[claim.name] = verdict == "refuted"
    return found


@needs_spin
@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join([c[0], *c[1], c[2], str(len(c[3]))]))
def test_spin_gives_the_same_verdicts(case: tuple[str, tuple[str, ...], str, list[str]], tmp_path: Path) -> None:
    chosen = selection(*case)
    model = chosen.model()
    spin = Spin.of(tmp_path, model, promela(model, Bounds(2)))
    known, found = ours(chosen, model), {c.name: spin.refutes(c) for c in model.claims}
    assert {name for name in found if found[name] != known[name]} == BOUND_BREAKS & found.keys()


def picks(machine: Interpreter, state: State, name: str, bound: int) -> Iterator[Choices]:
    """Every assignment to the choices of an action, as the model picks them."""
    found: list[Choices] = [{}]
    for choice in machine.actions[name].choices:
        grown: list[Choices] = []
        for so_far in found:
            low, witness = int(choice.low(state, so_far)), int(choice.witness(state, so_far))
            top = low + bound if choice.high is None else int(choice.high(state, so_far))
            grown += [{**so_far, choice.name: value} for value in {*range(low, top + 1), witness}]
        found = grown
    yield from found


def reachable(instance: Instance) -> int:
    machine = Interpreter(instance.spec)
    fits = {a.name: over(instance.fits(a)) for a in instance.spec.actions}
    kept = [v.name for v in instance.kept]
    first = machine.initial()
    seen, todo = {tuple(first[n] for n in kept)}, [first]
    while todo:
        state = todo.pop()
        for name in machine.actions:
            for choices in picks(machine, state, name, instance.bound) if machine.enabled(state, name) else ():
                after = machine.apply(state, name, choices)
                key = tuple(after[n] for n in kept)
                if key not in seen and fits[name](state, after):
                    seen.add(key)
                    todo.append(after)
    return len(seen)


COUNTED = [
    ("normal retract none", "control-answered", 1),
    ("normal retract none", "control-answered", 2),
    ("overlap in_place none", "ledgers-drain", 1),
    ("normal retract file", "control-answered", 1),
]


@needs_spin
@pytest.mark.parametrize(("place", "property_id", "bound"), COUNTED)
def test_both_have_the_same_states(place: str, property_id: str, bound: int, tmp_path: Path) -> None:
    model = selection("sglang-0.5.23", ("reap-while-paused",), place, [property_id]).model()
    expected = reachable(Instance(model.spec, model.claims, bound))
    assert expected > 50
    assert Spin.of(tmp_path, model, promela(model, Bounds(bound)), *COUNTING).states() == expected


@needs_spin
def test_another_model_has_other_states(tmp_path: Path) -> None:
    model = selection("sglang-0.5.23", (), "normal retract none", ["control-answered"]).model()
    text = promela(model, Bounds(1))
    right = "running = next_running"
    assert right in text
    broken = Spin.of(tmp_path, model, text.replace(right, "skip"), *COUNTING)
    assert broken.states() != reachable(Instance(model.spec, model.claims, 1))


# A transfer that need not end, a reap that retires nothing, a loop that stands still while something is cached.
BROKEN = [
    ("active proctype DeviceDone_write_through_submitted_fair", "proctype DeviceDone_write_through_submitted_fair"),
    ("load_back_ready = next_load_back_ready", "skip"),
    ("atomic { (", "atomic { (!has_host && "),
]


@needs_spin
@pytest.mark.parametrize(("old", "new"), BROKEN)
def test_a_broken_model_gives_another_verdict(old: str, new: str, tmp_path: Path) -> None:
    model = selection("sglang-0.5.23", ("reap-while-paused",), "normal retract none", ["ledgers-drain"]).model()
    text = promela(model, Bounds(2))
    assert old in text
    spin = Spin.of(tmp_path, model, text.replace(old, new))
    assert any(spin.refutes(c) for c in model.claims)


@needs_spin
def test_what_spin_rejects_is_no_verdict(tmp_path: Path) -> None:
    model = selection("sglang-0.5.23", (), "normal retract none", ["versions-agree"]).model()
    with pytest.raises(SpinError, match="exit code"):
        Spin.of(tmp_path, model, promela(model, Bounds(1)).replace("proctype", "procedure"))


def test_strong_fairness_is_said_to_be_missing() -> None:
    model = selection("sglang-0.5.23", (), "normal retract none", ["control-answered"]).model()
    assert unsaid(model) == []
    actions = [replace(a, fairness=Fairness.STRONG) if a.fairness is Fairness.WEAK else a for a in model.spec.actions]
    strong = replace(model, spec=replace(model.spec, actions=tuple(actions)))
    assert "STRONG FAIRNESS of EventLoop is taken as weak" in promela(strong, Bounds(1))
    assert len(unsaid(strong)) == len(model.spec.fair_units)


def test_counters_that_only_rise_are_no_part_of_a_state() -> None:
    model = selection("sglang-0.5.23", (), "normal retract file", ["no-forward-while-paused"]).model()
    found = Instance(model.spec, model.claims, 2)
    assert [v.name for v in found.forgotten] == ["forwards"]
    assert found.caps == {"prefetch_budget": 16}
    other = selection("sglang-0.5.23", (), "normal retract none", ["requests-conserved"]).model()
    assert Instance(other.spec, other.claims, 2).forgotten == []
    text = promela(model, Bounds(2))
    assert "Not kept in a state, since only rises count: forwards." in text
    assert "hidden int next_forwards;" in text
    assert "byte forwards" not in text


def test_each_claim_has_a_formula_of_its_own() -> None:
    model = selection("sglang-0.5.23", (), "normal retract none", []).model()
    names = [formula(c) for c in model.claims]
    assert len(set(names)) == len(names)
    text = promela(model, Bounds(1))
    assert all(f"ltl {name} {{" in text for name in names)
