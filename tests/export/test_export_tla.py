"""Exported TLA+: it parses, it reads well, and it says of each step what the interpreter says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tla_reader import Module, faults, parse

from checker.export.chosen import ExportError, Model, Selection, configuration
from checker.export.tla import bound_name, module, operator
from checker.proof.interpreter import Interpreter, State, Step
from spec.errors import UnknownNameError
from spec.profile import Configuration, load_profile
from spec.tla import Always, EachStep, Fairness, Sort

PROFILE = load_profile("sglang-0.5.23")
GOLDEN = Path(__file__).parent / "goldens" / "founding.tla"
PLACES = ["normal retract none", "overlap retract file", "overlap in_place none", "normal abort file"]


def selected(place: Configuration, *properties: str) -> Model:
    return Selection(PROFILE, place, properties).model()


def steps(model: Model, walks: int = 3, length: int = 30) -> Iterator[tuple[State, Step]]:
    runner = Interpreter(model.spec)
    for run in runner.walks(walks, length, seed=1):
        before = runner.initial()
        for step in run:
            yield before, step
            before = dict(step.state)


def taken(read: Module, model: Model, before: State, step: Step, after: State) -> bool:
    names = {v.name for v in model.spec.variables}
    picked = {bound_name(name, names): value for name, value in step.choices.items()}
    return bool(read.evaluate(operator(step.action), before, after, picked))


@pytest.mark.parametrize("place", PLACES)
def test_every_step_of_the_interpreter_is_one_of_the_module(place: str) -> None:
    model = selected(Configuration(*place.split()))
    text = module(model)
    assert faults(parse(text)) == []
    assert max(map(len, text.splitlines())) <= 120
    read = Module(parse(text))
    assert set(read.variables()) == {v.name for v in model.spec.variables}
    assert read.evaluate("Init", model.spec.init, {}, {})
    seen = set()
    for before, step in steps(model):
        after = dict(step.state)
        assert taken(read, model, before, step, after), step.action
        # One variable off, and it is no step: nothing is left open.
        for v in () if step.action in seen else model.spec.variables:
            wrong = not after[v.name] if v.sort is Sort.BOOL else after[v.name] + 1
            assert not taken(read, model, before, step, {**after, v.name: wrong}), (step.action, v.name)
        assert read.evaluate("TypeOK", after, {}, {})
        seen.add(step.action)
    assert len(seen) > len(model.spec.actions) // 2


def test_gates_and_claims_say_what_the_spec_says() -> None:
    model = selected(Configuration("overlap", "retract", "file"))
    text = module(model)
    read, runner = Module(parse(text)), Interpreter(model.spec)
    gates = {"FlushGate": "flush", "DeferredFlushGate": "deferred_flush"}
    tests = {name: runner.holds(model.spec.definitions[gate]) for name, gate in gates.items()}
    found = {name: set() for name in gates}
    for before, _ in steps(model, walks=12):
        for name, holds in tests.items():
            assert read.evaluate(name, before, {}, {}) == holds(before)
            found[name].add(holds(before))
    assert all(values == {True, False} for values in found.values())
    for claim in model.claims:
        assert re.search(rf"^{claim.name} ==$", text, re.MULTILINE)
        kind = type(claim.claim)
        body = text.split(f"\n{claim.name} ==\n", 1)[1].split("\n\n", 1)[0].strip()
        assert body.startswith({Always: "[]", EachStep: "[]["}.get(kind, "")), claim.name


@pytest.mark.parametrize("dropped", ["waiting", "late"])
def test_a_module_of_another_spec_is_found_out(dropped: str) -> None:
    place = Configuration("normal", "retract", "none")
    model = selected(place)
    arrive = model.spec.action("ArriveLate")
    weaker = replace(arrive, updates={n: t for n, t in arrive.updates.items() if n != dropped})
    actions = tuple(weaker if a is arrive else a for a in model.spec.actions)
    read = Module(parse(module(replace(model, spec=replace(model.spec, actions=actions)))))
    late = [(b, s) for b, s in steps(model, walks=20) if s.action == "ArriveLate"]
    assert late
    assert not any(taken(read, model, before, step, dict(step.state)) for before, step in late)


def test_broken_text_is_found_out() -> None:
    text = module(selected(Configuration("normal", "retract", "none"), "versions-agree"))
    assert faults(parse(text)) == []
    for broken in (text.replace("paused' = TRUE", "paused' = = TRUE", 1), text.replace("\\E ", "\\E \\E ", 1)):
        assert faults(parse(broken))


def test_fairness_is_told_apart() -> None:
    model = selected(Configuration("normal", "retract", "none"), "control-answered")
    strong = [replace(a, fairness=Fairness.STRONG) if a.fairness is Fairness.WEAK else a for a in model.spec.actions]
    text = module(replace(model, spec=replace(model.spec, actions=tuple(strong))))
    assert "SF_vars(RunningPass \\/ PausedPass)" in text
    assert "WF_vars" not in text
    assert "WF_vars(RunningPass \\/ PausedPass)" in module(model)


def test_golden() -> None:
    text = module(selected(Configuration("normal", "retract", "none"), "paused-flush-succeeds"))
    if os.environ.get("QUIESCE_GOLDENS") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_what_cannot_be_exported_is_said() -> None:
    with pytest.raises(ExportError, match="this model has no pages"):
        selected(Configuration("normal", "retract", "none"), "pages-conserved")
    with pytest.raises(UnknownNameError, match="valid names: file, none"):
        configuration(PROFILE, None, None, "disk")
    assert configuration(PROFILE, None, None, None) == Configuration("normal", "retract", "none")
