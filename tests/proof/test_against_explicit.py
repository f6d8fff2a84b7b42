"""Random small specs, decided by the provers and by an explicit-state judge: neither verdict is ever wrong."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from explicit import Explicit, random_claims, random_spec
from proof_toys import NONE, STRONG, TRUE, WEAK, Rule, assert_proved, decide, flag, sets, toy

from checker.proof.system import Limits
from spec.draft import Draft
from spec.terms import neg
from spec.tla import Always, EachStep, Fairness, LeadsTo

LIMITS = Limits(walks=4, walk_length=30, spacer_milliseconds=500)
BATCHES, EACH = 6, 6


def holds(judge: Explicit, claim: LeadsTo | Always | EachStep) -> bool:
    if isinstance(claim, LeadsTo):
        return judge.leads_to(claim)
    return judge.always(claim) if isinstance(claim, Always) else judge.each_step(claim)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_verdict_is_wrong(batch: int) -> None:
    tally: Counter[tuple[str, bool]] = Counter()
    for seed in range(batch * EACH, (batch + 1) * EACH):
        rng = random.Random(seed)  # noqa: S311 - not for secrets
        spec = random_spec(rng)
        judge = Explicit(spec)
        for claim in random_claims(rng, spec):
            found = decide(spec, claim, LIMITS)
            truth = holds(judge, claim)
            assert (found.verdict.value, truth) not in {("proved", False), ("refuted", True)}, (seed, claim)
            if found.verdict.value == "proved" and seed % 3 == 0:
                assert_proved(found)
            tally[found.verdict.value, truth] += 1
    # It is no empty agreement: most are decided, some each way.
    assert tally["proved", True] >= 2
    assert tally["refuted", False] >= 2
    undecided = sum(count for (verdict, _), count in tally.items() if verdict in ("unknown", "bounded"))
    assert undecided <= 6


def _toggle(s: Draft) -> None:
    s.p = neg(s.p)


def _finish(s: Draft) -> None:
    s.when(s.p)
    s.q = True


@pytest.mark.parametrize(("fairness", "truth"), [(NONE, False), (WEAK, False), (STRONG, True)])
def test_judge_tells_fairness_apart(fairness: Fairness, truth: bool) -> None:  # noqa: FBT001
    spec = toy([flag("p"), flag("q")], Rule("Toggle", WEAK, _toggle), Rule("Finish", fairness, _finish))
    assert Explicit(spec).leads_to(LeadsTo(TRUE, flag("q").now)) is truth


def test_judge_knows_stuttering() -> None:
    never = toy([flag("q")], Rule("Finish", NONE, sets("q")))
    assert not Explicit(never).leads_to(LeadsTo(TRUE, flag("q").now))
    fair = toy([flag("q")], Rule("Finish", WEAK, sets("q")))
    assert Explicit(fair).leads_to(LeadsTo(TRUE, flag("q").now))
    assert len(Explicit(fair).states) == 2
