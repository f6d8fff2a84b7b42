"""Forty-six public incidents of the protocol: each brought back by its own mechanism, refuted, and proved repaired."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from incident import Incident, decide, defective, incidents, outside, parts, repaired

EVERY = incidents()
EXPRESSED = {
    "core": 11,
    "buffer-only staging": 2,
    "conditional steps": 3,
    "declined lookups": 1,
    "ends at admission": 1,
    "holdings": 4,
    "merging pause": 2,
    "page accounts": 3,
    "pages in use": 2,
    "ranks": 5,
    "refusals": 1,
    "replicas": 1,
    "retract keeps KV": 1,
    "shared interpreter": 1,
    "updates": 6,
    "waiting lookups": 2,
}
"""How many incidents each extension of the vocabulary expresses."""
BUNDLED = [
    "SGL-14062",
    "SGL-20908",
    "SGL-21413",
    "SGL-22620",
    "SGL-22623",
    "SGL-24462",
    "SGL-26792",
    "SGL-28429",
    "SGL-30203",
    "SGL-33783",
    "SGL-35181",
    "SGL-36869",
    "SGL-37260",
]
"""The incidents whose mechanism SGLang 0.5.23 has, by itself or in a deployment that uses it."""


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
    assert (len(EVERY), sum(EXPRESSED.values()), len(outside())) == (46, 46, 0)


def test_what_of_an_incident_is_left_out_is_said() -> None:
    known = {incident.id for incident in EVERY}
    assert [part.id for part in parts() if part.id not in known or len(part.why) < 40] == []
    assert len(parts()) == 6


def test_what_the_bundled_version_has() -> None:
    found = [incident.id for incident in EVERY if incident.in_bundled]
    assert found == BUNDLED
    # Where nothing is laid over the profile but what repairs it, the profile itself has the defect.
    bare = [i.id for i in EVERY if not i.defect.set and not i.base.set and not i.defect.remedies]
    assert set(bare) <= set(BUNDLED)
    assert len(bare) == 6


def test_an_entry_with_a_key_that_means_nothing_is_refused() -> None:
    entry = msgspec.to_builtins(EVERY[0])
    assert msgspec.convert(entry, Incident) == EVERY[0]
    with pytest.raises(msgspec.ValidationError, match="unknown field `reasons`"):
        msgspec.convert({**entry, "refuted": {**entry["refuted"], "reasons": ""}}, Incident)


def test_actions_are_looked_for_in_their_order() -> None:
    assert _in_order(["Pause", "Continue"], ["Arrive", "Pause", "PausedPass", "Continue"])
    assert not _in_order(["Continue", "Pause"], ["Arrive", "Pause", "PausedPass", "Continue"])


def test_no_two_incidents_are_one_difference_unless_they_say_so() -> None:
    seen: dict[str, str] = {}
    for incident in EVERY:
        base, set_ = incident.base, incident.defect.set
        key = repr((base, sorted(incident.defect.remedies), set_, incident.refuted.property, incident.refuted.about))
        assert key not in seen or incident.shares == seen[key], (incident.id, seen[key])
        seen.setdefault(key, incident.id)


def _said(table: object) -> Iterator[str]:
    """Every place in the engine's source that a table of a profile names."""
    if isinstance(table, dict):
        for key, value in table.items():
            if key in ("source", "reaper") and isinstance(value, str):
                yield value
            elif key == "primitives":
                yield from value.values()
            else:
                yield from _said(value)
    elif isinstance(table, list):
        for item in table:
            yield from _said(item)


def test_what_an_entry_says_of_the_engine_is_there() -> None:
    found = find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no SGLang here")
    root = Path(found.submodule_search_locations[0])
    tables = [(i.id, t) for i in EVERY if i.engine == "sglang" for t in (i.base.set, i.defect.set, i.repaired.set)]
    places = {(id_, place) for id_, table in tables for place in _said(table)}
    assert len(places) == 28
    missing = []
    for id_, place in sorted(places):
        file, _, name = place.partition(":")
        path = root / file
        if not path.is_file() or not re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8")):
            missing.append((id_, place))
    assert missing == []
