"""The property table: rows are properties, columns are configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checker.explain import where
from checker.results import Report, Result

_SYMBOLS = {"proved": "✓", "refuted": "✗", "bounded": "≤", "unknown": "?", "not-applicable": "·"}


@dataclass(frozen=True)
class Column:
    """One configuration."""

    loop: str
    mode: str
    storage: str


@dataclass(frozen=True)
class Cell:
    """One result; `target` is where the page says more of it."""

    column: Column
    verdict: str
    symbol: str
    method: str
    evidence: str
    title: str
    target: str


@dataclass(frozen=True)
class Row:
    """One property."""

    property: str
    statement: str
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class Table:
    """All of it; `loops` are the heads over the columns, with how many each spans."""

    loops: Sequence[tuple[str, int]]
    columns: Sequence[Column]
    rows: Sequence[Row]


def evidence(result: Result) -> str:
    """The class of the evidence: the scope of a proof; whether a counterexample was run again without a solver."""
    if result.verdict == "proved":
        return result.scope
    if result.verdict == "refuted":
        return "re-run" if result.trace is not None else "not re-run"
    return result.scope if result.verdict == "bounded" else "none"


def table(report: Report, statements: Mapping[str, str], targets: Mapping[int, str]) -> Table:
    """`targets` gives the place on the page of some results, by their identity."""
    loops = list(dict.fromkeys(r.loop for r in report.results))
    columns = sorted(dict.fromkeys(_column(r) for r in report.results), key=lambda c: loops.index(c.loop))
    found = {(r.property, _column(r)): r for r in report.results}
    rows = [
        Row(name, statement, [_cell(found.get((name, c)), targets) for c in columns])
        for name, statement in statements.items()
    ]
    return Table([(loop, sum(c.loop == loop for c in columns)) for loop in loops], columns, rows)


def _column(result: Result) -> Column:
    return Column(result.loop, str(result.configuration["mode"]), str(result.configuration["storage"]))


def _cell(result: Result | None, targets: Mapping[int, str]) -> Cell | None:
    if result is None:
        return None
    shown = "" if result.method == "none" else result.method
    title = f"{where(result.configuration, result.loop)}: {result.reason}"
    symbol, target = _SYMBOLS[result.verdict], targets.get(id(result), "")
    return Cell(_column(result), result.verdict, symbol, shown, evidence(result), title, target)
