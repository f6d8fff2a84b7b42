"""`checker export --itf`: the counterexample of a refuted property as a trace in Apalache's Informal Trace Format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from checker.confirm import Confirmed
from checker.decide.decided import Decided
from checker.export.chosen import ExportError, Selection
from checker.proof.interpreter import Value
from checker.proof.system import Limits
from checker.verdict import Verdict, worst
from checker.workbench import Workbench
from spec.tla import Spec

FORMAT = "https://apalache-mc.org/docs/adr/015adr-trace.html"


def trace(selection: Selection, seed: int = 0) -> str:
    """The JSON of the counterexample. Raises ExportError where there is none."""
    if len(selection.properties) != 1:
        raise ExportError("--itf writes one counterexample: give one --property")
    (prop,) = selection.properties_chosen
    bench = Workbench(selection.profile, selection.configuration, Limits(seed=seed))
    reason = bench.not_applicable(prop)
    if reason is not None:
        raise ExportError(f"{prop.id} has no meaning in {selection.title}: {reason}")
    decided = bench.decide(prop)
    run = next((d.confirmed for d in decided if d.confirmed is not None), None)
    if run is None:
        raise ExportError(_no_counterexample(selection, prop.id, decided))
    spec = bench.subject(follow_request=prop.needs_request).spec
    text = msgspec.json.encode(as_itf(spec, run, f"{selection.title}: {prop.id} is refuted"))
    return msgspec.json.format(text, indent=1).decode() + "\n"


def as_itf(spec: Spec, run: Confirmed, description: str) -> Mapping[str, Any]:
    """The trace as plain data. A stuck run repeats its last state, a lasso goes back to the state that `loop` names."""
    names = [v.name for v in spec.variables]
    states = [_state(0, run.initial, names, {})]
    for number, step in enumerate(run.steps, 1):
        action = spec.action(step.action)
        meta = {"action": step.action, "actor": action.actor, "engine": action.engine, "choices": dict(step.choices)}
        states.append(_state(number, step.state, names, meta))
    about = {
        "format": "ITF",
        "format-description": FORMAT,
        "source": "checker export --itf",
        "description": description,
    }
    loop = {} if run.loop_from is None else {"loop": run.loop_from}
    return {"#meta": about, "params": [], "vars": names, **loop, "states": states}


def _state(index: int, state: Mapping[str, Value], names: Sequence[str], meta: Mapping[str, Any]) -> dict[str, Any]:
    return {"#meta": {"index": index, **meta}, **{name: _value(state[name]) for name in names}}


def _value(value: Value) -> Any:  # noqa: ANN401 - JSON
    # Integers are written as Apalache writes them: JSON's own may not be exact.
    return value if isinstance(value, bool) else {"#bigint": str(value)}


def _no_counterexample(selection: Selection, property_id: str, decided: Sequence[Decided]) -> str:
    verdict = worst(d.verdict for d in decided)
    told = "proved" if verdict is Verdict.PROVED else f"{verdict.value}, not refuted"
    return f"{property_id} is {told} in {selection.title}: there is no counterexample to write"
