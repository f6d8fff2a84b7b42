"""SARIF 2.1.0: what is wrong, as code scanners show it. The code flow is the counterexample, step by step.

Only what needs a person is a result: `fail` for a refutation, `open` for what is unknown or only bounded. What is
proved would be of kind `pass`, but code scanning at GitHub shows every result as an alert, whatever its kind; how many
are proved stands in the run's properties. Every result has a location, which GitHub asks for too.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from urllib.parse import quote

from checker.report.cases import Case, cases
from checker.report.places import Source
from checker.report.statements import statements
from checker.results import Report, Result, TraceStep
from checker.story import changes, ending, sentence

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "ENGINE"
Json = dict[str, object]


@dataclass(frozen=True)
class Writer:
    """Where the engine's source is, and the functions of its loops: the place of a result that has no other."""

    source: Source
    loops: Mapping[str, str] = field(default_factory=dict)

    def text(self, report: Report) -> str:
        """The file."""
        log: Json = {"$schema": SCHEMA, "version": "2.1.0", "runs": [self._run(report)]}
        return json.dumps(log, indent=1, ensure_ascii=True) + "\n"

    def _run(self, report: Report) -> Json:
        engine = report.engine
        wrong = cases(report.results, "refuted", "unknown", "bounded")
        base = {"description": _message(f"the folder of the package {engine.name}, version {engine.version}")}
        return {
            "tool": {"driver": _driver(report)},
            "originalUriBaseIds": {_BASE: base},
            "invocations": [_invocation(report)],
            "results": [self._result(case) for case in wrong],
            "properties": {
                "profile": engine.profile,
                "remedies": list(engine.remedies),
                "specDigest": report.spec_digest,
                "solver": report.solver,
                "seed": report.seed,
                "verdict": report.verdict,
                "verdicts": dict(Counter(r.verdict for r in report.results)),
            },
        }

    def _result(self, case: Case) -> Json:
        result = case.telling
        refuted = result.verdict == "refuted"
        count = len(case.results)
        configurations = f"{count} configuration{'s' if count > 1 else ''}: {'; '.join(case.places)}"
        said = result.reason if refuted else f"{result.verdict}: {result.reason}"
        found: Json = {
            "ruleId": result.property,
            "kind": "fail" if refuted else "open",
            "level": "error" if refuted else "none",
            "message": _message(f"{result.property}: {said} ({configurations})"),
            "locations": [self._location(self._where(result))],
            "partialFingerprints": {"quiesce/v1": _fingerprint(case)},
            "properties": {"method": result.method, "scope": result.scope, "ledger": result.ledger},
        }
        if result.trace is not None:
            found["codeFlows"] = [{"threadFlows": [{"locations": self._flow(result)}]}]
        return found

    def _where(self, result: Result) -> str:
        """The engine's function to look at: the one that would have had to run, else that of the last step."""
        last = result.trace.steps[-1].engine if result.trace and result.trace.steps else ""
        named = (result.engine_function, last, self.loops.get(result.loop))
        return next((name for name in named if name and self.source.place(name)), result.loop)

    def _flow(self, result: Result) -> list[Json]:
        flow = []
        before: Mapping[str, int | bool] = {}
        trace = result.trace
        for number, step in enumerate(trace.steps if trace else (), 1):
            said = self._said(step, result, before)
            repeats = trace is not None and trace.loop_from is not None and number > trace.loop_from
            flow.append(self._step(number, step.engine, said, step.state, essential=repeats))
            before = step.state
        if stuck := " ".join(line.strip() for line in ending(result) if line):
            place = result.engine_function or self._where(result)
            flow.append(self._step(len(flow) + 1, place, stuck, before, essential=True))
        return flow

    @staticmethod
    def _said(step: TraceStep, result: Result, before: Mapping[str, int | bool]) -> str:
        changed = ", ".join(changes(before, step.state))
        return f"{step.actor}: {sentence(step, result)}" + (f" [{changed}]" if changed else "")

    def _step(self, number: int, engine: str, said: str, state: Mapping[str, int | bool], *, essential: bool) -> Json:
        return {
            "executionOrder": number,
            "location": {**self._location(engine), "message": _message(said)},
            "state": {name: _message(str(value)) for name, value in state.items()},
            "importance": "essential" if essential else "important",
        }

    def _location(self, reference: str) -> Json:
        place = self.source.place(reference)
        if place is None:
            return {"logicalLocations": [{"fullyQualifiedName": reference}]}
        physical: Json = {"artifactLocation": {"uri": quote(place.file), "uriBaseId": _BASE}}
        if place.line:
            physical["region"] = {"startLine": place.line}
        location: Json = {"physicalLocation": physical}
        if place.name:
            location["logicalLocations"] = [{"name": place.name, "fullyQualifiedName": f"{place.file}:{place.name}"}]
        return location


def _message(text: str) -> Json:
    return {"text": text}


def _driver(report: Report) -> Json:
    rules = [
        {"id": name, "shortDescription": _message(statement), "defaultConfiguration": {"level": "error"}}
        for name, statement in statements(report.results).items()
    ]
    return {"name": "quiesce", "version": version("quiesce"), "rules": rules}


def _invocation(report: Report) -> Json:
    """A run that was interrupted, or that left something open, says so also to those that skip what is `open`."""
    open_ = sum(r.verdict in ("unknown", "bounded") for r in report.results)
    said = [f"{open_} results are unknown or only bounded: not proved"] if open_ else []
    if not report.complete:
        said.append("interrupted; the rest was not decided")
    notes = [{"level": "error", "message": _message(text)} for text in said]
    return {"executionSuccessful": report.complete, "toolExecutionNotifications": notes}


def _fingerprint(case: Case) -> str:
    """The same for the same finding of another run, so that it is not shown as new."""
    result = case.telling
    said = f"{result.property}\n{result.verdict}\n{result.reason}"
    return hashlib.sha256(said.encode(errors="backslashreplace")).hexdigest()[:32]
