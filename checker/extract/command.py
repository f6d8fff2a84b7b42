"""The command `checker extract`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from checker.completion import files, folders
from checker.guide import after_extract
from checker.options import json_option
from checker.outputs import check_writable, write
from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_UNKNOWN
from spec.errors import QuiesceError, UnknownNameError

if TYPE_CHECKING:
    from checker.extract.read import Extraction

ENGINES = ("sglang",)
source_option = click.option(
    "--source",
    metavar="FOLDER",
    help="The folder of the engine's package, instead of the installed one.",
    shell_complete=folders,
)


class JsonAndOutputError(QuiesceError):
    """Both a profile in a file and JSON were asked for. Remedy: ask twice."""


@click.command()
@click.argument("engine", metavar="ENGINE")
@source_option
@json_option
@click.option(
    "-o", "--output", metavar="FILE", help="Write the profile to FILE instead of stdout.", shell_complete=files
)
@click.pass_context
def extract(ctx: click.Context, engine: str, source: str | None, as_json: bool, output: str | None) -> None:  # noqa: FBT001 - click passes flags by name
    """Read the source of ENGINE (sglang) and derive its profile; nothing of it is imported or run.

    Exits 3 where the source does not decide an entry: no verdict rests on such an entry.
    """
    import msgspec  # noqa: PLC0415 - the help needs none of this

    from checker.extract.read import extract as read  # noqa: PLC0415
    from checker.extract.results import report  # noqa: PLC0415
    from checker.extract.write import toml  # noqa: PLC0415

    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    if as_json and output is not None:
        raise JsonAndOutputError("--json and --output exclude each other: the file holds the profile as TOML")
    if output is not None:
        check_writable(output)
    reporter = TerminalReporter()
    reporter.working(f"reading the source of {engine} …")
    found = read(source)
    reporter.finish()
    if as_json:
        reporter.data(msgspec.json.encode(report(found)).decode())
    elif output is None:
        reporter.data(toml(found).rstrip("\n"))
    else:
        write(output, toml(found))
    for line in said(found):
        reporter.note(line)
    reporter.next(after_extract(found, output))
    ctx.exit(EXIT_UNKNOWN if found.unknowns else EXIT_PROVED)


def said(found: Extraction) -> list[str]:
    """What was found and what was not, on stderr: aloud, whatever goes to stdout."""
    from checker.extract.facts import told  # noqa: PLC0415 - the help needs none of this

    lines = [f"{found.name}: {len(found.facts)} facts, {len(found.unknowns)} unknown, from {found.folder}"]
    lines += [f"unknown: {u.name}: {told(u)}" for u in found.unknowns]
    return lines
