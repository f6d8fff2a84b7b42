"""What several ranks need of each other: copies that are made on all of them, and done on all before a reap."""

from __future__ import annotations

import pytest

from checker.verdict import Verdict
from checker.workbench import Workbench
from spec.profile import load_profile
from spec.properties import catalogue


def verdicts(profile: str, property_id: str, place: str, *remedies: str) -> list[Verdict]:
    """Of each claim of the property there, up to the first that is refuted."""
    loaded = load_profile(profile).with_remedies(remedies)
    return [d.verdict for d in Workbench(loaded, loaded.place(place)).decide(catalogue()[property_id])]


@pytest.mark.parametrize("profile", ["sglang-0.5.23-ranks", "sglang-0.5.23-ranks-3"])
def test_copies_end_on_every_rank_where_they_are_agreed(profile: str) -> None:
    agreed = ("reap-while-paused", "copies-are-agreed")
    place = "normal retract none"
    assert verdicts(profile, "ledgers-drain", place, *agreed) == [Verdict.PROVED] * 2
    # A rank that has no room for its copy never ends it.
    assert verdicts(profile, "ledgers-drain", place, "reap-while-paused")[-1] is not Verdict.PROVED


def test_an_update_that_never_waits_is_answered_at_once() -> None:
    assert verdicts("rejected-blocking-drain", "update-flushes", "normal retract none") == [Verdict.PROVED]
    assert verdicts("sglang-0.5.23", "update-flushes", "normal retract none") == [Verdict.REFUTED]
