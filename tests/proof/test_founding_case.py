"""The founding case in exact numbers: refuted without the remedy, proved with it; the rejected designs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from proof_toys import assert_proved, numbers, second_opinion

from checker.decide.decided import Decided
from checker.proof.interpreter import Interpreter
from checker.proof.obligations import Helpful, Proof, obligations
from checker.proof.refute import stuck_region
from checker.proof.system import Limits, System
from checker.reasons import Case, why
from checker.workbench import Workbench
from spec.profile import Configuration, load_profile
from spec.properties import catalogue
from spec.protocol import Protocol
from spec.tla import LeadsTo

if TYPE_CHECKING:
    from proof_desk import Desk

FLUSH = "paused-flush-succeeds"
REMEDY = ("reap-while-paused",)
PAUSED_WITH_FLUSH = ["normal retract none", "normal retract file", "overlap retract none", "overlap retract file"]
DEVICE = ["write_through_submitted", "write_through_ready", "load_back_submitted", "load_back_ready"]
STORAGE = ["backup_queued", "backup_ready", "prefetch_query", "prefetch_hit", "prefetch_loading", "prefetch_done"]
RUNS = {
    "write_through": (["Arrive", "RunningPass", "Pause"], 5, "write_through_ready"),
    "prefetch": (["Arrive", "Pause"], 4, "prefetch_hit"),
}
"""By the ledger that a minimal run names: how it begins, its length, and what has landed at its end."""


def _ledger(found: Decided, place: str) -> str | None:
    loop, mode, storage = place.split()
    protocol = Protocol(load_profile("sglang-0.5.23"), Configuration(loop, mode, storage))
    assert found.confirmed is not None
    return why(FLUSH, Case(protocol, found.confirmed, found.part.about, found.method)).ledger


@pytest.mark.parametrize("place", PAUSED_WITH_FLUSH)
def test_without_the_remedy(desk: Desk, place: str) -> None:
    (found,) = desk(FLUSH, place)
    storage = place.endswith("file")
    ledger = _ledger(found, place)
    # With storage there are two minimal runs, of which the solver finds one.
    assert ledger in (RUNS if storage else ["write_through"])
    prefix, steps, landed = RUNS[str(ledger)]
    assert (found.verdict.value, found.method) == ("refuted", "stuck-region")
    run = found.confirmed
    assert run is not None
    names = [s.action for s in run.steps]
    assert names[: len(prefix)] == prefix
    assert names[len(prefix)] in ("FlushRefused", "UpdateRefused")
    assert (len(names), run.loop_from) == (steps, steps)
    assert found.refutation is not None
    assert found.refutation.stuck is not None
    assert list(found.refutation.stuck.atoms) == DEVICE + (STORAGE if storage else [])
    # The copies have landed, and nothing takes their entries.
    assert run.last["paused"] is True
    assert run.last["flush_wanted"] is True
    assert [n for n in DEVICE + STORAGE if run.last.get(n)] == [landed]


@pytest.mark.parametrize("place", PAUSED_WITH_FLUSH)
def test_with_the_remedy(desk: Desk, place: str) -> None:
    found = desk(FLUSH, place, remedies=REMEDY)
    assert [(d.verdict.value, d.method) for d in found] == [("proved", "ranking"), ("proved", "induction")]
    proof = found[0].proof
    system = found[0].system
    assert proof is not None
    assert system is not None
    moves = ["DeviceDone(write_through.submitted)", "DeviceDone(load_back.submitted)"]
    if place.endswith("file"):
        moves += ["StorageDone(backup.queued)", "StorageDone(prefetch.query)", "StorageDone(prefetch.loading)"]
    assert sorted(h.unit for h in proof.helpful) == sorted(["EventLoop", *moves])
    assert {str(h.where) for h in proof.helpful} == {"True"}
    assert proof.recurrent == ()
    # `~has_host` is no part that a person would name: the greedy search takes it on its way to `late`.
    storage = {*STORAGE, "~has_host"} if place.endswith("file") else set()
    assert {c.name for c in proof.rank} == {"late", *DEVICE} | storage
    assert len(proof.rank) == {"none": 5, "file": 12}[place.split()[2]]
    counts = {"normal none": 106, "normal file": 203, "overlap none": 109, "overlap file": 206}
    assert len(obligations(system, proof)) == counts[place.replace(" retract", "")]


@pytest.mark.parametrize("place", ["normal retract none", "overlap retract file"])
def test_both_solvers_agree_to_the_proof(desk: Desk, place: str) -> None:
    for found in desk(FLUSH, place, remedies=REMEDY):
        assert_proved(found)


def _proof(desk: Desk) -> tuple[System, Proof]:
    found = desk(FLUSH, "normal retract none", remedies=REMEDY)[0]
    assert found.proof is not None
    assert found.system is not None
    return found.system, found.proof


def test_parts_of_the_rank_are_needed(desk: Desk) -> None:
    system, proof = _proof(desk)
    missed = {}
    for place, component in enumerate(proof.rank):
        less = replace(proof, rank=proof.rank[:place] + proof.rank[place + 1 :])
        missed[component.name] = numbers(system, less)
    # Without storage a late request starts no lookup, so that its place in the rank is not needed.
    assert missed.pop("late") == []
    assert missed.keys() == set(DEVICE)
    # A copy that lands, or a reap, no longer lowers it.
    assert all(6 in failing for failing in missed.values()), missed


def test_order_of_the_rank_is_needed(desk: Desk) -> None:
    system, proof = _proof(desk)
    # A copy that lands makes a ready entry of a submitted one.
    assert {5, 6} <= set(numbers(system, replace(proof, rank=proof.rank[::-1])))
    assert second_opinion(system, replace(proof, rank=proof.rank[::-1])) == {"sat", "unsat"}


def test_lemmas_are_needed(desk: Desk) -> None:
    system, proof = _proof(desk)
    assert numbers(system, replace(proof, lemmas=())) != []
    invented = (*proof.lemmas, system.spec.variable("write_through_queued").now > 0)
    assert 1 in numbers(system, replace(proof, lemmas=invented))


def test_helpful_units_are_needed(desk: Desk) -> None:
    system, proof = _proof(desk)
    for place, helpful in enumerate(proof.helpful):
        fewer = proof.helpful[:place] + proof.helpful[place + 1 :]
        assert numbers(system, replace(proof, helpful=fewer)) == [7], helpful.unit
        swapped = (*fewer, Helpful("DeferredFlushTimesOut", helpful.where))
        assert {6, 7} & set(numbers(system, replace(proof, helpful=swapped))), helpful.unit


@pytest.mark.parametrize("seed", range(5))
def test_verdicts_do_not_move_with_the_seed(seed: int) -> None:
    plain = load_profile("sglang-0.5.23")
    prop = catalogue()[FLUSH]
    place = Configuration("normal", "retract", "none")
    (refuted,) = Workbench(plain, place, Limits(seed=seed)).decide(prop)
    assert (refuted.verdict.value, refuted.method) == ("refuted", "stuck-region")
    assert refuted.refutation is not None
    assert refuted.refutation.stuck is not None
    assert list(refuted.refutation.stuck.atoms) == DEVICE
    proved = Workbench(plain.with_remedies(REMEDY), place, Limits(seed=seed)).decide(prop)
    assert [d.verdict.value for d in proved] == ["proved", "proved"]
    assert proved[0].proof is not None
    assert len(proved[0].proof.rank) == 5


def test_lookup_that_the_requeue_starts_is_stuck_too(desk: Desk) -> None:
    # B03 b: nothing is in flight before the pause; the retracted request's own lookup blocks the flush.
    (found,) = desk(FLUSH, "normal retract file")
    system = found.system
    assert system is not None
    assert isinstance(found.part.claim, LeadsTo)
    stuck = stuck_region(system, found.part.claim, [])
    assert stuck is not None
    protocol = Protocol(load_profile("sglang-0.5.23"), Configuration("normal", "retract", "file"))
    runner = Interpreter(protocol.spec())
    state = runner.initial()
    for name, chosen in (("Arrive", {"tokens": 1}), ("RunningPass", {"admitted": 1}), ("Pause", {"long": 1})):
        full = runner.witness(state, name) | {f"{name}.{key}": value for key, value in chosen.items()}
        assert runner.legal(state, name, full)
        quiet = not any(state[n] for n in DEVICE + STORAGE)
        state = runner.apply(state, name, full)
    assert quiet
    assert state["prefetch_query"] == 1
    state = runner.apply(state, "FlushRefused", {})
    assert runner.holds(stuck.region)(state)
    settled = runner.settle(state, runner.holds(stuck.region))
    assert settled is not None
    assert "StorageDone(prefetch.query)" in [s.action for s in settled]
    assert settled[-1].state["prefetch_hit"] == 1


@pytest.mark.parametrize("place", ["normal retract file", "overlap retract file"])
def test_rejected_blocking_drain(desk: Desk, place: str) -> None:
    (found,) = desk(FLUSH, place, profile="rejected-blocking-drain")
    assert (found.verdict.value, found.method) == ("refuted", "stuck-region")
    assert found.confirmed is not None
    # The drain empties every ledger, and then the requeue looks up storage (or a late request does).
    assert found.confirmed.last["prefetch_hit"] >= 1
    assert "Pause" in [s.action for s in found.confirmed.steps]


@pytest.mark.parametrize("place", ["normal retract file", "overlap retract file"])
def test_rejected_retrying_reap(desk: Desk, place: str) -> None:
    profile = "rejected-retrying-reap"
    succeeds, stays = desk(FLUSH, place, profile=profile)
    # With the engine's budget the gate opens in the end, and closes again only when a lookup starts,
    assert [(d.verdict.value, d.method) for d in (succeeds, stays)] == [("proved", "ranking"), ("proved", "induction")]
    # which a paused pass does.
    (lookup,) = desk("no-new-lookup-while-paused", place, profile=profile)
    assert lookup.verdict.value == "refuted"
    assert lookup.confirmed is not None
    assert lookup.confirmed.steps[-1].action == "PausedPass"
    assert [d.verdict.value for d in desk("paused-work-ends", place, profile=profile)] == ["proved"]


def test_rejected_retrying_reap_without_a_budget(desk: Desk) -> None:
    profile, place = "rejected-retrying-reap-unbounded", "normal retract file"
    (flush,) = desk(FLUSH, place, profile=profile)
    assert (flush.verdict.value, flush.method) == ("refuted", "fair-lasso")
    (work,) = desk("paused-work-ends", place, profile=profile)
    assert (work.verdict.value, work.method) == ("refuted", "fair-lasso")
    for found in (flush, work):
        assert found.confirmed is not None
        assert found.confirmed.loop_from is not None
        loop = [s.action for s in found.confirmed.steps[found.confirmed.loop_from :]]
        assert set(loop) == {"PausedPass", "StorageDone(prefetch.query)"}
