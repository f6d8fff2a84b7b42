"""Blocks about properties: statement, verdicts, how they are watched, incidents; and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from checker.alerts.names import violated
from checker.docs.blocks import Maker, code, table
from checker.docs.errors import DocsError
from checker.docs.incidents import Incident, incidents
from checker.docs.unwatched import UNWATCHED
from checker.docs.verdicts import Decided, Record, severity, tally
from checker.verdict import Verdict
from engine_hooks.monitor_overdue import OVERDUE
from engine_hooks.monitor_text import NEEDS
from spec.properties import Property, catalogue

FOLDER = "properties"
_METHODS: Mapping[str, tuple[str, str]] = {
    "induction": ("induction", "induction-and-lemmas.md"),
    "spacer": ("an invariant of Spacer's", "induction-and-lemmas.md"),
    "ranking": ("a rank", "ranks.md"),
    "stuck-region": ("a stuck region", "stuck-regions.md"),
    "fair-lasso": ("a fair lasso", "lassos.md"),
    "random-run": ("a random run, shrunk", "random-runs.md"),
    "shortest-run": ("a shortest run", "random-runs.md"),
    "known-run": ("a run of another configuration", "carry-over.md"),
    "bounded-search": ("a bounded search, which decides nothing", "random-runs.md"),
    "vacuous": ("a proof that says nothing", "index.md"),
    "undecided": ("a solver that gave up", "workers.md"),
    "unknown-fact": ("a fact that the source does not decide", "extraction.md"),
}
"""Method to its words, and the page of the guide that tells of it."""
_NO_METHOD = "none"
_WAITED = (
    "It is watched by an age: what has not come for longer than [`QUIESCE_PATIENCE`](../reference/environment.md), "
    "while passes went round, is counted. That is not to say that it never comes, and a loop that stands still counts "
    "nothing. "
)


def makers(record: Record) -> Mapping[str, Maker]:
    """What can be generated about properties."""
    return {
        "property": _statement,
        "verdicts": lambda name: _verdicts(record, _known(name)),
        "watched": _watched,
        "methods": lambda _: _methods(),
        "incidents": lambda name: _incidents(incidents(), _known(name)),
        "every-incident": lambda _: _every_incident(incidents()),
        "every-property": lambda folder: _every(record, folder or "."),
        "verdict-count": lambda _: _count(record),
        "watched-count": lambda _: f"They watch {len(NEEDS)} of the {len(catalogue())} properties: {code(NEEDS)}.",
    }


def check_pages(docs: Path, names: Sequence[str] | None = None) -> None:
    """Each property has a page with its blocks, and no page is of none. Raises DocsError."""
    wanted = set(names if names is not None else catalogue())
    found = {path.stem for path in (docs / FOLDER).glob("*.md")} - {"index"}
    for problem, missing in (("no page", wanted - found), ("a page, and there is no such property", found - wanted)):
        if missing:
            raise DocsError(f"{docs / FOLDER}: {problem}: {', '.join(sorted(missing))}")
    for name in sorted(wanted):
        text = (docs / FOLDER / f"{name}.md").read_text(encoding="utf-8")
        for block in ("property", "verdicts", "watched", "incidents"):
            if f"<!-- generated: {block} {name} -->" not in text:
                raise DocsError(f"{docs / FOLDER / name}.md: no block {block!r} of its property")


def _known(name: str) -> Property:
    if name not in catalogue():
        raise DocsError(f"no property {name!r}; valid names: {', '.join(catalogue())}")
    return catalogue()[name]


def _statement(name: str) -> str:
    prop = _known(name)
    kind = {"safety": "Safety", "liveness": "Liveness"}[prop.kind]
    followed = " It is said of each request: one is followed." if prop.needs_request else ""
    return f"**{kind}.** `{prop.statement}`{followed}"


def _verdicts(record: Record, prop: Property) -> str:
    lines = [
        (f"`{first.loop}`", f"`{first.mode}`", first.storage, *(_cell(run.of(prop.id)[i]) for run in record.runs))
        for i, first in enumerate(record.runs[0].of(prop.id))
    ]
    merged = [(f"{loop}", mode, storage, *cells) for loop, mode, storage, *cells in _merged(lines)]
    head = ("loop", "pause mode", "storage", *(run.name for run in record.runs))
    return "\n\n".join([table(head, merged), table(("verdict", "where", "by", "why"), _reasons(record, prop.id))])


def _merged(lines: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Lines that differ in one of loop, mode and storage only, as one."""
    rows = [tuple(line) for line in lines]
    for column in (2, 0, 1):
        found: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            found.setdefault((*row[:column], "", *row[column + 1 :]), []).append(row[column])
        rows = [(*key[:column], ", ".join(values), *key[column + 1 :]) for key, values in found.items()]
    return iter(rows)


def _cell(one: Decided) -> str:
    if one.verdict == Verdict.NOT_APPLICABLE.value:
        return "-"
    return f"**{one.verdict}**" if one.verdict == Verdict.REFUTED.value else one.verdict


def _reasons(record: Record, property_id: str) -> Iterator[Sequence[str]]:
    """Each verdict and reason once, with the runs and the methods that came to it."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for run in record.runs:
        for one in run.of(property_id):
            found.setdefault((one.verdict, one.reason), []).append((run.name, one.method))
    for verdict, reason in sorted(found, key=lambda key: (severity(key[0]), key[1])):
        runs, methods = (list(dict.fromkeys(column)) for column in zip(*found[verdict, reason], strict=True))
        how = ", ".join(_told(method) for method in methods if method != _NO_METHOD)
        where = "everywhere" if len(runs) == len(record.runs) else ", ".join(runs)
        yield verdict, where, how or "-", reason or "-"


def _told(method: str) -> str:
    if method not in _METHODS:
        raise DocsError(f"no words for the method {method!r}; valid names: {', '.join(_METHODS)}")
    words, page = _METHODS[method]
    return f"[{words}](../guide/{page})"


def _methods() -> str:
    rows = [(f"`{method}`", f"[{words}]({page})") for method, (words, page) in _METHODS.items()]
    return table(("method", "is"), rows)


def _watched(name: str) -> str:
    prop = _known(name)
    if name not in NEEDS:
        if name not in UNWATCHED:
            raise DocsError(f"{name} is not watched, and no reason is given in checker/docs/unwatched.py")
        return f"The monitor does not count it. {UNWATCHED[name]}"
    alert, needs = violated(prop.id), code(sorted(NEEDS[name]))
    return (
        f'In a running engine an episode counts one in `quiesce_violations_total{{property="{name}"}}`. '
        f"{_WAITED if name in OVERDUE else ''}"
        f"The hooks that it needs: {needs}; where one is lost, it is not checked, and `quiesce_hook_applied` says so. "
        f"Alert: `{alert}`, runbook `deploy/runbooks/{alert}.md`."
    )


def _incidents(every: Sequence[Incident], prop: Property) -> str:
    mine = [one for one in every if prop.id in one.properties]
    if not mine:
        return "None is listed in [the incidents](../incidents.md)."
    return "\n".join(f"- [{one.id}]({one.url}): {one.told} *{one.state}.*" for one in mine)


def _every_incident(every: Sequence[Incident]) -> str:
    link: Callable[[str], str] = lambda name: f"[`{name}`]({FOLDER}/{name}.md)"  # noqa: E731 - one expression
    rows = [(f"[{one.id}]({one.url})", one.told, ", ".join(map(link, one.properties)), one.state) for one in every]
    return table(("incident", "what happened", "property", "in 0.5.23"), rows)


def _every(record: Record, folder: str) -> str:
    head = ("property", *(run.name for run in record.runs))
    rows = [(f"[`{name}`]({folder}/{name}.md)", *(tally(run.of(name)) for run in record.runs)) for name in catalogue()]
    return table(head, rows)


def _count(record: Record) -> str:
    results = record.runs[0].results
    places = len({(r.loop, r.mode, r.storage) for r in results})
    loops, modes, storages = (len({getattr(r, key) for r in results}) for key in ("loop", "mode", "storage"))
    return (
        f"`{record.profile}`: {len(catalogue())} properties in {places} configurations"
        f" ({loops} loops, {modes} pause modes, {storages} kinds of storage). A number says in how many."
    )
