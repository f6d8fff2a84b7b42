"""The command `checker doctor`."""

from __future__ import annotations

import math
from typing import Any

import click

from checker.reporter import TerminalReporter


class Seconds(click.FloatRange):
    """A number of seconds: NaN, which lies in every range, is none."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click gives anything
        """Raises click.BadParameter."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return number


@click.command()
@click.option("--url", "urls", multiple=True, metavar="URL", help="Base URL of an engine; may be repeated.")
@click.option("--urls", "file", metavar="FILE", help="A file with one URL a line.")
@click.option("--watch", is_flag=True, help="Ask again and again, until Ctrl-C.")
@click.option(
    "--every", type=Seconds(min=0.2, max=86400), default=2.0, show_default=True, help="Seconds, with --watch."
)
@click.option(
    "--timeout", type=Seconds(min=0.1, max=600), default=5.0, show_default=True, help="Seconds for an engine."
)
@click.option("--json", "as_json", is_flag=True, help="Results as JSON on stdout; with --watch one line each time.")
@click.pass_context
def doctor(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    urls: tuple[str, ...],
    file: str | None,
    watch: bool,  # noqa: FBT001 - click passes flags by name
    every: float,
    timeout: float,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Say why a flush is stuck on live engines, and what to do.

    Exit codes: 0 healthy, 1 violated or stuck, 2 unreachable or not an engine, 3 cannot tell.
    """
    from checker.doctor.fetch import Limits  # noqa: PLC0415 - the help needs none of this
    from checker.doctor.results import State  # noqa: PLC0415
    from checker.doctor.visit import engine_urls, visit  # noqa: PLC0415
    from checker.doctor.watch import Screen, printed, watched  # noqa: PLC0415

    engines, limits = engine_urls(urls, file), Limits(timeout)
    if watch:
        report = watched(lambda: visit(engines, limits), Screen.of_terminal(), every, as_json=as_json)
    else:
        reporter = TerminalReporter()
        reporter.working(f"asking {len(engines)} engine{'s' if len(engines) > 1 else ''} …")
        report = visit(engines, limits)
        reporter.finish()
        for line in printed(report, as_json=as_json):
            click.echo(line)
    ctx.exit(State(report.state).exit_code)
