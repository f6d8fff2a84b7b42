"""The judge: known mutants are killed as they should be, what changes nothing survives, a sample is the same."""

from __future__ import annotations

import pytest
import z3

from checker.mutate.judge import Judge, Kill, same_claim
from checker.mutate.mutants import Mutant
from checker.mutate.results import SCHEMA, Outcome, Report
from checker.mutate.run import Request, Tried, in_each_place, mutate, sampled
from checker.mutate.show import lines
from checker.mutate.suite import Place, suite
from spec.profile import Configuration, bundled_profiles, load_profile
from spec.tla import Always, Claim, EachStep, FinitelyOften, LeadsTo

PROFILE = load_profile("sglang-0.5.23").with_remedies(["all"])
PLACE = Configuration("normal", "retract", "none")
HERE = (Place(PROFILE, PLACE),)
REJECTED = {"rejected-blocking-drain", "rejected-retrying-reap-unbounded"}
FOURTH = "sglang-0.5.23-ranks-4"
"""Another rank like the third."""


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(PROFILE, PLACE)


KILLED = {
    Mutant("update", "Pause", "waiting unchanged"): Kill("verdict", "requests-conserved"),
    Mutant("guard", "FlushGranted", "drop gate flush"): Kill("verdict", "flush-only-when-quiescent"),
    Mutant("gate", "deferred_flush", "weaken write_through_ready = 0"): Kill("verdict", "deferred-flush-agrees"),
    Mutant("update", "DeferFlush", "deferred_pending unchanged"): Kill("vacuous", "control-answered"),
    Mutant("step", "loops.normal.paused", "drop 1 reap"): Kill("verdict", "paused-flush-succeeds"),
    Mutant("step", "loops.normal.paused", "drop 2 record"): Kill("verdict", "idle-is-true"),
    Mutant("fairness", "DeviceDone(load_back.submitted)", "none"): Kill("verdict", "paused-flush-succeeds"),
    Mutant("update", "ArriveLate", "mine_ahead unchanged"): Kill("refused", "abort-answered"),
    # What only claims read is noticed by a claim about the spec itself.
    Mutant("update", "Unpark", "mine_waiting unchanged"): Kill("verdict", "bookkeeping"),
    Mutant("guard", "FlushRefused", "drop ~gate flush"): Kill("verdict", "flush-tells-truth"),
}


@pytest.mark.parametrize("mutant", KILLED, ids=str)
def test_known_mutants_are_noticed(mutant: Mutant, judge: Judge) -> None:
    assert mutant in judge.mutants()
    found, expected = judge.judged(mutant), KILLED[mutant]
    assert found is not None
    assert found.how == expected.how
    assert not expected.property_id or found.property_id == expected.property_id


def test_what_makes_no_spec_is_refused_and_is_not_the_same() -> None:
    """On a decode worker a step has a condition that another makes: without that one nothing is defined."""
    profile = load_profile("sglang-0.5.23-decode")
    judge = Judge(profile, Configuration("decode-normal", "retract", "none"))
    without = Mutant("step", "loops.decode-normal.running", "drop 3 schedule")
    assert without in judge.mutants()
    assert judge.same(without) is None
    assert judge.judged(without) == Kill("refused", "definition")


def test_a_claim_of_another_kind_is_another_claim() -> None:
    true, other = z3.BoolVal(True), z3.Bool("other")
    claims: list[Claim] = [
        Always(true),
        EachStep(true),
        LeadsTo(true, other),
        FinitelyOften(true, other),
        Always(other),
    ]
    assert [[same_claim(left, right) for right in claims] for left in claims] == [
        [left == right for right in range(5)] for left in range(5)
    ]


def test_what_is_no_mutant_survives(judge: Judge) -> None:
    # Negative control: nothing is lost, so nothing may be noticed, by any of the claims.
    assert judge.judged(Mutant("update", "Arrive", "late unchanged")) is None
    verdicts = {k.decided.verdict.value for k in judge.known}
    assert verdicts == {"proved", "refuted"}


def test_what_no_claim_reads_survives(judge: Judge) -> None:
    # A loop without a queued result has none to process at a pause.
    assert judge.judged(Mutant("step", "pause.retract", "drop 1 process")) is None


def test_one_mutant_teaches_the_next_nothing(judge: Judge) -> None:
    mutant = Mutant("step", "loops.normal.paused", "drop 1 reap")
    before = {k.key: k.decided.verdict for k in judge.known}
    first = judge.judged(mutant)
    assert judge.judged(mutant) == first
    assert {k.key: k.decided.verdict for k in judge.known} == before


def test_a_sample_is_chosen_by_the_seed_alone(judge: Judge) -> None:
    every = judge.mutants()
    one, two = (sampled(every, Request(HERE, 6, seed, workers)) for seed, workers in ((1, 1), (1, 2)))
    assert one == two
    assert len(one) == 6
    assert one != sampled(every, Request(HERE, 6, 2))
    assert sampled(every, Request(HERE)) == every


def test_workers_agree_with_the_judge(judge: Judge) -> None:
    request = Request(HERE, sample=4, seed=3, workers=2)
    report = mutate(request)
    assert report.complete
    assert report.mutants == len(judge.mutants())
    tried = sampled(judge.mutants(), request)
    assert [o.mutant for o in report.outcomes] == list(map(str, tried))
    for mutant, outcome in zip(tried, report.outcomes, strict=True):
        kill = judge.judged(mutant)
        assert (outcome.how, outcome.property) == ((kill.how, kill.property_id) if kill else ("", ""))


def test_a_mutant_is_judged_where_it_acts(judge: Judge) -> None:
    # A normal loop has no result that waits: what the device does to it is another loop's.
    there = Place(PROFILE, Configuration("overlap", "retract", "none"))
    mutant = Mutant("update", "ForwardDone", "forward_busy unchanged")
    assert mutant not in judge.mutants()
    other = Judge(there.profile, there.configuration)
    assert mutant in other.mutants()
    tried = Tried(str(mutant), mutant.kind, [there.name])
    assert not tried.is_decided
    assert len(list(in_each_place(Request((*HERE, there)), [tried]))) == 1
    assert (tried.outcome.killed, tried.outcome.place) == (True, there.name)


def test_what_no_place_notices_survives_in_each() -> None:
    # It is no mutant of the second place, in which nobody is asked then; in the first one nothing is lost.
    nothing = Tried("step pause.retract: drop 1 process", "step", [HERE[0].name])
    there = Place(PROFILE, Configuration("overlap", "retract", "none"))
    assert len(list(in_each_place(Request((*HERE, there)), [nothing]))) == 1
    assert nothing.is_decided
    assert not nothing.outcome.killed
    assert nothing.outcome.reason, "the same spec"


def test_the_suite_has_every_bundled_profile() -> None:
    names = {place.profile.name for place in suite()}
    # Of the rejected designs one: they are the bundled profile with other steps.
    assert {name for name in bundled_profiles() if name not in names} == REJECTED | {FOURTH}
    assert len({place.name for place in suite()}) == len(suite())


def test_text_tells_survivors_with_their_place() -> None:
    outcomes = [
        Outcome("guard A: drop x", "guard", killed=True, how="verdict", property="versions-agree"),
        Outcome("update A: y unchanged", "update", killed=False),
        Outcome("update B: z unchanged", "update", killed=False, reason="z is read by nobody"),
    ]
    place = {"loop": "normal", "mode": "retract", "storage": "none"}
    report = Report(SCHEMA, "mine", ["all"], place, 7, 90, outcomes)
    assert list(lines(report)) == [
        "mine, all: loop normal, mode retract, storage none",
        "3 of 90 mutants, seed 7",
        "  killed        1 (33.3%): verdict 1",
        "    by a property 1",
        "  equivalent    1, so that 50.0% of the others are killed",
        "  survived      1",
        "    guard        1 of    1 killed",
        "    update       0 of    2 killed",
        "survived:",
        "  update A: y unchanged",
        "equivalent:",
        "  update B: z unchanged (z is read by nobody)",
    ]
