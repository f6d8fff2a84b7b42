"""The command `checker mutate`."""

from __future__ import annotations

import os
import sys

import click

from checker.interrupts import end_at_interrupts, raise_interrupts
from checker.options import (
    chosen_profile,
    engine_option,
    json_option,
    place_options,
    profile_option,
    remedy_option,
    seed_option,
    workers_option,
)
from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_REFUTED, EXIT_UNKNOWN


@click.command()
@profile_option
@engine_option
@remedy_option
@place_options
@click.option("--suite", is_flag=True, help="Each mutant of all bundled profiles, where it acts.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Only N mutants, chosen by the seed.")
@seed_option
@json_option
@workers_option
@click.pass_context
def mutate(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    profile: str | None,
    engine: str | None,
    remedies: tuple[str, ...],
    loop: str | None,
    mode: str | None,
    storage: str | None,
    suite: bool,  # noqa: FBT001 - click passes flags by name
    sample: int | None,
    seed: int,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
    workers: int | None,
) -> None:
    """Remove each fact of the spec once, and see whether some property notices.

    Exit codes: 0 no survivor but those proved equivalent, 1 some survivor, 2 bad input, 3 interrupted, 4 a worker lost.
    """
    import msgspec  # noqa: PLC0415 - the help needs none of this

    from checker.export.chosen import configuration  # noqa: PLC0415
    from checker.mutate.run import Request  # noqa: PLC0415
    from checker.mutate.run import mutate as run  # noqa: PLC0415
    from checker.mutate.show import lines  # noqa: PLC0415
    from checker.mutate.suite import Place  # noqa: PLC0415
    from checker.mutate.suite import suite as every_place  # noqa: PLC0415
    from checker.workers import WorkerLostError  # noqa: PLC0415

    if suite and any((profile, engine, remedies, loop, mode, storage)):
        raise click.UsageError("--suite has its own profiles and configurations; leave the other options out")
    if suite:
        places = every_place()
    else:
        chosen = chosen_profile(profile, engine, remedies)
        places = [Place(chosen, configuration(chosen, loop, mode, storage))]
    reporter = TerminalReporter()
    reporter.working(f"the verdicts of {places[0].profile.name}, then its mutants …")
    report = run(Request(places, sample, seed, workers or os.cpu_count() or 1), _progress)
    end_at_interrupts()
    reporter.finish()
    if as_json:
        reporter.data(msgspec.json.encode(report).decode())
    else:
        for line in lines(report):
            reporter.result(line)
    if report.lost:
        raise WorkerLostError(report.lost)
    if not report.complete:
        ctx.exit(EXIT_UNKNOWN)
    ctx.exit(EXIT_REFUTED if report.survived else EXIT_PROVED)


def _progress(done: int, tried: int) -> None:
    """One more mutant. From the first one on an interrupt has something to keep; until then it ends the command."""
    raise_interrupts()
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{done} of {tried} mutants", nl=False, err=True)
