"""The verdicts that the documentation speaks of, decided by `checker verify` and recorded in `docs/verdicts.json`.

Deciding takes half a minute; the pages are then made from the record. It names the digests of the specs that it speaks
of, so that a record of other facts is noticed without deciding anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from checker.digest import spec_digest
from checker.docs.errors import DocsError
from checker.results import Report
from checker.verdict import Verdict
from checker.verify import Request, verify
from spec.profile import DEFAULT_PROFILE, Profile, load_profile
from spec.properties import catalogue

PROFILE = DEFAULT_PROFILE
RECORD = "verdicts.json"
_AGAIN = "run: python -m checker.docs"


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """One property in one configuration. `reason` is empty for a proof: its rank is for `checker explain` to tell."""

    property: str
    loop: str
    mode: str
    storage: str
    verdict: str
    method: str
    reason: str


class Run(msgspec.Struct, frozen=True):
    """The profile with these remedies and variants laid over it."""

    name: str
    applied: Sequence[str]
    digest: str
    results: Sequence[Decided]

    def of(self, property_id: str) -> list[Decided]:
        """What was decided of one property, in the order of the configurations."""
        return [one for one in self.results if one.property == property_id]


class Record(msgspec.Struct, frozen=True):
    """What is recorded."""

    profile: str
    runs: Sequence[Run]


def runs_of(profile: Profile) -> Iterator[tuple[str, Sequence[str]]]:
    """The runs: what the engine is, what the hooks make of it, what every design together would make of it."""
    yield "as it is", ()
    for name in profile.remedies:
        yield f"with {name}", (name,)
    yield "with every variant too", (*profile.remedies, *profile.variants)


def decide() -> Record:
    """Every verdict, kept finds checked in full."""
    profile = load_profile(PROFILE)
    runs = []
    for name, applied in runs_of(profile):
        with_them = profile.with_remedies(applied)
        report = verify(Request(with_them))
        if not report.complete:
            raise KeyboardInterrupt
        runs.append(Run(name, list(applied), report.spec_digest, _results(report)))
    return Record(PROFILE, runs)


def _results(report: Report) -> list[Decided]:
    return [
        Decided(
            r.property,
            r.loop,
            str(r.configuration["mode"]),
            str(r.configuration["storage"]),
            r.verdict,
            r.method,
            "" if r.verdict == Verdict.PROVED.value else r.reason,
        )
        for r in report.results
    ]


def text_of(record: Record) -> str:
    """The record as it is written: a line for each result."""
    runs = []
    for run in record.runs:
        lines = ",\n".join("   " + msgspec.json.encode(one).decode() for one in run.results)
        head = msgspec.json.encode({"name": run.name, "applied": run.applied, "digest": run.digest}).decode()
        runs.append(f'  {head[:-1]},"results":[\n{lines}\n  ]}}')
    body = ",\n".join(runs)
    return f'{{"profile":{msgspec.json.encode(record.profile).decode()},"runs":[\n{body}\n]}}\n'


def recorded(docs: Path) -> Record:
    """The record below `docs`. Raises DocsError where it is missing, malformed, or one of other facts."""
    path = docs / RECORD
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError) as error:
        raise DocsError(f"{path}: {error}; {_AGAIN}") from error
    profile = load_profile(PROFILE)
    wanted = [(name, list(applied), spec_digest(profile.with_remedies(applied))) for name, applied in runs_of(profile)]
    if [(run.name, list(run.applied), run.digest) for run in record.runs] != wanted:
        raise DocsError(f"{path}: recorded of another spec than that of {PROFILE}; {_AGAIN}")
    if any({one.property for one in run.results} != set(catalogue()) for run in record.runs):
        raise DocsError(f"{path}: recorded of other properties than those of the catalogue; {_AGAIN}")
    return record


def tally(results: Sequence[Decided]) -> str:
    """The verdicts of one property in a few words; what is proved in one place never passes for the whole."""
    counted = [r.verdict for r in results if r.verdict != Verdict.NOT_APPLICABLE.value]
    kinds = list(dict.fromkeys(sorted(counted, key=severity)))
    if not kinds:
        return "not applicable"
    if len(kinds) == 1:
        return _shown(kinds[0])
    return ", ".join(f"{_shown(kind)} in {counted.count(kind)}" for kind in kinds)


def severity(verdict: str) -> int:
    """Its place in the order in which verdicts are told: the worst is 0."""
    worst_first = (Verdict.REFUTED, Verdict.UNKNOWN, Verdict.BOUNDED, Verdict.PROVED, Verdict.NOT_APPLICABLE)
    return [v.value for v in worst_first].index(verdict)


def _shown(verdict: str) -> str:
    return f"**{verdict}**" if verdict == Verdict.REFUTED.value else verdict
