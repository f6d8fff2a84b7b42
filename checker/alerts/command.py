"""The command `checker rules`."""

from __future__ import annotations

from pathlib import Path

import click

from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_REFUTED
from spec.errors import QuiesceError


class ToolsMissingError(QuiesceError):
    """The libraries that rules are written with are not installed. Remedy: the command in the text."""


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; name what is out of date (exit code 1).")
@click.option("--into", default="deploy", show_default=True, metavar="FOLDER", help="Where to write.")
@click.option("--runbooks", metavar="URL", help="Where the runbooks are published, for the alerts' `runbook_url`.")
@click.pass_context
def rules(ctx: click.Context, check: bool, into: str, runbooks: str | None) -> None:  # noqa: FBT001 - click passes flags by name
    """Write alert rules with their tests, runbooks and a dashboard."""
    try:
        from checker.alerts import generate  # noqa: PLC0415 - the help needs none of this
    except ModuleNotFoundError as error:
        raise ToolsMissingError(f"{error}; install what it writes with: pip install 'quiesce[alerts]'") from error
    from checker.alerts.model import Settings  # noqa: PLC0415

    settings = Settings(runbooks=runbooks) if runbooks else Settings()
    files, folder, reporter = generate.generated(settings), Path(into), TerminalReporter()
    if not check:
        generate.write(files, folder)
        reporter.result(f"{len(files)} files written below {into}")
        ctx.exit(EXIT_PROVED)
    stale = generate.out_of_date(files, folder)
    for name in stale:
        reporter.note(f"{into}/{name} is out of date; run: make generate")
    if not stale:
        reporter.result(f"{len(files)} files below {into} are up to date")
    ctx.exit(EXIT_REFUTED if stale else EXIT_PROVED)
