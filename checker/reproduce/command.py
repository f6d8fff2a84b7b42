"""The command `checker reproduce`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from checker.completion import files, names
from checker.options import (
    anew_option,
    chosen_profile,
    engine_option,
    json_option,
    loop_option,
    mode_option,
    profile_option,
    remedy_option,
    seed_option,
    source_of,
)
from checker.outputs import check_apart, check_writable, write
from checker.reporter import TerminalReporter

if TYPE_CHECKING:
    from checker.reproduce.chosen import Undriven
    from checker.reproduce.results import Reproduction, Reproductions
    from checker.reproduce.schedule import Schedule
    from checker.results import Report
    from spec.profile import Profile


@click.command()
@click.argument("property_id", metavar="PROPERTY", shell_complete=names("property"))
@profile_option
@engine_option
@remedy_option
@loop_option
@mode_option
@click.option(
    "--engine-remedy",
    "engine_remedies",
    multiple=True,
    metavar="NAME",
    help="Run the engine with this remedy, which the counterexample knows nothing of.",
    shell_complete=names("remedy"),
)
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="How often each is run.")
@click.option("--dry-run", is_flag=True, help="Show what would be run; start no engine.")
@click.option("-o", "--output", metavar="FILE", help="Also write it as a test for pytest.", shell_complete=files)
@json_option
@seed_option
@anew_option
@click.pass_context
def reproduce(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    property_id: str,
    profile: str | None,
    engine: str | None,
    remedies: tuple[str, ...],
    loops: tuple[str, ...],
    modes: tuple[str, ...],
    engine_remedies: tuple[str, ...],
    runs: int,
    dry_run: bool,  # noqa: FBT001 - click passes flags by name
    output: str | None,
    as_json: bool,  # noqa: FBT001 - as above
    seed: int,
    anew: bool,  # noqa: FBT001 - as above
) -> None:
    """Run the counterexample of PROPERTY on the real engine, on the CPU, with its transfers held.

    Exit codes: 0 each one is confirmed, 1 one is not reproduced, 2 bad input or no engine, 3 one cannot be driven here.
    """
    from checker.reproduce.chosen import check_engine, remedies_of  # noqa: PLC0415 - the help needs none of this
    from checker.verify import Request  # noqa: PLC0415
    from checker.verify import verify as run  # noqa: PLC0415

    if output is not None:
        check_writable(output)
        check_apart(("--output", output), ("--profile", profile))
    chosen = chosen_profile(profile, engine, remedies)
    running = remedies_of(chosen, engine_remedies)
    if not dry_run:
        check_engine(chosen)
    reporter = TerminalReporter()
    reporter.working(f"deciding {property_id} …")
    report = run(Request(chosen, source_of(chosen), (property_id,), loops, modes, seed, anew=anew), reporter.progress)
    reporter.finish()
    schedules, undriven = _schedules(report, chosen, running)
    if output is not None:
        _write(output, schedules, undriven)
    if dry_run:
        ctx.exit(_shown(reporter, schedules, undriven))
    answer = _answer(reporter, report, running, schedules, undriven, runs)
    ctx.exit(_told(reporter, answer, report, as_json=as_json))


def _schedules(report: Report, profile: Profile, remedies: tuple[str, ...]) -> tuple[list[Schedule], list[Undriven]]:
    from checker.reproduce.chosen import counterexamples, drivable  # noqa: PLC0415 - the help needs none of this

    found = [drivable(group, profile, remedies) for group in counterexamples(report.results)]
    undriven = [one for one in found if isinstance(one, tuple)]
    return [one for one in found if not isinstance(one, tuple)], undriven


def _write(output: str, schedules: list[Schedule], undriven: list[Undriven]) -> None:
    from checker.reproduce.write import module  # noqa: PLC0415 - as above

    write(output, module(schedules, undriven))


def _shown(reporter: TerminalReporter, schedules: list[Schedule], undriven: list[Undriven]) -> int:
    """What would be run. Returns the exit code."""
    from checker.reproduce.results import EXIT_CODES, Outcome  # noqa: PLC0415 - as above
    from checker.reproduce.run import reproduction  # noqa: PLC0415
    from checker.reproduce.show import scheduled, told  # noqa: PLC0415

    for schedule in schedules:
        for line in scheduled(schedule):
            reporter.result(line)
    for result, why in undriven:
        for line in told(reproduction(result, Outcome.CANNOT_BE_DRIVEN, why)):
            reporter.result(line)
    return EXIT_CODES[Outcome.CONFIRMED if schedules and not undriven else Outcome.CANNOT_BE_DRIVEN]


def _answer(  # noqa: PLR0913, PLR0917 - what is found, and how often it is run
    reporter: TerminalReporter,
    report: Report,
    remedies: tuple[str, ...],
    schedules: list[Schedule],
    undriven: list[Undriven],
    runs: int,
) -> Reproductions:
    from checker.reproduce.results import SCHEMA, Outcome, Reproductions, worst  # noqa: PLC0415 - as above
    from checker.reproduce.run import place, reproduction  # noqa: PLC0415
    from checker.reproduce.run import reproduce as run  # noqa: PLC0415

    results: list[Reproduction] = []
    if schedules:
        reporter.working("starting the engine …")
        with tempfile.TemporaryDirectory(prefix="quiesce-reproduce-") as folder, place(Path(folder)) as where:
            for result in run(schedules, runs, where):
                results.append(result)
                reporter.working(f"{len(results)} of {len(schedules)}: {result.outcome}")
        reporter.finish()
    results += [reproduction(result, Outcome.CANNOT_BE_DRIVEN, why) for result, why in undriven]
    return Reproductions(SCHEMA, report.engine, remedies, results, worst([r.outcome for r in results]))


def _told(reporter: TerminalReporter, answer: Reproductions, report: Report, *, as_json: bool) -> int:
    """The whole answer. Returns the exit code."""
    import msgspec  # noqa: PLC0415 - the help needs none of this

    from checker.reproduce.results import EXIT_CODES, Outcome  # noqa: PLC0415
    from checker.reproduce.show import nothing, told  # noqa: PLC0415

    if as_json:
        reporter.data(msgspec.json.encode(answer).decode())
    else:
        for result in answer.results:
            for line in told(result):
                reporter.result(line)
    if not answer.results:
        reporter.note(nothing(answer, report.verdict))
    return EXIT_CODES[Outcome(answer.outcome)]
