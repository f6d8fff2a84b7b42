"""`python -m checker.docs`: decides the verdicts, records them, and writes what is generated in README.md and docs/."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from checker.docs import generate, verdicts
from checker.reporter import TerminalReporter
from checker.verdict import EXIT_PROVED, EXIT_REFUTED, EXIT_USAGE
from spec.errors import QuiesceError


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; name what is out of date (exit code 1).")
@click.option("--recorded", is_flag=True, help="Take the verdicts as recorded in docs/verdicts.json; decide nothing.")
@click.pass_context
def main(ctx: click.Context, check: bool, recorded: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Write the generated parts of README.md and docs/, in the folder where it is called."""
    try:
        ctx.exit(_run(Path.cwd(), check=check, recorded=recorded))
    except QuiesceError as error:
        click.echo(f"checker: {error}", err=True)
        ctx.exit(EXIT_USAGE)


def _run(root: Path, *, check: bool, recorded: bool) -> int:
    docs, reporter = root / generate.DOCS, TerminalReporter()
    list(generate.sources(root))
    record = verdicts.recorded(docs) if recorded else verdicts.decide()
    files = {**generate.generated(root, record), docs / verdicts.RECORD: verdicts.text_of(record)}
    stale = generate.out_of_date(files)
    for path in stale:
        name = path.relative_to(root).as_posix()
        if check:
            reporter.note(f"{name} is out of date; run: make generate")
        else:
            path.write_text(files[path], encoding="utf-8")
            reporter.result(f"{name} written")
    if not stale:
        reporter.result(f"{len(files)} files are up to date")
    return EXIT_REFUTED if check and stale else EXIT_PROVED


if __name__ == "__main__":
    sys.exit(main(prog_name="python -m checker.docs"))
