"""Public incidents of the protocol: each brought back by its own mechanism, refuted, and proved repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from incident import Incident, decide, defective, incidents, outside, repaired

EVERY = incidents()
EXPRESSED = {
    "core": 11,
    "buffer-only staging": 2,
    "conditional steps": 2,
    "declined lookups": 1,
    "ends at admission": 1,
    "holdings": 4,
    "merging pause": 2,
    "page accounts": 3,
    "pages in use": 2,
    "refusals": 1,
    "retract keeps KV": 1,
    "shared interpreter": 1,
    "updates": 5,
    "waiting lookups": 2,
}
"""How many incidents each extension of the vocabulary expresses."""


def _in_order(wanted: Iterable[str], found: Iterable[str]) -> bool:
    rest = iter(found)
    return all(name in rest for name in wanted)


@pytest.mark.parametrize("incident", EVERY, ids=lambda incident: incident.id)
def test_the_defect_is_found_for_its_reason_and_its_repair_is_proved(incident: Incident) -> None:
    wanted = incident.refuted
    found = decide(incident, defective(incident))
    assert found.verdicts[-1] == "refuted"
    assert found.reason(wanted.property).startswith(wanted.reason)
    run = found.decided[-1].confirmed
    assert run is not None
    actions = [step.action for step in run.steps]
    assert _in_order(wanted.actions, actions), actions
    assert wanted.last in ("", actions[-1]), actions
    before = run.steps[-2].state if len(run.steps) > 1 else run.initial
    assert {name: before[name] for name in wanted.before} == wanted.before
    assert {name: run.last[name] for name in wanted.end} == wanted.end
    assert decide(incident, repaired(incident)).verdicts == ["proved"] * incident.claims


def test_what_is_expressed_and_by_what() -> None:
    assert Counter(incident.extension for incident in EVERY) == EXPRESSED
    assert len({incident.id for incident in EVERY} | {entry.id for entry in outside()}) == sum(EXPRESSED.values())


def test_no_two_incidents_are_one_difference_unless_they_say_so() -> None:
    seen: dict[str, str] = {}
    for incident in EVERY:
        base, set_ = incident.base, incident.defect.set
        key = repr((base, sorted(incident.defect.remedies), set_, incident.refuted.property, incident.refuted.about))
        assert key not in seen or incident.shares == seen[key], (incident.id, seen[key])
        seen.setdefault(key, incident.id)
