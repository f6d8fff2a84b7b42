"""The command `checker replay`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from checker.completion import files
from checker.options import json_option, profile_option
from checker.replay.differences import DIFFERENCES
from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_REFUTED, EXIT_UNKNOWN
from spec.errors import UnknownNameError

if TYPE_CHECKING:
    from engine_hooks.trace import TraceHeader
    from spec.profile import Profile


def _differences(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in (*DIFFERENCES, "all") if name.startswith(incomplete)]


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", shell_complete=files)
@profile_option
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Let pass a known difference from the spec; or `all`.",
    shell_complete=_differences,
)
@click.option("--open", "open_", is_flag=True, help="Take a trace without an end as far as it goes.")
@click.option("--coverage", is_flag=True, help="Also say which actions and states the traces show.")
@json_option
@click.pass_context
def replay(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    paths: tuple[str, ...],
    profile: str | None,
    allowed: tuple[str, ...],
    open_: bool,  # noqa: FBT001 - click passes flags by name
    coverage: bool,  # noqa: FBT001 - as above
    as_json: bool,  # noqa: FBT001 - as above
) -> None:
    """Say whether the spec allows what the traces of engines show, and explain the first step that it does not.

    A FILE is a trace (QUIESCE_TRACE), a part of one, or a folder of them; ranks of one engine are compared.

    Exit codes: 0 accepted, 1 some trace diverges, 2 no trace or not as it was written, 3 cannot tell.
    """
    import msgspec  # noqa: PLC0415 - the help needs none of this

    from checker.replay.align import alignments  # noqa: PLC0415
    from checker.replay.reading import traces  # noqa: PLC0415
    from checker.replay.results import ACCEPTED, DIVERGES, SCHEMA, UNKNOWN, Report  # noqa: PLC0415
    from checker.replay.run import Judges, Options  # noqa: PLC0415
    from checker.replay.run import replay as run  # noqa: PLC0415
    from checker.replay.show import lines  # noqa: PLC0415

    reporter = TerminalReporter()
    options = Options(coverage, open_, lambda n: reporter.working(f"{n:,} lines …"))
    judges = Judges(_loader(profile), _chosen(allowed))
    found = traces([Path(path) for path in paths])
    replayed = [run(trace, judges, options) for trace in found]
    aligned = alignments(found, open_=open_)
    verdicts = [*(one.verdict for one in replayed), *(one.verdict for one in aligned)]
    verdict = next((v for v in (DIVERGES, UNKNOWN) if v in verdicts), ACCEPTED)
    report = Report(SCHEMA, verdict, replayed, aligned)
    reporter.finish()
    if as_json:
        reporter.data(msgspec.json.encode(report).decode())
    else:
        for line in lines(report):
            reporter.result(line)
    ctx.exit({ACCEPTED: EXIT_PROVED, DIVERGES: EXIT_REFUTED, UNKNOWN: EXIT_UNKNOWN}[verdict])


def _chosen(names: tuple[str, ...]) -> frozenset[str]:
    for name in names:
        if name not in DIFFERENCES and name != "all":
            raise UnknownNameError("difference", name, (*DIFFERENCES, "all"))
    return frozenset(DIFFERENCES) if "all" in names else frozenset(names)


def _loader(named: str | None) -> Callable[[TraceHeader], Profile]:
    """The profile of a trace: see `profile_name`; or the one that the command names. With the header's remedies."""
    from checker.replay.profiles import profile_name  # noqa: PLC0415
    from engine_hooks.sglang.remedies import REMEDIES  # noqa: PLC0415
    from spec.profile import load_profile  # noqa: PLC0415

    known: dict[tuple[str, tuple[str, ...]], Profile] = {}

    def load(header: TraceHeader) -> Profile:
        name = named if named is not None else profile_name(header)
        key = (name, header.remedies)
        if key not in known:
            profile = load_profile(name)
            # A hook that this profile has no difference for changes nothing that it says: it has no grammars, say.
            unknown = [r for r in header.remedies if r not in REMEDIES]
            if unknown:
                raise UnknownNameError("remedy", unknown[0], REMEDIES)
            said = [r for r in header.remedies if r in profile.remedies or r in profile.variants]
            known[key] = profile.with_remedies(said) if said else profile
        return known[key]

    return load
