"""The command `checker export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from checker.completion import files
from checker.guide import after_export
from checker.options import chosen_profile, engine_option, place_options, profile_option, property_option, remedy_option
from checker.outputs import check_apart, check_writable, write
from checker.reporter import TerminalReporter
from spec.errors import QuiesceError

if TYPE_CHECKING:
    from checker.export.chosen import Selection


class FormatError(QuiesceError):
    """No format was named, or several. Remedy: name one."""


@click.command()
@click.option("--tla", "formats", flag_value="tla", multiple=True, help="A TLA+ module.")
@click.option(
    "--promela", "formats", flag_value="promela", multiple=True, help="A model for spin, of a small instance."
)
@click.option(
    "--itf", "formats", flag_value="itf", multiple=True, help="The counterexample of one property, for Apalache."
)
@profile_option
@engine_option
@remedy_option
@place_options
@property_option
@click.option("--bound", type=click.IntRange(1, 100), default=2, show_default=True, help="For --promela: of counters.")
@click.pass_context
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout.", shell_complete=files)
def export(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    formats: tuple[str, ...],
    profile: str | None,
    engine: str | None,
    remedies: tuple[str, ...],
    loop: str | None,
    mode: str | None,
    storage: str | None,
    properties: tuple[str, ...],
    bound: int,
    output: str | None,
) -> None:
    """Write one configuration of the spec, or a counterexample, for another tool.

    With --property, only the part of the spec on which it depends.
    """
    from checker.export.chosen import Selection, configuration  # noqa: PLC0415 - the help needs none of this

    if len(formats) != 1:
        raise FormatError("name one format: --tla, --promela or --itf")
    if formats[0] != "promela" and ctx.get_parameter_source("bound") is ParameterSource.COMMANDLINE:
        raise FormatError(f"--bound is for --promela; --{formats[0]} has no bounds: leave it out")
    if output is not None:
        check_writable(output)
        check_apart(("--output", output), ("--profile", profile))
    chosen = chosen_profile(profile, engine, remedies)
    selection = Selection(chosen, configuration(chosen, loop, mode, storage), tuple(dict.fromkeys(properties)))
    reporter = TerminalReporter()
    reporter.working(f"{selection.title} …")
    text = _text(formats[0], selection, bound)
    reporter.finish()
    if output is None:
        reporter.data(text.rstrip("\n"))
        return
    write(output, text)
    reporter.next(after_export(formats[0], output))


def _text(wanted: str, selection: Selection, bound: int) -> str:
    if wanted == "tla":
        from checker.export.tla import module  # noqa: PLC0415

        return module(selection.model())
    if wanted == "itf":
        from checker.export.itf import trace  # noqa: PLC0415

        return trace(selection)
    from checker.export.promela import Bounds, promela, unsaid  # noqa: PLC0415

    model = selection.model()
    for line in unsaid(model):
        TerminalReporter().note(f"checker: {line}")
    return promela(model, Bounds(bound))
