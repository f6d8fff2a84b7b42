"""Counterexamples as ITF traces, read back by itf-py, a reader that is not ours."""

from __future__ import annotations

import json
from dataclasses import replace

import itf_py
import pytest

from checker.confirm import Confirmed
from checker.export.chosen import ExportError, Selection
from checker.export.itf import as_itf, trace
from checker.workbench import Workbench
from spec.profile import Configuration, load_profile
from spec.properties import catalogue

PROFILE = load_profile("sglang-0.5.23")
CASES = {
    "a stuck region": ("paused-flush-succeeds", Configuration("normal", "retract", "file")),
    "a followed request": ("abort-answered", Configuration("overlap", "retract", "none")),
    "a step": ("no-stale-kv", Configuration("normal", "in_place", "none")),
    "a lasso": ("ledgers-drain", Configuration("normal", "retract", "none")),
}


def confirmed(property_id: str, place: Configuration) -> tuple[Workbench, Confirmed]:
    bench = Workbench(PROFILE, place)
    runs = [d.confirmed for d in bench.decide(catalogue()[property_id])]
    return bench, next(run for run in runs if run is not None)


@pytest.mark.parametrize("case", CASES)
def test_states_read_back_are_those_of_the_interpreter(case: str) -> None:
    property_id, place = CASES[case]
    bench, run = confirmed(property_id, place)
    text = trace(Selection(PROFILE, place, (property_id,)))
    found = itf_py.trace_from_json(json.loads(text))
    spec = bench.subject(follow_request=catalogue()[property_id].needs_request).spec
    assert found.vars == [v.name for v in spec.variables]
    assert found.loop == run.loop_from
    assert [dict(s.values) for s in found.states] == [dict(run.initial), *(dict(s.state) for s in run.steps)]
    assert [s.meta["index"] for s in found.states] == list(range(len(run.steps) + 1))
    assert [s.meta["action"] for s in found.states[1:]] == [s.action for s in run.steps]


def test_states_read_back_replay_step_by_step() -> None:
    property_id, place = CASES["a stuck region"]
    bench, _ = confirmed(property_id, place)
    runner = bench.subject(follow_request=False).interpreter
    found = itf_py.trace_from_json(json.loads(trace(Selection(PROFILE, place, (property_id,)))))
    for before, after in zip(found.states, found.states[1:], strict=False):
        name, choices = after.meta["action"], after.meta["choices"]
        assert runner.legal(dict(before.values), name, choices)
        assert runner.apply(dict(before.values), name, choices) == dict(after.values)


def test_a_state_that_was_changed_is_seen() -> None:
    bench, run = confirmed(*CASES["a step"])
    last = run.steps[-1]
    broken = replace(run, steps=(*run.steps[:-1], replace(last, state={**last.state, "running": 99})))
    found = itf_py.trace_from_json(dict(as_itf(bench.subject(follow_request=False).spec, broken, "broken")))
    assert dict(found.states[-1].values) != dict(last.state)


def test_large_numbers_are_exact() -> None:
    bench, run = confirmed(*CASES["a step"])
    large = 2**63 + 1
    grown = replace(run, initial={**run.initial, "running": large})
    text = json.dumps(as_itf(bench.subject(follow_request=False).spec, grown, "large"))
    assert itf_py.trace_from_json(json.loads(text)).states[0].values["running"] == large


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (("requests-conserved",), "is proved in"),
        (("pages-conserved",), "has no meaning in"),
        ((), "give one --property"),
        (("no-stale-kv", "versions-agree"), "give one --property"),
    ],
)
def test_without_a_counterexample_it_says_why(properties: tuple[str, ...], says: str) -> None:
    with pytest.raises(ExportError, match=says):
        trace(Selection(PROFILE, Configuration("normal", "retract", "none"), properties))
