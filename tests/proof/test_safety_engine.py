"""Safety: induction over templates, Spacer where they do not suffice, a shortest run, and a bound that never passes."""

from __future__ import annotations

from proof_toys import NONE, Rule, adds, assert_proved, counter, decide, flag, numbers, toy

from checker.proof.interpreter import Interpreter
from checker.proof.lemmas import Samples, find_lemmas, spacer_invariant
from checker.proof.obligations import Proof
from checker.proof.safety import prove_always, prove_by_spacer
from checker.proof.system import Limits, System
from spec.draft import Draft
from spec.terms import neg
from spec.tla import Always, EachStep, Spec

LOST = flag("lost")
X, Y, Z = counter("x"), counter("y"), counter("z")
NEVER_LOST = Always(neg(LOST.now))


def _lose_ahead(s: Draft) -> None:
    s.when(s.x > s.y)
    s.lost = True


def _in_step() -> Spec:
    # x never passes y: no template compares two counters, Spacer does.
    return toy(
        [X, Y, LOST], Rule("Both", NONE, adds("x", "y")), Rule("Lose", NONE, _lose_ahead), Rule("Y", NONE, adds("y"))
    )


def _templates(spec: Spec) -> tuple[System, list[object]]:
    system = System(spec)
    return system, [
        *find_lemmas(
            system, Samples(Interpreter(spec).initial(), Interpreter(spec).walks(12, 80, 0)), [NEVER_LOST.holds]
        )
    ]


def test_invariant_that_only_spacer_finds() -> None:
    system, lemmas = _templates(_in_step())
    assert prove_always(system, NEVER_LOST, lemmas) is None
    found = decide(_in_step(), NEVER_LOST)
    proof = assert_proved(found)
    assert found.method == "spacer"
    # Its lemma is one of the proof's, and is checked like any other: obligations 1, 2 and 3.
    assert len(proof.lemmas) == len(lemmas) + 1
    assert numbers(system, Proof(NEVER_LOST, proof.lemmas[:-1])) == [3]


def test_spacer_proves_a_claim_about_steps() -> None:
    spec = _in_step()
    claim = EachStep(LOST.next == LOST.now)
    proof = prove_by_spacer(System(spec), claim, [])
    assert proof is not None
    assert numbers(System(spec), proof) == []
    assert decide(spec, claim).verdict.value == "proved"


def test_lemma_of_spacer_that_does_not_fit_is_not_believed() -> None:
    spec = _in_step()
    system = System(spec)
    lemma = spacer_invariant(system, LOST.now)
    assert lemma is not None
    assert numbers(system, Proof(NEVER_LOST, (lemma,))) == []
    assert numbers(system, Proof(NEVER_LOST, (neg(lemma),))) == [1, 2, 3] or 1 in numbers(
        system, Proof(NEVER_LOST, (neg(lemma),))
    )


def test_spacer_finds_no_invariant_where_the_claim_is_false() -> None:
    spec = toy([X, Y, LOST], Rule("X", NONE, adds("x")), Rule("Lose", NONE, _lose_ahead))
    assert spacer_invariant(System(spec), LOST.now) is None
    for limits, method in ((Limits(), "random-run"), (Limits(walks=0), "shortest-run")):
        found = decide(spec, NEVER_LOST, limits)
        assert (found.verdict.value, found.method) == ("refuted", method)
        assert found.confirmed is not None
        assert [s.action for s in found.confirmed.steps] == ["X", "Lose"]


def test_what_lies_beyond_the_depth_is_bounded() -> None:
    # Broken after 40 steps: deeper than the search goes, and no invariant excludes it.
    def lose(s: Draft) -> None:
        s.when(s.x >= 40)
        s.lost = True

    spec = toy([X, LOST], Rule("Grow", NONE, adds("x")), Rule("Lose", NONE, lose))
    found = decide(spec, NEVER_LOST, Limits(depth=6, walks=1, walk_length=3))
    assert (found.verdict.value, found.proof, found.confirmed) == ("bounded", None, None)
    assert found.note == "no violation in 6 steps, and no inductive invariant found"
    assert not found.verdict.passes


def test_spacer_out_of_time_proves_nothing() -> None:
    def square(s: Draft) -> None:
        s.x += s.y
        s.y += s.z
        s.z += 1

    def lose(s: Draft) -> None:
        s.when(6 * s.x > s.z * s.z * s.z)
        s.lost = True

    spec = toy([X, Y, Z, LOST], Rule("Square", NONE, square), Rule("Lose", NONE, lose))
    found = decide(spec, NEVER_LOST, Limits(depth=2, spacer_milliseconds=1, work=1_000_000))
    assert found.verdict.value in ("bounded", "unknown")


def test_counterexample_has_the_fewest_steps() -> None:
    def lose(s: Draft) -> None:
        s.when(s.x >= 2, s.y >= 1)
        s.lost = True

    spec = toy([X, Y, LOST], Rule("X", NONE, adds("x")), Rule("Both", NONE, adds("x", "y")), Rule("Lose", NONE, lose))
    found = decide(spec, NEVER_LOST)
    assert found.confirmed is not None
    assert len(found.confirmed.steps) == 3
    assert found.confirmed.steps[-1].action == "Lose"


def test_dropping_a_lemma_is_noticed() -> None:
    # `lost` stays false since `open` does: without that lemma step 2 or 3 fails.
    opened = flag("open")

    def lose(s: Draft) -> None:
        s.when(s.open)
        s.lost = True

    spec = toy([opened, LOST], Rule("Lose", NONE, lose))
    found = decide(spec, NEVER_LOST)
    proof = assert_proved(found)
    assert found.system is not None
    assert numbers(found.system, Proof(proof.claim, ())) == [3]
    assert numbers(found.system, Proof(proof.claim, (neg(LOST.now),))) == [2]
