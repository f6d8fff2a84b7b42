"""The known cases beyond the founding one: each found for its reason, and proved in the variant that repairs it.

The case numbers are those of the project's list of defects of SGLang 0.5.23.
"""

from __future__ import annotations

import pytest
from proof_desk import Desk

from checker.decide.decided import Decided
from checker.reasons import Case, why
from spec.profile import Configuration, load_profile
from spec.protocol import Protocol

BASE = "sglang-0.5.23"
FLUSH, DRAIN, KEPT = "paused-flush-succeeds", "ledgers-drain", "requests-conserved"

# Case, what is added to the profile's name, place, what is laid over it, property, what the reason begins with.
FOUND = [
    ("B13", "-grammar", "normal retract none", (), FLUSH, "grammar is reaped by no paused step"),
    ("B13", "-grammar", "overlap retract none", (), FLUSH, "grammar is reaped by no paused step"),
    (
        "B14",
        "-limits",
        "normal retract none",
        ("pause-stops-clocks",),
        KEPT,
        "a retract counts running requests among the queued",
    ),
    ("B17", "-limits", "overlap in_place none", (), KEPT, "the time-out of waiting requests counts the pause"),
    ("B21", "-no-flag", "pp retract none", (), "no-forward-while-paused", "this loop does not look at"),
    (
        "B21",
        "-no-flag",
        "pdmux in_place none",
        (),
        "no-forward-while-paused",
        "this loop does not look at the pause flag",
    ),
    ("-", "-no-flag", "pdmux abort none", (), DRAIN, "write_through is reaped by no step of this loop"),
    ("B23", "-prefill", "prefill-normal retract none", (), FLUSH, "pd_bootstrap is reaped by no paused step"),
    ("B23", "-prefill", "prefill-overlap in_place none", (), DRAIN, "write_through is reaped by no paused step"),
    ("B23", "-decode", "decode-normal retract none", (), FLUSH, "pd_prealloc is reaped by no paused step"),
    # A prefix that was received as the last pass ended is queued for its copy, which no paused pass submits.
    ("B23", "-decode", "decode-overlap retract none", (), FLUSH, "nothing that can still move opens the gate"),
    ("-", "-decode", "decode-pp retract none", (), DRAIN, "write_through is reaped by no step of this loop"),
]

# Case, profile, place, what is laid over it, property, how many claims it has.
REPAIRED = [
    ("B02", "", "normal retract none", ("reap-while-paused", "flush-waits"), "update-flushes", 1),
    ("B02", "", "overlap retract file", ("reap-while-paused", "flush-waits"), "update-flushes", 1),
    ("B02", "", "normal retract none", ("flush-waits",), "no-stale-kv", 1),
    ("B04", "", "normal retract file", ("flush-waits", "epoch-in-storage-key"), "update-tells-truth", 4),
    ("B06", "", "normal in_place none", ("pause-stops-clocks",), "engine-survives", 1),
    ("B12", "", "normal retract none", ("deferred-flush-ignores-waiting",), "deferred-flush-agrees", 2),
    ("B13", "-grammar", "normal retract none", ("grammar-while-paused",), FLUSH, 2),
    ("B13", "-grammar", "overlap retract none", ("grammar-while-paused",), DRAIN, 3),
    ("B14", "-limits", "normal retract none", ("pause-stops-clocks", "retract-keeps-admitted"), KEPT, 1),
    ("B16", "", "normal retract none", ("stamp-version-on-success",), "versions-agree", 1),
    ("B21", "-no-flag", "pp retract none", ("pp-honours-pause",), "no-forward-while-paused", 1),
    ("B21", "-no-flag", "pp retract none", ("pp-honours-pause",), FLUSH, 2),
    ("B21", "-no-flag", "pdmux retract none", ("pp-honours-pause",), DRAIN, 2),
    ("B23", "-prefill", "prefill-overlap retract none", ("pd-drains-while-paused",), FLUSH, 2),
    ("B23", "-decode", "decode-normal retract none", ("pd-drains-while-paused",), FLUSH, 2),
    ("B23", "-decode", "decode-pp retract none", ("pd-drains-while-paused",), FLUSH, 2),
]

# One remedy too few is not enough.
NOT_REPAIRED = [
    ("-grammar", "overlap retract none", ("reap-while-paused",), FLUSH),
    ("-decode", "decode-normal retract none", ("reap-while-paused",), FLUSH),
    ("-limits", "normal retract none", ("pause-stops-clocks",), KEPT),
    ("-limits", "normal retract none", ("retract-keeps-admitted",), KEPT),
    ("", "normal retract file", ("flush-waits",), "update-tells-truth"),
    ("", "normal retract none", ("reap-while-paused",), "update-flushes"),
]


def _name(case: tuple[object, ...]) -> str:
    return "-".join(str(part).replace(" ", "-") for part in case[:4])


def _reason(found: list[Decided], profile: str, place: str, property_id: str) -> str:
    telling = next(d for d in found if d.verdict.value == "refuted")
    assert telling.confirmed is not None
    loop, mode, storage = place.split()
    protocol = Protocol(load_profile(profile), Configuration(loop, mode, storage))
    return why(property_id, Case(protocol, telling.confirmed, telling.part.about, telling.method)).text


@pytest.mark.parametrize("case", FOUND, ids=_name)
def test_found_for_its_reason(desk: Desk, case: tuple[str, str, str, tuple[str, ...], str, str]) -> None:
    _, more, place, remedies, property_id, reason = case
    found = desk(property_id, place, profile=BASE + more, remedies=remedies)
    assert _reason(found, BASE + more, place, property_id).startswith(reason)


@pytest.mark.parametrize("case", REPAIRED, ids=_name)
def test_proved_where_it_is_repaired(desk: Desk, case: tuple[str, str, str, tuple[str, ...], str, int]) -> None:
    _, more, place, remedies, property_id, claims = case
    found = desk(property_id, place, profile=BASE + more, remedies=remedies)
    assert [d.verdict.value for d in found] == ["proved"] * claims


@pytest.mark.parametrize("case", NOT_REPAIRED, ids=_name)
def test_not_repaired_by_less(desk: Desk, case: tuple[str, str, tuple[str, ...], str]) -> None:
    more, place, remedies, property_id = case
    found = desk(property_id, place, profile=BASE + more, remedies=remedies)
    assert found[-1].verdict.value == "refuted"
