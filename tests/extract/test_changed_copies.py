"""Small changes of the engine's source: each is noticed, and none is read as a proof of what it breaks."""

import json
from pathlib import Path

import pytest
from engine_copies import copies, extract_changed

from checker.diff.facts import compare
from checker.proof.system import Limits
from checker.verify import Request, results_of
from checker.workbench import Workbench
from spec.profile import load_profile

pytestmark = pytest.mark.source
BUNDLED = "sglang-0.5.23"
COPIES = copies("noticed")
VERDICTS = Path(__file__).resolve().parents[2] / "docs/verdicts.json"


def decided(profile, properties, loop, mode, storage="file"):
    bench = Workbench(profile, profile.place(f"{loop} {mode} {storage}"), Limits())
    return {r.property: r for r in results_of(Request(profile, "file", tuple(properties)), bench)}


def of_ranks(extraction):
    """Where ranks agree on something else than they do in the bundled profile of two ranks, or it is unknown."""
    peers = load_profile(f"{BUNDLED}-ranks").peers
    facts = [f for f in extraction.facts if f.key[0] == "peers" and f.value != getattr(peers, f.key[1])]
    return [*facts, *(u for u in extraction.unknowns if u.key[0] == "peers")]


@pytest.fixture(scope="module")
def noticed():
    """Copy to whether it was noticed; printed when all are through, since the share is the claim."""
    found = {}
    yield found
    print(f"\n{sum(found.values())} of {len(found)} changed copies noticed")  # noqa: T201 - the figure is the claim


@pytest.mark.parametrize("copy", COPIES, ids=lambda c: c.name)
def test_a_change_is_noticed_and_never_read_as_a_proof(copy, tmp_path, noticed):
    extraction = extract_changed(tmp_path, copy.changes)
    differences = [*compare(load_profile(BUNDLED), extraction.profile).facts, *of_ranks(extraction)]
    noticed[copy.name] = bool(differences)
    assert differences
    profile = extraction.profile
    if copy.repaired:
        profile = profile.with_remedies([*profile.remedies, *profile.variants])
    for result in decided(profile, copy.broken, *copy.where).values() if copy.broken else ():
        assert result.verdict in {"refuted", "unknown"}, result


def test_there_are_many_copies_and_what_they_break_holds_in_the_engine_as_it_is():
    assert len(COPIES) == 97
    assert len({copy.name for copy in COPIES}) == 97
    assert sum(bool(copy.broken) for copy in COPIES) == 48
    runs = {run["name"]: run["results"] for run in json.loads(VERDICTS.read_text(encoding="utf-8"))["runs"]}
    plain, every = runs["as it is"], runs["with every variant too"]
    for copy in COPIES:
        proved = {
            (p, loop, mode)
            for p, loop, mode, storage, v, *_ in (every if copy.repaired else plain)
            if (storage, v) == ("file", "proved")
        }
        assert {(name, *copy.where) for name in copy.broken} <= proved, copy.name


@pytest.mark.parametrize("copy", copies("harmless"), ids=lambda c: c.name)
def test_what_the_protocol_does_not_see_changes_nothing(copy, tmp_path):
    extraction = extract_changed(tmp_path, copy.changes)
    assert (extraction.unknowns, compare(load_profile(BUNDLED), extraction.profile).facts, of_ranks(extraction)) == (
        (),
        [],
        [],
    )


@pytest.mark.parametrize("copy", copies("repairs"), ids=lambda c: c.name)
def test_the_founding_case_repaired_is_proved(copy, tmp_path):
    extraction = extract_changed(tmp_path, copy.changes)
    found = compare(load_profile(BUNDLED), extraction.profile).facts
    assert [(d.key, d.b) for d in found] == [(f"loops.{n}.paused", ["reap", "record"]) for n in ("normal", "overlap")]
    before = decided(load_profile(BUNDLED), ["paused-flush-succeeds"], "normal", "retract")
    after = decided(extraction.profile, ["paused-flush-succeeds"], "normal", "retract")
    assert [r["paused-flush-succeeds"].verdict for r in (before, after)] == ["refuted", "proved"]
