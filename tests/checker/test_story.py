"""Each step of each bundled profile has a sentence."""

from __future__ import annotations

import pytest

from checker.results import Result, TraceStep
from checker.story import sentence
from spec.profile import bundled_profiles, load_profile
from spec.protocol import Protocol


def told(profile: str, action: str, actor: str = "device", engine: str = "file:function") -> str:
    result = Result(profile, "normal", {"mode": "retract"}, "refuted", "unbounded", "", "", None, 0.0)
    return sentence(TraceStep(action, actor, engine, {}, {}), result)


@pytest.mark.parametrize("name", bundled_profiles())
def test_no_action_is_told_by_its_name(name: str) -> None:
    profile = load_profile(name)
    actions = {a.name: a for c in profile.configurations() for a in Protocol(profile, c).spec().actions}
    assert len(actions) >= 14
    assert [n for n, a in actions.items() if told(name, n, a.actor, a.engine) == n] == []


def test_what_is_evicted_is_told() -> None:
    assert told("", "Evict(host)") == "for want of room, host pages that nothing locks are freed"
    assert told("", "PeerDone(pd_transfer.sent)", "peer") == "the peer completes a pd_transfer entry (sent)"
    assert told("", "NoSuchAction") == "NoSuchAction"
