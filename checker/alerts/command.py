"""The command `checker rules`."""

from __future__ import annotations

from pathlib import Path

import click

from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_REFUTED
from spec.errors import QuiesceError


class ToolsMissingError(QuiesceError):
    """The libraries that rules are written with are not installed. Remedy: the command in the text."""


_HELP = """Write alert rules with their tests, runbooks and a dashboard.

\b
Durations, with their defaults:
  recent=5m     an event (a violation, a failed update) is shown for so long
  settle=2m     a state that an update passes through may last so long
  unwatched=5m  something may be unwatched for so long
  paused=15m    a pause may last so long
  update=10m    a weight update may take so long
  slack=1m      a pause or an update is over its limit for so long at first
  check=0.5ms   the checks of one pass may take so long
"""


@click.command(help=_HELP)
@click.option("--check", is_flag=True, help="Write nothing; name what is out of date (exit code 1).")
@click.option("--into", default="deploy", show_default=True, metavar="FOLDER", help="Where to write.")
@click.option("--runbooks", metavar="URL", help="Where the runbooks are published, for the alerts' `runbook_url`.")
@click.option(
    "--duration",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A duration of the alerts, e.g. paused=30m; may be repeated. Names and defaults are above.",
)
@click.pass_context
def rules(ctx: click.Context, check: bool, into: str, runbooks: str | None, given: tuple[str, ...]) -> None:  # noqa: FBT001 - click passes flags by name
    """Write alert rules with their tests, runbooks and a dashboard."""
    try:
        from checker.alerts import generate  # noqa: PLC0415 - the help needs none of this
    except ModuleNotFoundError as error:
        raise ToolsMissingError(
            f"{error}; install what it writes with: in the checkout, pip install '.[alerts]'"
        ) from error
    from checker.alerts.durations import durations  # noqa: PLC0415
    from checker.alerts.model import Settings  # noqa: PLC0415

    settings = Settings(runbooks or Settings.runbooks, durations(given))
    files, folder, reporter = generate.generated(settings), Path(into), TerminalReporter()
    if not check:
        generate.write(files, folder)
        reporter.result(f"{len(files)} files written below {into}")
        ctx.exit(EXIT_PROVED)
    stale = generate.out_of_date(files, folder)
    for name in stale:
        reporter.note(f"{into}/{name} is out of date; run the same command without --check")
    if not stale:
        reporter.result(f"{len(files)} files below {into} are up to date")
    ctx.exit(EXIT_REFUTED if stale else EXIT_PROVED)
