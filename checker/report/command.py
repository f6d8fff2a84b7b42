"""The command `checker report`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from checker.completion import files
from checker.options import (
    chosen_profile,
    engine_option,
    loop_option,
    mode_option,
    profile_option,
    property_option,
    remedy_option,
    seed_option,
    source_of,
    workers_option,
)
from checker.reporter import TerminalReporter
from checker.verdict import EXIT_REFUTED, Verdict, exit_code
from spec.errors import QuiesceError
from spec.profile import Profile, load_profile

if TYPE_CHECKING:
    from checker.report.playback import Playback
    from checker.results import Report


class ReportToolsMissingError(QuiesceError):
    """The library that the page is written with is not installed. Remedy: the command in the text."""


class AlreadyVerifiedError(QuiesceError):
    """A RESULT.json, and options that say what to verify. Remedy: give one or the other."""


@click.command()
@click.argument("file", metavar="[FILE]", required=False, shell_complete=files)
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The page, one file of HTML.",
    shell_complete=files,
)
@profile_option
@engine_option
@remedy_option
@property_option
@loop_option
@mode_option
@seed_option
@workers_option
@click.pass_context
def report(ctx: click.Context, /, file: str | None, output: str, **options: Any) -> None:  # noqa: ANN401 - as `verify` has
    """Write a page to read: the table, every counterexample step by step, the proofs, the facts.

    FILE is an answer of `checker verify --json`, a flight record of an engine (QUIESCE_RECORD), a trace of `checker
    export --itf`, or - for stdin. Without it, verify first. The exit code is that of `verify`; of a record or trace it
    is 1, since that tells a violation.
    """
    try:
        from checker.report.render import html  # noqa: PLC0415 - the help needs none of this
    except ModuleNotFoundError as error:
        raise ReportToolsMissingError(
            f"{error}; install what it writes with: in the checkout, pip install '.[report]'"
        ) from error
    from checker.outputs import check_apart, check_writable, write  # noqa: PLC0415
    from checker.report.page import page  # noqa: PLC0415
    from checker.report.places import source_of_engine  # noqa: PLC0415
    from checker.report.playback import Playback  # noqa: PLC0415

    check_writable(output)
    check_apart(("--output", output), ("FILE", None if file == "-" else file), ("--profile", options["profile"]))
    reporter = TerminalReporter()
    found, profile = _given(ctx, file, options) if file is not None else _verified(reporter, options)
    if isinstance(found, Playback):
        write(output, html(found))
        reporter.result(f"{output}: {found.title}")
        reporter.next([f"open {output} in a browser"])
        ctx.exit(EXIT_REFUTED)
    write(output, html(page(found, source_of_engine(found.engine), profile)))
    reporter.result(f"{output}: {found.verdict}")
    reporter.next([f"open {output} in a browser"])
    ctx.exit(exit_code(Verdict(found.verdict)))


def _given(ctx: click.Context, file: str, options: dict[str, Any]) -> tuple[Report | Playback, Profile | None]:
    from checker.report.kinds import opened  # noqa: PLC0415
    from checker.report.load import read  # noqa: PLC0415
    from checker.report.playback import Playback  # noqa: PLC0415

    given = [name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT]
    flags = {p.name: p.opts[0] for p in ctx.command.params}
    if extra := [flags[name] for name in given if name != "profile"]:
        raise AlreadyVerifiedError(f"{file!r} is verified already; it cannot go with {', '.join(extra)}")
    found, name = opened(file, read(file)), options["profile"]
    if name is None:
        return found, None
    if isinstance(found, Playback):
        raise AlreadyVerifiedError(f"{file!r} is a {found.kind}, of what happened; it cannot go with --profile")
    return found, load_profile(name).with_remedies(found.engine.remedies)


def _verified(reporter: TerminalReporter, options: dict[str, Any]) -> tuple[Report, Profile]:
    from checker.cli import kept  # noqa: PLC0415 - the commands are registered there
    from checker.interrupts import end_at_interrupts  # noqa: PLC0415
    from checker.verify import Request, verify  # noqa: PLC0415

    profile = chosen_profile(options["profile"], options["engine"], options["remedies"])
    extra = {"workers": options["workers"]} if options["workers"] else {}
    wanted = (options["properties"], options["loops"], options["modes"])
    reporter.working(f"verifying {profile.name} …")
    found = verify(Request(profile, source_of(profile), *wanted, options["seed"], **extra), partial(kept, reporter))
    end_at_interrupts()
    reporter.finish()
    return found, profile
