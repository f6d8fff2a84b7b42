"""An example for each command, shown by `--help` and run by a test; and what to do after an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from checker.extract.read import Extraction
    from checker.results import Report, Result
    from spec.profile import Profile

EXAMPLES: Mapping[str, Sequence[str]] = {
    "verify": (
        "checker verify --profile sglang-0.5.23 --loop normal --mode retract",
        "checker verify --profile sglang-0.5.23 --property paused-flush-succeeds \\",
        "    --remedy reap-while-paused --sarif quiesce.sarif --junit quiesce.xml",
    ),
    "explain": ("checker explain paused-flush-succeeds --profile sglang-0.5.23 --loop normal",),
    "reproduce": (
        "checker reproduce paused-flush-succeeds --profile sglang-0.5.23 \\",
        "    --loop normal --dry-run",
    ),
    "certify": (
        "checker verify --profile sglang-0.5.23 --loop normal \\",
        "    --property no-forward-while-paused --certificates proofs",
        "checker certify proofs",
    ),
    "report": (
        "checker verify --profile sglang-0.5.23 --mode in_place --json > RESULT.json",
        "checker report RESULT.json -o report.html",
        "checker export --itf --property no-stale-kv -o trace.itf.json",
        "checker report trace.itf.json -o trace.html",
    ),
    "extract": (
        "checker extract sglang -o installed.toml",
        "checker verify --profile installed.toml --property paused-flush-succeeds",
    ),
    "diff": (
        "checker diff sglang-0.5.23 installed",
        "checker diff sglang-0.5.23 sglang-0.5.23-limits --property idle-is-true",
    ),
    "export": (
        "checker export --tla --property no-stale-kv -o Stale.tla",
        "checker export --promela --mode retract --storage none -o Small.pml",
    ),
    "mutate": ("checker mutate --profile sglang-0.5.23 --storage none --sample 1",),
    "replay": ("checker replay traces", "checker replay --allow all --coverage quiesce-*.trace.ndjson"),
    "doctor": ("checker doctor --url http://127.0.0.1:30000",),
    "rules": ("checker rules --into alerts", "checker rules --into alerts --check"),
    "completion": ('eval "$(checker completion bash)"', "checker completion zsh > _checker"),
}
_START = (
    "checker explain paused-flush-succeeds --profile sglang-0.5.23 --loop normal",
    "checker verify --property paused-flush-succeeds --remedy reap-while-paused",
)


def add_examples(main: click.Group) -> None:
    """Put the examples below the help of each command, laid out as they are."""
    main.epilog = _shown(_START)
    for name, command in main.commands.items():
        command.epilog = _shown(EXAMPLES[name])


def _shown(examples: Sequence[str]) -> str:
    title = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  {line}" for line in examples)])


# What to do next.


def after_verify(report: Report) -> Iterator[str]:
    """Commands that go on from a verification."""
    refuted = [r for r in report.results if r.verdict == "refuted"]
    unknown = [r for r in report.results if r.verdict in ("unknown", "bounded")]
    if refuted:
        yield f"the story of one: {_explain(report, refuted[0])}"
        yield "all of it as a page: checker report, with the options of this command"
    elif unknown:
        yield f"what is known: {_explain(report, unknown[0])}"
    elif any(r.verdict == "proved" for r in report.results):
        yield "let a second solver check it: add --certificates FOLDER, then checker certify FOLDER"
    else:
        yield "nothing of it applies there; leave out --loop or --mode, or take another --profile"


def after_explain(report: Report, profile: Profile) -> Iterator[str]:
    """What may repair what was explained."""
    refuted = [r for r in report.results if r.verdict == "refuted"]
    others = [name for name in (*profile.remedies, *profile.variants) if name not in profile.applied]
    if refuted and others:
        yield f"see whether one of these repairs it, with --remedy: {', '.join(others)}"
    if refuted:
        command = _explain(report, refuted[0]).replace("checker explain", "checker export --itf --property")
        yield f"the same as a trace for other tools: {command}"


def after_extract(found: Extraction, output: str | None) -> Iterator[str]:
    """What the profile is for."""
    if output is None:
        yield "keep it: add -o FILE.toml"
        return
    yield f"decide its properties: checker verify --profile {output}"
    yield f"see what differs from the bundled profile, and which verdicts change: checker diff sglang-0.5.23 {output}"
    if found.unknowns:
        yield "what is unknown makes every property that rests on it unknown; read the places, and say it in the file"


def after_diff(*, facts_only: bool, alike: bool) -> Iterator[str]:
    """What may be asked further."""
    if facts_only and not alike:
        yield "see which verdicts change: leave out --facts-only"


def after_export(kind: str, output: str | None) -> Iterator[str]:
    """What reads the exported file."""
    name = output or "FILE"
    yield {
        "tla": f"a model checker reads it, e.g. apalache-mc check {name}, or TLC after bounding the counters",
        "promela": f"spin -a {name} && cc -O2 -o pan pan.c && ./pan -a",
        "itf": f"checker report {name}",
    }[kind]


def _explain(report: Report, result: Result) -> str:
    remedies = "".join(f" --remedy {name}" for name in report.engine.remedies)
    named = {"bundled": f"--profile {report.engine.profile}", "extracted": "--engine installed"}
    profile = named.get(report.engine.source, "--profile FILE")
    mode = result.configuration["mode"]
    return f"checker explain {result.property} {profile}{remedies} --loop {result.loop} --mode {mode}"
