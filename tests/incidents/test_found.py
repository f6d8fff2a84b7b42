"""What the vocabulary of the incidents shows of SGLang 0.5.23 beyond them, each with what repairs it in the model."""

from __future__ import annotations

from typing import Any

import pytest

from checker.reasons import Case, why
from checker.workbench import Workbench
from spec.profile import Configuration, load_profile
from spec.properties import catalogue

REAP = "reap-while-paused"
FLUSH = "paused-flush-succeeds"
THREADS: dict[str, Any] = {
    "threads": {"source": "srt/managers/cache_controller.py:backup_thread_func"},
    "primitives": {"yield": "srt/managers/scheduler.py:on_idle"},
    "loops": {"normal": {"running": ["reap", "retry", "schedule", "launch", "process", "yield"]}},
}
YIELDS = {**THREADS, "loops": {"normal": {**THREADS["loops"]["normal"], "paused": ["reap", "yield", "record"]}}}


def decide(
    profile: str, remedies: tuple[str, ...], place: str, property_id: str, difference: dict[str, Any]
) -> tuple[list[str], str]:
    """The verdicts, and the reason where the last is `refuted`."""
    chosen = load_profile(profile).with_remedies(remedies).with_difference(difference)
    loop, mode, storage = place.split()
    matrix = chosen.configuration
    place_ = Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks)
    bench = Workbench(chosen, place_)
    found = bench.decide(catalogue()[property_id])
    last = found[-1]
    protocol = bench.subject(follow_request=False).protocol
    text = why(property_id, Case(protocol, last.confirmed, last.part.about, last.method)).text if last.confirmed else ""
    return [d.verdict.value for d in found], text


# Profile, remedies, place, property, what is laid over it; what the reason begins with, or how many claims are proved.
FOUND: list[tuple[str, tuple[str, ...], str, str, dict[str, Any], str | int]] = [
    # The remedy is not enough for buffer-only host memory: what is staged ends only at an admission.
    ("-buffer", (REAP,), "normal retract file", FLUSH, {}, "staged is reaped by no paused step"),
    ("-buffer", (REAP,), "overlap retract file", FLUSH, {}, "staged is reaped by no paused step"),
    ("-buffer", (REAP, "flush-drops-staged"), "normal retract file", FLUSH, {}, 2),
    ("-buffer", (REAP, "flush-drops-staged"), "overlap retract file", FLUSH, {}, 2),
    ("-buffer", (REAP, "flush-drops-staged"), "normal retract file", "flush-only-when-quiescent", {}, 1),
    # Nor where one rank had no room for a copy: its acknowledgement is waited for by all, for ever.
    ("-ranks", (REAP,), "normal retract none", FLUSH, {}, "write_through never drains"),
    ("-ranks", (REAP, "copies-are-agreed"), "normal retract none", "ranks-aligned", {}, 5),
    # Nor where the paused pass keeps the interpreter from the threads that it polls for.
    ("", (REAP,), "normal retract file", FLUSH, THREADS, "prefetch: the loop spins"),
    ("", (), "normal retract file", FLUSH, YIELDS, 2),
]


def _name(case: tuple[Any, ...]) -> str:
    return "-".join(str(part).replace(" ", "-") for part in (*case[:4], case[5]))


@pytest.mark.parametrize("case", FOUND, ids=_name)
def test_found_beyond_the_incidents(case: tuple[str, tuple[str, ...], str, str, dict[str, Any], str | int]) -> None:
    more, remedies, place, property_id, difference, wanted = case
    verdicts, reason = decide("sglang-0.5.23" + more, remedies, place, property_id, difference)
    if isinstance(wanted, str):
        assert verdicts[-1] == "refuted"
        assert reason.startswith(wanted)
    else:
        assert verdicts == ["proved"] * wanted


# The verdict of every property of the catalogue, in its order.
WHOLE = [
    ("-ranks", (REAP,), "overlap in_place none", "- - R R P - P R P P P R P R R R - R P R - R - P - -"),
    (
        "-buffer",
        (REAP, "flush-drops-staged"),
        "normal retract file",
        "P R R R P P P R P P P P P R R R P - P R - P - P - -",
    ),
]


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case[0])
def test_every_property_of_the_profiles_that_use_it(case: tuple[str, tuple[str, ...], str, str]) -> None:
    more, remedies, place, wanted = case
    profile = load_profile("sglang-0.5.23" + more).with_remedies(remedies)
    loop, mode, storage = place.split()
    matrix = profile.configuration
    bench = Workbench(profile, Configuration(loop, mode, storage, matrix.write_policy, matrix.host_mode, matrix.ranks))
    letters = []
    for prop in catalogue().values():
        silent = bench.not_applicable(prop)
        letters.append("-" if silent else bench.decide(prop)[-1].verdict.value[0].upper())
    assert " ".join(letters) == wanted
