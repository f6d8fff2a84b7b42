"""What an earlier search found is checked in full before it counts: what is not so is never taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from checker.decide.decided import Decided
from checker.hints import Hints
from checker.kept import model, replay
from checker.kept.model import Kept, KeptClaim, KeptConfiguration, KeptProof, KeptRun, load_kept
from checker.proof.obligations import Proof
from checker.proof.system import System, UndecidedError
from checker.results import Result
from checker.verdict import Verdict
from checker.verify import Request, verify
from checker.workbench import Workbench
from spec.profile import Configuration, load_profile
from spec.properties import chosen

PROFILE = load_profile("sglang-0.5.23")
HERE = Configuration("normal", "retract", "none")
KEPT = load_kept(PROFILE, 0)
assert KEPT is not None


def decided(
    kept: KeptConfiguration, claims: tuple[KeptClaim, ...], configuration: Configuration = HERE
) -> dict[str, Decided]:
    """How each of these claims is decided where they are what is kept."""
    one = msgspec.structs.replace(kept, claims=claims)
    hints: Hints[Decided] = Hints(kept=Kept(1, "sglang-0.5.23", [], "", 0, [one]))
    bench = Workbench(PROFILE, configuration, hints=hints)
    for prop in chosen(tuple({claim.key.split("/")[0] for claim in claims})):
        bench.decide(prop)
    return {claim.key: hints.decided[claim.key] for claim in claims}


@cache
def here(configuration: Configuration = HERE) -> KeptConfiguration:
    assert KEPT is not None
    found = KEPT.of(configuration)
    assert found is not None
    return found


def plain(result: Result) -> tuple[object, ...]:
    """What does not depend on Z3's numbers of terms, which differ between processes: not which minimal run is found."""
    steps = bool(result.trace and result.trace.steps)
    # What is kept of a proof may do without a rank that the search had found.
    reason = "" if result.verdict == "proved" else result.reason
    return result.property, result.configuration, result.verdict, result.method, reason, result.ledger, steps


def test_it_is_what_a_search_finds_and_all_of_it_holds() -> None:
    loops = ("overlap",)
    kept, searched = verify(Request(PROFILE, loops=loops)), verify(Request(PROFILE, loops=loops, anew=True))
    assert list(map(plain, kept.results)) == list(map(plain, searched.results))
    assert not any(r.kept for r in searched.results)
    assert {r.verdict for r in kept.results if not r.kept} == {Verdict.NOT_APPLICABLE.value}


@pytest.mark.parametrize("name", ["grammar", "limits", "no-flag", "prefill", "decode"])
def test_all_that_is_kept_for_the_other_profiles_holds(name: str) -> None:
    results = verify(Request(load_profile(f"sglang-0.5.23-{name}"))).results
    assert {r.verdict for r in results if not r.kept} == {Verdict.NOT_APPLICABLE.value}


def test_another_seed_another_file_and_another_configuration_are_searched(tmp_path: Path) -> None:
    assert load_kept(PROFILE, 1) is None
    copy = tmp_path / "sglang-0.5.23.toml"
    copy.write_text(Path(PROFILE.path).read_text())
    assert load_kept(load_profile(str(copy)), 0) is None
    assert here().configuration == HERE.as_dict()
    assert KEPT is not None
    assert KEPT.of(replace(HERE, ranks=2)) is None


def test_a_remedy_has_a_file_of_its_own() -> None:
    repaired = PROFILE.with_remedies(["reap-while-paused"])
    kept = load_kept(repaired, 0)
    assert kept is not None
    assert (kept.profile, kept.remedies) == ("sglang-0.5.23", ["reap-while-paused"])
    request = Request(repaired, loops=("normal",), modes=("retract",), properties=("paused-flush-succeeds",))
    assert [(r.verdict, r.kept) for r in verify(request).results] == [("proved", True)] * 2


def test_with_a_difference_that_has_none_what_it_changes_is_decided_otherwise() -> None:
    request = Request(
        PROFILE.with_remedies(["flush-waits", "reap-while-paused"]), loops=("normal",), modes=("retract",)
    )
    results = verify(replace(request, properties=("paused-flush-succeeds", "flush-only-when-quiescent"))).results
    found = {(r.property, r.verdict, r.kept) for r in results}
    assert len(results) == 4
    assert found == {("paused-flush-succeeds", "proved", False), ("flush-only-when-quiescent", "proved", True)}


def _smaller_proofs(proof: KeptProof) -> Iterator[KeptProof]:
    """The proof without one of its lemmas, or one of its helpful units, or its rank."""
    for part in ("lemmas", "helpful"):
        whole = getattr(proof, part)
        for place in range(len(whole)):
            yield msgspec.structs.replace(proof, **{part: [*whole[:place], *whole[place + 1 :]]})
    if proof.rank:
        yield msgspec.structs.replace(proof, rank=[])


def _proofs(claims: list[KeptClaim]) -> Iterator[KeptClaim]:
    for claim in claims:
        for smaller in _smaller_proofs(claim.proof) if claim.proof else ():
            yield msgspec.structs.replace(claim, proof=smaller)


def test_no_proof_holds_without_any_one_of_its_parts() -> None:
    there = Configuration("normal", "abort", "none")
    mutants = list(_proofs([c for c in here(there).claims if c.proof]))
    assert len(mutants) == 35
    assert [m for m in mutants if decided(here(there), (m,), there)[m.key].kept] == []


def _shorter(run: KeptRun) -> KeptRun:
    return msgspec.structs.replace(run, steps=run.steps[:-1])


def _elsewhere(run: KeptRun) -> KeptRun:
    return msgspec.structs.replace(run, steps=[*run.steps[:-1], ("NoSuchAction", {})])


def _loops_too_late(run: KeptRun) -> KeptRun:
    return msgspec.structs.replace(run, loop_from=len(run.steps) + 1)


@pytest.mark.parametrize("tamper", [_shorter, _elsewhere, _loops_too_late])
def test_no_run_that_is_not_one_counts_and_the_search_finds_another(tamper: Callable[[KeptRun], KeptRun]) -> None:
    claims = {c.key: c for c in here().claims if c.run and not (c.run.stuck and tamper is _shorter)}
    tampered = tuple(msgspec.structs.replace(c, run=tamper(c.run)) for c in claims.values() if c.run)
    found = decided(here(), tampered)
    assert len(tampered) == (4 if tamper is _shorter else 8)
    assert {(d.verdict, d.kept) for d in found.values()} == {(Verdict.REFUTED, False)}


def test_a_region_that_is_not_closed_is_none() -> None:
    claim = next(c for c in here().claims if c.run and c.run.stuck and c.key.startswith("paused-flush-succeeds"))
    assert claim.run is not None
    assert claim.run.stuck is not None
    stuck = msgspec.structs.replace(claim.run.stuck, atoms=[*claim.run.stuck.atoms, "queue_requests"])
    wider = msgspec.structs.replace(claim, run=msgspec.structs.replace(claim.run, stuck=stuck))
    assert decided(here(), (claim,))[claim.key].kept
    assert not decided(here(), (wider,))[claim.key].kept


def test_a_term_that_is_none_any_more_is_passed_over() -> None:
    claim = next(c for c in here().claims if c.proof and c.proof.lemmas)
    gone = msgspec.structs.replace(here(), terms=["(> no_such_counter 0)"] * len(here().terms))
    assert decided(here(), (claim,))[claim.key].kept
    again = decided(gone, (claim,))[claim.key]
    assert (again.verdict, again.kept) == (Verdict.PROVED, False)


def test_a_proof_about_nothing_is_none() -> None:
    claim = next(c for c in here().claims if c.pending)
    assert not decided(here(), (msgspec.structs.replace(claim, pending=None),))[claim.key].kept
    assert not decided(here(), (msgspec.structs.replace(claim, pending=[]),))[claim.key].kept


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff\xfe", b"[" * 100_000, None])
def test_a_file_that_is_broken_or_missing_keeps_nothing(
    text: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    if text is not None:
        (tmp_path / "kept" / "sglang-0.5.23.json").write_bytes(text)
    monkeypatch.setattr(model, "files", lambda _package: tmp_path)
    assert load_kept(PROFILE, 0) is None


def test_what_is_too_hard_to_check_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(_system: System, _proof: Proof) -> bool:
        raise UndecidedError("canceled")

    claim = next(c for c in here().claims if c.key == "requests-conserved//0")
    monkeypatch.setattr(replay, "holds", gives_up)
    again = decided(here(), (claim,))[claim.key]
    assert (again.verdict, again.kept) == (Verdict.PROVED, False)


@pytest.mark.parametrize("place", [-1, 10_000])
def test_a_lemma_that_is_not_in_the_table_is_passed_over(place: int) -> None:
    claim = next(c for c in here().claims if c.proof and c.proof.lemmas)
    assert claim.proof is not None
    gone = msgspec.structs.replace(claim, proof=msgspec.structs.replace(claim.proof, lemmas=[place]))
    again = decided(here(), (gone,))[claim.key]
    assert (again.verdict, again.kept) == (Verdict.PROVED, False)
