"""In each bundled profile each action can be taken, what is followed goes each way, each proof speaks of something."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checker.hints import Hints
from checker.kept.model import load_kept
from checker.mutate.judge import GivenSubject
from checker.mutate.mutants import Mutant, mutated
from checker.vacuity import is_empty
from checker.verdict import Verdict
from checker.workbench import Workbench, decide_part
from spec.profile import Configuration, load_profile
from spec.properties import catalogue
from spec.soundness import bookkeeping, reachable

# A pass submits what it has queued: between two passes nothing is.
QUEUED = {"write_through queued in RunningPass", "load_back queued in RunningPass"}
ABORT = {"FlushRefused"}  # never paused: no flush is wanted
NO_REAP = {"DeviceDone(load_back.submitted)", "load_back starts in RunningPass"}  # nothing reaches the host, ever

PLACES: dict[str, set[str]] = {
    "sglang-0.5.23 normal retract file": QUEUED,
    "sglang-0.5.23 overlap abort file": QUEUED | ABORT,
    "sglang-0.5.23-no-flag pp in_place none": QUEUED,
    "sglang-0.5.23-no-flag pdmux retract none": QUEUED | NO_REAP,
    "sglang-0.5.23-limits normal retract none": QUEUED,
    "sglang-0.5.23-grammar overlap in_place none": QUEUED,
    "sglang-0.5.23-prefill prefill-overlap retract none": QUEUED,
    "sglang-0.5.23-prefill prefill-pp abort none": QUEUED | ABORT,
    "sglang-0.5.23-decode decode-normal retract none": QUEUED,
    # What was received is queued for its copy as the pass ends; only a retract holds requests until it is resumed.
    "sglang-0.5.23-decode decode-pp in_place none": {
        "load_back queued in RunningPass",
        "pd_prealloc starts in Continue",
        "load_back starts in OthersPass",
        *NO_REAP,
    },
    # A detachment waits for all that it would drop.
    "sglang-0.5.23-buffer normal retract file": {"load_back queued in RunningPass", "Detach"},
    "sglang-0.5.23-ranks overlap retract none": QUEUED,
    "sglang-0.5.23-controls normal retract file": QUEUED,
    "sglang-0.5.23-release overlap in_place file": QUEUED,
    "sglang-0.5.23-caches normal retract none": QUEUED,
    "sglang-0.5.23-distributed normal retract none": QUEUED,
    "sglang-0.5.23-dllm normal retract none": set(),
    "sglang-0.5.23-hisparse overlap retract none": set(),
    "sglang-0.5.23-lmcache normal retract none": set(),
    "sglang-0.5.23-mlx mlx-overlap retract none": QUEUED,
}
"""What is not reachable there, and why."""


def bench_of(place: str) -> Workbench:
    name, loop, mode, storage = place.split()
    profile = load_profile(name)
    matrix = profile.configuration
    here = Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks)
    return Workbench(profile, here, hints=Hints(kept=load_kept(profile, 0)))


def unreached(bench: Workbench) -> Iterator[str]:
    for follow in (False, True):
        subject = bench.subject(follow_request=follow)
        for part in reachable(subject.protocol, subject.spec):
            if decide_part(subject, part).verdict is not Verdict.REFUTED:
                yield part.about


def unkept(bench: Workbench) -> Iterator[str]:
    for follow in (False, True):
        subject = bench.subject(follow_request=follow)
        for part in bookkeeping(subject.protocol, subject.spec):
            if decide_part(subject, part).verdict is not Verdict.PROVED:
                yield part.about


def silent(bench: Workbench) -> Iterator[str]:
    for prop in catalogue().values():
        if bench.not_applicable(prop) is None:
            subject = bench.subject(follow_request=prop.needs_request)
            for decided in bench.decide(prop):
                if decided.verdict is Verdict.PROVED and is_empty(subject, decided.part.claim):
                    yield f"{prop.id} {decided.part.about}".strip()


@pytest.mark.parametrize("place", PLACES)
def test_what_can_happen_and_what_is_counted(place: str) -> None:
    bench = bench_of(place)
    assert set(unreached(bench)) == PLACES[place]
    assert list(unkept(bench)) == []


# Mode abort pauses nothing, so no flush is refused while paused.
UNPAUSED = ["flush-tells-truth refused", "flush-tells-truth wanted", "flush-tells-truth wanted after an update"]
SILENT: dict[str, list[str]] = {
    "sglang-0.5.23 normal retract file": [],
    # Without storage and without the remedy a paused engine begins no work.
    "sglang-0.5.23 overlap in_place none": ["paused-work-ends"],
    "sglang-0.5.23 overlap abort file": UNPAUSED,
    "sglang-0.5.23-limits normal retract none": ["paused-work-ends"],
    "sglang-0.5.23-prefill prefill-pp abort none": UNPAUSED,
    "sglang-0.5.23-ranks overlap retract none": ["paused-work-ends"],
}
"""The proofs that speak of nothing there, and why."""


@pytest.mark.parametrize("place", SILENT)
def test_each_proof_speaks_of_something(place: str) -> None:
    assert list(silent(bench_of(place))) == SILENT[place]


def test_what_can_no_longer_happen_is_found_out() -> None:
    # Negative control: an action that changes nothing any more.
    whole = bench_of("sglang-0.5.23 normal retract none").subject(follow_request=False)
    spec = mutated(whole.spec, Mutant("update", "FlushRefused", "flush_wanted unchanged"))
    subject = GivenSubject(whole.protocol, whole.limits, whole.tally, given=spec)
    parts = reachable(subject.protocol, subject.spec)
    found = {part.about for part in parts if decide_part(subject, part).verdict is not Verdict.REFUTED}
    assert found == QUEUED | {"FlushRefused"}
