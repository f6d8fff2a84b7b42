"""The command `checker`. Exit codes: 0 all proved, 1 refuted, 2 bad input, 3 unknown or bounded, 4 internal error."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from checker.alerts.command import rules
from checker.certificate_folders import CertificateMissingError, chosen_certificates
from checker.completion import completion, files, names
from checker.completion import folders as folder_names
from checker.diff.command import diff
from checker.doctor.command import doctor
from checker.export.command import export
from checker.extract.command import extract
from checker.guide import add_examples, after_explain, after_verify
from checker.interrupts import end_at_interrupts, raise_interrupts
from checker.mutate.command import mutate
from checker.options import (
    anew_option,
    chosen_profile,
    engine_option,
    json_option,
    loop_option,
    mode_option,
    profile_option,
    property_option,
    remedy_option,
    seed_option,
    source_of,
    workers_option,
)
from checker.replay.command import replay
from checker.report.command import report as report_command
from checker.reporter import TerminalReporter
from checker.reproduce.command import reproduce
from checker.verdict import EXIT_INTERNAL, EXIT_UNKNOWN, EXIT_USAGE, Verdict, exit_code
from checker.workers import WorkerLostError
from spec.errors import QuiesceError

if TYPE_CHECKING:
    from checker.results import Report, Result


def writable(folder: str | None) -> str | None:
    """The folder for certificates, made if it is not there. Raises CertificateMissingError before any proof is done."""
    if folder is None:
        return None
    if not folder:
        raise CertificateMissingError("--certificates needs the name of a folder")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise CertificateMissingError(f"certificates cannot be written to {folder!r}: {error}") from error
    return folder


def kept(reporter: TerminalReporter, done: int, configurations: int, result: Result) -> None:
    """One more result. From the first one on an interrupt has something to keep; until then it ends the command."""
    raise_interrupts()
    reporter.progress(done, configurations, result)


def say(reporter: TerminalReporter, report: Report, *, as_json: bool) -> None:
    """The whole answer of `verify`."""
    import msgspec  # noqa: PLC0415 - the help needs none of this

    from checker.show import lines  # noqa: PLC0415

    if as_json:
        reporter.data(msgspec.json.encode(report).decode())
        return
    for line in lines(report):
        reporter.result(line)


_OURS = ("checker", "spec", "engine_hooks")
INSTALL_AGAIN = "pip install --force-reinstall PATH_OF_THE_CHECKOUT"


class _Group(click.Group):
    """Turns our errors into exit codes: theirs is 2 with the message, ours is 4 with what to report."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except QuiesceError as error:
            click.echo(f"checker: {error}", err=True)
            ctx.exit(EXIT_USAGE)
        except KeyboardInterrupt:
            click.echo("checker: interrupted", err=True)
            ctx.exit(EXIT_UNKNOWN)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ImportError as error:
            if (error.name or "").split(".")[0] in _OURS:
                _internal(ctx)
            click.echo(f"checker: {error}; install what is missing with: {INSTALL_AGAIN}", err=True)
            ctx.exit(EXIT_USAGE)
        except WorkerLostError as error:
            click.echo(f"checker: {error}", err=True)
            ctx.exit(EXIT_INTERNAL)
        except Exception:  # noqa: BLE001 - whatever it is, it is our mistake, and no verdict
            _internal(ctx)


def _internal(ctx: click.Context) -> NoReturn:
    click.echo(traceback.format_exc(), err=True)
    click.echo("checker: an internal error, and no verdict; please report the lines above", err=True)
    ctx.exit(EXIT_INTERNAL)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="quiesce", prog_name="checker")
def main() -> None:
    """Proves the pause, update, flush, continue protocol of an inference engine, or shows a counterexample."""


main.add_command(rules)
main.add_command(doctor)
main.add_command(extract)
main.add_command(diff)
main.add_command(export)
main.add_command(mutate)
main.add_command(replay)
main.add_command(report_command)
main.add_command(reproduce)
main.add_command(completion)


@main.command()
@profile_option
@engine_option
@remedy_option
@property_option
@loop_option
@mode_option
@json_option
@seed_option
@anew_option
@workers_option
@click.option(
    "--certificates",
    metavar="FOLDER",
    help="Write a certificate for each proof below FOLDER.",
    shell_complete=folder_names,
)
@click.option(
    "--sarif", metavar="FILE", help="Also write what is refuted or unknown as SARIF 2.1.0.", shell_complete=files
)
@click.option("--junit", metavar="FILE", help="Also write each result as a JUnit test case.", shell_complete=files)
@click.pass_context
def verify(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    profile: str | None,
    engine: str | None,
    remedies: tuple[str, ...],
    properties: tuple[str, ...],
    loops: tuple[str, ...],
    modes: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - click passes flags by name
    seed: int,
    anew: bool,  # noqa: FBT001 - as above
    workers: int | None,
    certificates: str | None,
    sarif: str | None,
    junit: str | None,
) -> None:
    """Decide every property in every configuration of a profile."""
    from checker.report.files import Formats  # noqa: PLC0415 - the help needs none of this
    from checker.verify import Request, VerifyLostError  # noqa: PLC0415
    from checker.verify import verify as run  # noqa: PLC0415
    from checker.withdraw import withdraw  # noqa: PLC0415

    chosen = chosen_profile(profile, engine, remedies)
    source = source_of(chosen)
    folder, formats = writable(certificates), Formats(sarif, junit)
    formats.check(profile)
    extra = {"workers": workers} if workers else {}
    request = Request(chosen, source, properties, loops, modes, seed, certificates=folder, anew=anew, **extra)
    withdraw(request)
    reporter = TerminalReporter()
    reporter.working(f"verifying {chosen.name} …")
    lost: VerifyLostError | None = None
    try:
        report = run(request, partial(kept, reporter))
    except VerifyLostError as error:
        report, lost = error.report, error
    end_at_interrupts()
    reporter.finish()
    # First, so that a full disk costs the files and not the answer.
    say(reporter, report, as_json=as_json)
    formats.write(report, chosen)
    if lost:
        raise lost
    reporter.next(after_verify(report))
    ctx.exit(exit_code(Verdict(report.verdict)))


@main.command()
@click.argument("property_id", metavar="PROPERTY", shell_complete=names("property"))
@profile_option
@engine_option
@remedy_option
@loop_option
@mode_option
@json_option
@seed_option
@anew_option
@click.pass_context
def explain(  # noqa: PLR0913, PLR0917 - one parameter for each option, passed by name
    ctx: click.Context,
    property_id: str,
    profile: str | None,
    engine: str | None,
    remedies: tuple[str, ...],
    loops: tuple[str, ...],
    modes: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 - click passes flags by name
    seed: int,
    anew: bool,  # noqa: FBT001 - as above
) -> None:
    """Tell the shortest counterexample of PROPERTY as a story, or say how it is proved."""
    import msgspec  # noqa: PLC0415

    from checker.explain import explanation, told  # noqa: PLC0415
    from checker.verify import Request  # noqa: PLC0415
    from checker.verify import verify as run  # noqa: PLC0415

    chosen = chosen_profile(profile, engine, remedies)
    reporter = TerminalReporter()
    reporter.working(f"deciding {property_id} …")
    report = run(Request(chosen, source_of(chosen), (property_id,), loops, modes, seed, anew=anew), reporter.progress)
    reporter.finish()
    answer = explanation(report)
    if as_json:
        reporter.data(msgspec.json.encode(answer).decode())
    else:
        for line in told(answer):
            reporter.result(line)
    reporter.next(after_explain(report, chosen))
    ctx.exit(exit_code(Verdict(report.verdict)))


@main.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", shell_complete=folder_names)
@click.pass_context
def certify(ctx: click.Context, folders: tuple[str, ...]) -> None:
    """Re-check certificates with cvc5, in a fresh process. A FOLDER is a certificate, or holds some."""
    code = in_another_process("checker.certify", chosen_certificates(folders))
    if code < 0:
        raise WorkerLostError(f"the process that asks cvc5 ended with exit code {code} before its work did")
    ctx.exit(code if code in (0, EXIT_USAGE, EXIT_UNKNOWN) else EXIT_INTERNAL)


add_examples(main)


def in_another_process(module: str, arguments: Sequence[str]) -> int:
    """Run a module of ours in a fresh interpreter; returns its exit code."""
    # It starts with Ctrl-C blocked, and keeps it so: this process alone answers, in one line, and ends the other.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    raise_interrupts()
    with subprocess.Popen([sys.executable, "-P", "-m", module, *arguments]) as child:  # noqa: S603 - a module of ours
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            return child.wait()
        except KeyboardInterrupt:
            child.kill()
            child.wait()
            raise
        finally:
            end_at_interrupts()
