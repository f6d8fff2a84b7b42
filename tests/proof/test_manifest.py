"""The whole of `checker verify`, held against a table of expected verdicts; and the known cases, for their reasons."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from proof_desk import place_of

from checker.results import Report, Result
from spec.properties import catalogue

# Two whole runs, where the machine may be shared.
pytestmark = pytest.mark.timeout(1800)

MANIFEST: dict[str, Any] = tomllib.loads((Path(__file__).parent / "manifest.toml").read_text(encoding="utf-8"))
PLACES = [
    f"{loop} {mode} {storage}"
    for loop in ("normal", "overlap")
    for mode in ("retract", "in_place", "abort")
    for storage in ("none", "file")
]


def expected(remedies: str) -> dict[tuple[str, str], str]:
    letters, places = MANIFEST["letters"], MANIFEST["places"]
    return {
        (name, place): letters[letter]
        for name, row in MANIFEST[remedies].items()
        for place, letter in zip(places, row.split(), strict=True)
    }


def test_manifest_covers_everything() -> None:
    assert MANIFEST["places"] == PLACES
    for remedies in ("no-remedy", "reap-while-paused"):
        assert list(MANIFEST[remedies]) == list(catalogue())


@pytest.mark.parametrize("remedies", ["no-remedy", "reap-while-paused"])
def test_whole_run_agrees_with_the_manifest(whole_runs: dict[str, Report], remedies: str) -> None:
    report = whole_runs[remedies]
    found = {(r.property, place_of(r)): r.verdict for r in report.results}
    wanted = expected(remedies)
    assert {k: (v, wanted[k]) for k, v in found.items() if v != wanted[k]} == {}
    assert found.keys() == wanted.keys()
    assert (report.verdict, report.complete, len(report.results)) == ("refuted", True, 312)


def test_remedy_repairs_exactly_these() -> None:
    before, after = expected("no-remedy"), expected("reap-while-paused")
    changed = {key for key in before if before[key] != after[key]}
    assert {(before[key], after[key]) for key in changed} == {("refuted", "proved")}
    drained = {("ledgers-drain", p) for p in PLACES if "abort" not in p}
    flushed = {("paused-flush-succeeds", p) for p in PLACES if "retract" in p}
    assert changed == drained | flushed


def test_every_refutation_has_a_trace_and_every_proof_a_scope(whole_runs: dict[str, Report]) -> None:
    for report in whole_runs.values():
        for result in report.results:
            assert (result.trace is not None) == (result.verdict == "refuted"), result
            decided = result.verdict in ("proved", "refuted")
            assert result.scope == ("unbounded" if decided else "none"), result
            assert result.reason, result


# Case, property, place, what its reason says, the ledger: for what reason each known case is found.
CASES = [
    (
        "B01",
        "paused-flush-succeeds",
        "normal retract none",
        "write_through is reaped by no paused step",
        "write_through",
    ),
    ("B01", "ledgers-drain", "normal in_place none", "write_through is reaped by no paused step", "write_through"),
    ("B02", "update-flushes", "normal retract none", "the flush of an update is one immediate attempt, refused", None),
    ("B02", "update-tells-truth", "normal abort none", "a forward runs after an update whose flush was refused", None),
    ("B02", "no-stale-kv", "normal retract none", "a forward may read KV of the old weights from device", None),
    (
        "B03",
        "paused-flush-succeeds",
        "overlap retract none",
        "write_through is reaped by no paused step",
        "write_through",
    ),
    ("B03", "paused-flush-succeeds", "normal retract file", "prefetch is reaped by no paused step", "prefetch"),
    (
        "B04",
        "update-tells-truth",
        "normal retract file",
        "the update is answered with success while storage still",
        None,
    ),
    ("B06", "engine-survives", "normal in_place none", "the watchdog takes a paused batch for a hang", None),
    ("B12", "deferred-flush-agrees", "normal retract none", "a waiting request blocks the deferred flush", None),
    ("B16", "versions-agree", "normal retract none", "the scheduler stamps the new version before a flush", None),
]


@pytest.mark.parametrize("known", CASES, ids=lambda known: f"{known[0]}-{known[1]}")
def test_known_case_is_found_for_its_reason(
    without_remedy: dict[tuple[str, str], Result], known: tuple[str, str, str, str, str | None]
) -> None:
    _, property_id, place, reason, ledger = known
    found = without_remedy[property_id, place]
    assert found.verdict == "refuted"
    assert found.reason.startswith(reason)
    assert ledger in (None, found.ledger)


def test_in_place_is_what_the_watchdog_kills(without_remedy: dict[tuple[str, str], Result]) -> None:
    # B06: retract is safe, it clears the field that the watchdog reads.
    for loop in ("normal", "overlap"):
        assert without_remedy["engine-survives", f"{loop} retract none"].verdict == "proved"
        assert without_remedy["engine-survives", f"{loop} in_place none"].verdict == "refuted"


def _actions(result: Result) -> list[str]:
    assert result.trace is not None
    return [step.action for step in result.trace.steps]


def test_traces_of_the_known_cases(without_remedy: dict[tuple[str, str], Result]) -> None:
    # B12: one request waits, the engine pauses: the immediate gate is open, the deferred one is not.
    assert _actions(without_remedy["deferred-flush-agrees", "normal retract none"]) == ["Arrive", "Pause"]
    # B06: a batch was launched, and then nothing counts on.
    assert _actions(without_remedy["engine-survives", "overlap in_place none"]) == ["Arrive", "RunningPass", "Pause"]
    # B16: the split begins with the refused update.
    assert _actions(without_remedy["versions-agree", "normal retract none"])[-1] == "UpdateRefused"
    # B04: written to storage before the update, which is granted.
    stored = _actions(without_remedy["update-tells-truth", "normal retract file"])
    assert stored[-1] == "UpdateFlushed"
    assert "StorageDone(backup.queued)" in stored[:-1]
    # B02: the refused update, then continue, then a forward.
    stale = _actions(without_remedy["no-stale-kv", "normal retract none"])
    assert stale[-3:] == ["UpdateRefused", "Continue", "RunningPass"]


def test_overlap_pause_itself_starts_the_copy(without_remedy: dict[tuple[str, str], Result]) -> None:
    # B03 a: before the pause nothing was in flight; the handler processed the queued result, which made the entry.
    trace = without_remedy["paused-flush-succeeds", "overlap retract none"].trace
    assert trace is not None
    at = [s.action for s in trace.steps].index("Pause")
    assert not any(name.startswith("write_through") for name in trace.steps[at - 1].state)
    assert trace.steps[at].state["write_through_submitted"] == 1
