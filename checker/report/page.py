"""All that the page shows, as data. The template only lays it out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from checker.report.cases import Case, cases
from checker.report.curves import Chart, charts
from checker.report.facts import Section, profile_of, sections
from checker.report.places import Place, Source
from checker.report.statements import statements
from checker.report.table import Table, evidence, table
from checker.report.words import component, meaning, ranks
from checker.results import Report, Result, TraceStep
from checker.story import changes, ending, sentence
from spec.profile import Profile

LANES = ("client", "trainer", "tokenizer", "scheduler", "device", "storage")
_NAME = re.compile(r"[a-z][a-z_]*")


@dataclass(frozen=True)
class Value:
    """One variable of a state."""

    name: str
    value: str
    meaning: str
    changed: bool
    stuck: bool


@dataclass(frozen=True)
class Step:
    """One step. `words` are the parts of the action's name, at which a line may break."""

    number: int
    actor: str
    words: Sequence[str]
    sentence: str
    place: Place | None
    engine: str
    changes: Sequence[str]
    state: Sequence[Value]
    repeats: bool


@dataclass(frozen=True)
class Counterexample:
    """The shortest counterexample for one reason."""

    id: str
    property: str
    statement: str
    reason: str
    method: str
    evidence: str
    configurations: Sequence[str]
    where: str
    lanes: Sequence[str]
    steps: Sequence[Step]
    charts: Sequence[Chart]
    stays: bool
    ending: Sequence[str]
    mark: str = "repeats for ever"


@dataclass(frozen=True)
class Proof:
    """How a property is proved, and where. Each rank is its components, the first weighs most, each with its words."""

    id: str
    property: str
    statement: str
    methods: str
    reason: str
    ranks: Sequence[Sequence[tuple[str, str]]]
    invariant: Sequence[str]
    where: str
    configurations: Sequence[str]


@dataclass(frozen=True)
class Open:
    """What is neither proved nor refuted, and why."""

    property: str
    verdict: str
    reason: str
    configurations: Sequence[str]


@dataclass(frozen=True)
class Page:
    """The page."""

    report: Report
    counts: Sequence[tuple[str, int]]
    table: Table
    counterexamples: Sequence[Counterexample]
    proofs: Sequence[Proof]
    names: Sequence[tuple[str, str]]
    """The variables of the invariants, in words."""
    open: Sequence[Open]
    facts: Sequence[Section]
    no_facts: str


def page(report: Report, source: Source, given: Profile | None = None) -> Page:
    """The page of a report; `given` is its profile, where the report cannot name it itself."""
    said = statements(report.results)
    order = list(said)
    wrong, right = (
        sorted(cases(report.results, verdict), key=lambda c: order.index(c.telling.property))
        for verdict in ("refuted", "proved")
    )
    targets = {id(r): f"c{i}" for i, case in enumerate(wrong, 1) for r in case.results}
    targets |= {id(r): f"p{i}" for i, case in enumerate(right, 1) for r in case.results}
    lanes = _lanes(wrong)
    profile = profile_of(report, given)
    counted = Counter(r.verdict for r in report.results)
    return Page(
        report=report,
        counts=[(v, counted[v]) for v in ("proved", "refuted", "bounded", "unknown", "not-applicable") if counted[v]],
        table=table(report, said, targets),
        counterexamples=[_counterexample(f"c{i}", c, said, lanes, source) for i, c in enumerate(wrong, 1)],
        proofs=[_proof(f"p{i}", c, said) for i, c in enumerate(right, 1)],
        names=_names(case.telling for case in right),
        open=[_open(c) for c in cases(report.results, "unknown", "bounded", "not-applicable")],
        facts=sections(profile, source) if isinstance(profile, Profile) else [],
        no_facts="" if isinstance(profile, Profile) else profile,
    )


def _lanes(wrong: Sequence[Case]) -> list[str]:
    """The lanes in use, the same in all counterexamples: who acts comes first, whom it reaches last."""
    traces = [case.telling.trace for case in wrong]
    actors = dict.fromkeys(step.actor for trace in traces if trace for step in trace.steps)
    # The lanes that a reader expects are there even where nothing happens in them.
    return [*(LANES if actors else ()), *(a for a in actors if a not in LANES)]


def _counterexample(
    id_: str, case: Case, said: Mapping[str, str], lanes: Sequence[str], source: Source
) -> Counterexample:
    result = case.telling
    trace = result.trace
    states = [step.state for step in trace.steps] if trace else []
    return Counterexample(
        id=id_,
        property=result.property,
        statement=said[result.property],
        reason=result.reason,
        method=result.method,
        evidence=evidence(result),
        configurations=case.places,
        where=case.places[case.results.index(result)],
        lanes=lanes,
        steps=_steps(result, source),
        charts=charts([{}, *states], result.ledger) if states else [],
        stays=trace is not None and trace.loop_from is not None,
        ending=[line.strip() for line in ending(result) if line],
    )


def _steps(result: Result, source: Source) -> list[Step]:
    trace = result.trace
    if trace is None:
        return []
    repeats = trace.loop_from if trace.loop_from is not None else len(trace.steps)
    befores: list[Mapping[str, int | bool]] = [{}, *(step.state for step in trace.steps)]
    return [
        _step(number, step, before, result, source, repeats=number > repeats)
        for number, step, before in zip(count(1), trace.steps, befores, strict=False)
    ]


def _step(  # noqa: PLR0913 - a step is told from all of these
    number: int, step: TraceStep, before: Mapping[str, int | bool], result: Result, source: Source, *, repeats: bool
) -> Step:
    ledger = f"{result.ledger}_" if result.ledger and result.trace and result.trace.loop_from is not None else None
    state = [
        Value(
            name, _shown(value), meaning(name), value != before.get(name, 0), bool(ledger and name.startswith(ledger))
        )
        for name, value in sorted(step.state.items())
    ]
    words = re.findall(r"[A-Z]?[^A-Z]+|[A-Z]", step.action.split("(")[0])
    told = sentence(step, result)
    changed = list(changes(before, step.state))
    return Step(number, step.actor, words, told, source.place(step.engine), step.engine, changed, state, repeats)


def _shown(value: int | bool) -> str:  # noqa: FBT001 - a value of a state
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _proof(id_: str, case: Case, said: Mapping[str, str]) -> Proof:
    result = case.telling
    methods = ", ".join(dict.fromkeys(r.method for r in case.results))
    told = [[(part, component(part)) for part in rank] for rank in ranks(result.reason)]
    return Proof(
        id=id_,
        property=result.property,
        statement=said[result.property],
        methods=methods,
        reason=result.reason,
        ranks=told,
        invariant=result.invariant,
        where=case.places[case.results.index(result)],
        configurations=case.places,
    )


def _names(proved: Iterable[Result]) -> list[tuple[str, str]]:
    """Every variable that an invariant speaks of, where it is known what it means."""
    names = {name for result in proved for lemma in result.invariant for name in _NAME.findall(lemma)}
    return [(name, meaning(name)) for name in sorted(names) if meaning(name)]


def _open(case: Case) -> Open:
    result = case.telling
    return Open(result.property, result.verdict, result.reason, case.places)
