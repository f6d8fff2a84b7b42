"""Negative controls: a gate that forgets one term lets a flush through while that term is busy, and is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.decide.decided import Decided
from checker.workbench import Workbench
from spec.profile import Configuration, load_profile
from spec.properties import catalogue

GATE = ["running", "last_batch", "result_pending", "write_through", "load_back", "backup", "prefetch"]
BUSY = {
    "write_through": ["write_through_queued", "write_through_submitted", "write_through_ready"],
    "load_back": ["load_back_queued", "load_back_submitted", "load_back_ready"],
    "backup": ["backup_queued", "backup_ready"],
    "prefetch": ["prefetch_query", "prefetch_hit", "prefetch_loading", "prefetch_done"],
    "running": ["running"],
    "result_pending": ["result_pending"],
}


def forgetting(folder: Path, *terms: str) -> Path:
    """A profile whose flush gate does not wait for these terms."""
    left = ", ".join(f'"{t}"' for t in GATE if t not in terms)
    path = folder / "forgetful.toml"
    path.write_text(f'schema = 1\nbase = "sglang-0.5.23"\n[set.gates.flush]\nwaits_for = [{left}]\n', encoding="utf-8")
    return path


def quiescent(path: Path, place: str) -> Decided:
    loop, mode, storage = place.split()
    bench = Workbench(load_profile(str(path)), Configuration(loop, mode, storage))
    (found,) = bench.decide(catalogue()["flush-only-when-quiescent"])
    return found


@pytest.mark.parametrize(
    ("term", "place"),
    [
        ("write_through", "normal retract none"),
        ("load_back", "normal retract none"),
        ("backup", "normal retract file"),
        ("prefetch", "normal retract file"),
        ("write_through", "overlap abort none"),
        ("prefetch", "overlap in_place file"),
    ],
)
def test_gate_that_forgets_a_ledger(tmp_path: Path, term: str, place: str) -> None:
    found = quiescent(forgetting(tmp_path, term), place)
    assert found.verdict.value == "refuted"
    run = found.confirmed
    assert run is not None
    before = run.steps[-2].state
    assert [n for name, counters in BUSY.items() for n in counters if before.get(n)] == [
        n for n in BUSY[term] if before[n]
    ]
    assert any(before[n] for n in BUSY[term])
    assert run.last["flushes"] == before["flushes"] + 1


def test_terms_that_say_the_same_are_one(tmp_path: Path) -> None:
    # While a request runs its batch is the last batch, and a queued result is one of it: dropping one is no mutant.
    place = "overlap in_place none"
    for term in ("running", "last_batch", "result_pending"):
        assert quiescent(forgetting(tmp_path, term), place).verdict.value == "proved"
    found = quiescent(forgetting(tmp_path, "running", "last_batch", "result_pending"), place)
    assert found.verdict.value == "refuted"
    assert found.confirmed is not None
    assert found.confirmed.steps[-2].state["running"] >= 1


def test_gate_that_forgets_nothing(tmp_path: Path) -> None:
    assert quiescent(forgetting(tmp_path), "normal retract file").verdict.value == "proved"


def test_threshold_is_exact(tmp_path: Path) -> None:
    # A request of 255 uncached tokens is not looked up, one of 256 is.
    del tmp_path
    bench = Workbench(load_profile("sglang-0.5.23"), Configuration("normal", "retract", "file"))
    runner = bench.subject(follow_request=False).interpreter
    for tokens, lookups in ((255, 0), (256, 1)):
        picked = runner.witness(runner.initial(), "Arrive") | {"Arrive.tokens": tokens}
        assert runner.apply(runner.initial(), "Arrive", picked)["lookups"] == lookups
