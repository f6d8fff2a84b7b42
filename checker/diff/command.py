"""The command `checker diff`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from checker.completion import names
from checker.guide import after_diff
from checker.options import json_option, loop_option, mode_option, property_option, workers_option
from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_REFUTED, EXIT_UNKNOWN

if TYPE_CHECKING:
    from checker.diff.facts import Facts
    from checker.diff.results import Change, DiffReport
    from checker.results import Report
    from spec.profile import Profile


@click.command()
@click.argument("a", metavar="A", shell_complete=names("profile"))
@click.argument("b", metavar="B", shell_complete=names("profile"))
@property_option
@loop_option
@mode_option
@click.option("--facts-only", is_flag=True, help="Compare the facts, and decide nothing.")
@json_option
@workers_option
@click.pass_context
def diff(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    a: str,
    b: str,
    properties: tuple[str, ...],
    loops: tuple[str, ...],
    modes: tuple[str, ...],
    facts_only: bool,  # noqa: FBT001 - click passes flags by name
    as_json: bool,  # noqa: FBT001 - as above
    workers: int | None,
) -> None:
    """Show how two profiles differ, and which verdicts change.

    A and B each name a bundled profile, a TOML file, the folder of an engine's package, or `installed`: the source of
    the installed engine is read. Exits 0 where they are alike, 1 where a fact differs.
    """
    import msgspec  # noqa: PLC0415 - the help needs none of this

    from checker.diff.facts import compare, side  # noqa: PLC0415
    from checker.diff.results import changes, report, title  # noqa: PLC0415

    profiles = side(a), side(b)
    reporter = TerminalReporter()
    facts = compare(*profiles)
    verdicts: list[Change] | None = None
    complete = True
    if facts.facts and not facts_only:
        decided = []
        for profile in profiles:
            reporter.working(f"verifying {profile.name} …")
            decided.append(_verify(profile, (properties, loops, modes), workers, reporter))
        complete = all(one.complete for one in decided)
        verdicts = changes(*decided)
    reporter.finish()
    answer = report((title(a, profiles[0]), title(b, profiles[1])), facts, verdicts, complete=complete)
    if as_json:
        reporter.data(msgspec.json.encode(answer).decode())
    else:
        for line in shown(answer, facts):
            reporter.result(line)
    reporter.next(after_diff(facts_only=facts_only, alike=answer.alike))
    if not complete:
        ctx.exit(EXIT_UNKNOWN)
    ctx.exit(EXIT_PROVED if answer.alike else EXIT_REFUTED)


def _verify(
    profile: Profile,
    chosen: tuple[Sequence[str], Sequence[str], Sequence[str]],
    workers: int | None,
    reporter: TerminalReporter,
) -> Report:
    from checker.options import source_of  # noqa: PLC0415
    from checker.verify import Request, verify  # noqa: PLC0415

    properties, loops, modes = (tuple(names) for names in chosen)
    request = Request(profile, source_of(profile), properties, loops, modes)
    request = replace(request, workers=workers) if workers else request
    return verify(request, partial(reporter.progress))


def shown(answer: DiffReport, facts: Facts) -> Iterator[str]:
    """What a person reads."""
    yield f"A  {answer.a}"
    yield f"B  {answer.b}"
    if answer.alike:
        yield f"alike{f'; {len(facts.places)} name another function for the same fact' if facts.places else ''}"
    for one in facts.facts:
        yield ""
        yield one.key
        yield f"  A  {_value(one.a)}"
        yield f"  B  {_value(one.b)}"
    if answer.verdicts is not None:
        yield ""
        yield from _verdicts(answer.verdicts)
    if not answer.complete:
        yield "interrupted: there may be more"


def _verdicts(verdicts: Sequence[Change]) -> Iterator[str]:
    yield f"{len(verdicts)} verdict{'' if len(verdicts) == 1 else 's'} differ{'s' if len(verdicts) == 1 else ''}"
    grouped: dict[tuple[str, str, str, str], list[str]] = {}
    for one in verdicts:
        place = f"{one.loop}/{one.configuration['mode']}/{one.configuration['storage']}"
        grouped.setdefault((one.property, one.a, one.b, one.reason), []).append(place)
    for (property_id, a, b, reason), places in grouped.items():
        yield f"  {property_id}: {a} -> {b} in {', '.join(places)}"
        if reason:
            yield f"    {reason}"


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "; ".join(", ".join(f"{k} {v}" for k, v in one.items()) for one in value)
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, list) else str(value)
