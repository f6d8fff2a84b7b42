"""The report of `checker verify` for people: a table for each loop, the refutations with their reasons, the sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from checker.results import EngineInfo, Report, Result
from spec.profile import DEFAULT_PROFILE

_WORDS = {"proved": "proved", "refuted": "REFUTED", "bounded": "bounded", "unknown": "unknown", "not-applicable": "-"}


def lines(report: Report) -> Iterator[str]:
    """The whole report, line by line, without colour."""
    engine = report.engine
    remedies = ", ".join(engine.remedies) or "none"
    yield f"{engine.name} {engine.version}, profile {engine.profile} ({engine.source}), remedies: {remedies}"
    yield f"spec {report.spec_digest}, {report.solver}, seed {report.seed}"
    for loop in dict.fromkeys(r.loop for r in report.results):
        yield ""
        yield from _table(loop, [r for r in report.results if r.loop == loop])
    yield ""
    yield from _refuted(report.results, engine)
    yield from _unknown(report.results)
    yield _sum(report)
    kept = sum(r.kept for r in report.results)
    if kept:
        found = "1 was" if kept == 1 else f"{kept} were"
        yield f"{found} found by an earlier search and checked in full now; --anew searches again"


def _table(loop: str, results: Sequence[Result]) -> Iterator[str]:
    columns = list(dict.fromkeys(_column(r) for r in results))
    width = max(len(r.property) for r in results)
    widths = [max(len(mode), len(storage), 7) for mode, storage in columns]
    head = (f"loop {loop}", *("  storage", ""))
    yield f"{head[0]:<{width}}  " + "  ".join(f"{m:<{w}}" for (m, _), w in zip(columns, widths, strict=True)).rstrip()
    yield f"{head[1]:<{width}}  " + "  ".join(f"{s:<{w}}" for (_, s), w in zip(columns, widths, strict=True)).rstrip()
    cells = {(r.property, _column(r)): _WORDS[r.verdict] for r in results}
    for name in dict.fromkeys(r.property for r in results):
        row = "  ".join(f"{cells.get((name, c), '?'):<{w}}" for c, w in zip(columns, widths, strict=True))
        yield f"{name:<{width}}  {row}".rstrip()


def _column(result: Result) -> tuple[str, str]:
    return str(result.configuration["mode"]), str(result.configuration["storage"])


def _refuted(results: Sequence[Result], engine: EngineInfo) -> Iterator[str]:
    found = [r for r in results if r.verdict == "refuted"]
    for name in dict.fromkeys(r.property for r in found):
        yield f"{name} is refuted:"
        reasons = Counter(r.reason for r in found if r.property == name)
        for reason, count in reasons.items():
            yield f"  {reason} ({count} configuration{'s' if count > 1 else ''})"
    if found:
        options = "" if engine.profile == DEFAULT_PROFILE else f" --profile {engine.profile}"
        options += "".join(f" --remedy {name}" for name in engine.remedies)
        yield ""
        yield f"the story of one: checker explain PROPERTY{options}"
        yield ""


def _unknown(results: Sequence[Result]) -> Iterator[str]:
    for r in results:
        if r.verdict in ("unknown", "bounded"):
            where = ", ".join(f"{k} {v}" for k, v in r.configuration.items())
            yield f"{r.property} is {r.verdict} (loop {r.loop}, {where}): {r.reason}"


def _sum(report: Report) -> str:
    counts = Counter(r.verdict for r in report.results)
    order = ("proved", "refuted", "bounded", "unknown", "not-applicable")
    shown = {"not-applicable": f"not-applicable ({_WORDS['not-applicable']})"}
    total = ", ".join(f"{counts[v]} {shown.get(v, v)}" for v in order if counts[v])
    note = "" if report.complete else "; interrupted, the rest was not decided"
    return f"{total or 'nothing decided'}{note}"
