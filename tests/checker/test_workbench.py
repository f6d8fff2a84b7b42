"""The order of provers and refuters changes no verdict, hints are only hints, and guard rails are on."""

import pytest

from checker.hints import Hints
from checker.proof.interpreter import Step
from checker.verdict import Verdict
from checker.workbench import Workbench, decide_part
from spec.profile import Configuration, load_profile
from spec.properties import Part, catalogue
from spec.terms import conj, neg
from spec.tla import Always, LeadsTo

PROFILE = load_profile("sglang-0.5.23")
PLACE = Configuration("normal", "retract", "none")


@pytest.fixture(scope="module")
def subject():
    return Workbench(PROFILE, PLACE).subject(follow_request=False)


def test_a_vacuous_claim_is_not_proved(subject):
    now = subject.protocol.now
    never = conj(now.paused, now.running > 0)
    found = decide_part(subject, Part(LeadsTo(pending=never, goal=now.last_batch)))
    assert (found.verdict, found.method) == (Verdict.UNKNOWN, "vacuous")
    assert found.note == "vacuous: no reachable state is pending"


def test_a_claim_that_holds_of_what_is_reachable_only(subject):
    now = subject.protocol.now
    found = decide_part(subject, Part(Always(neg(conj(now.flush_wanted, now.running > 0)))))
    assert (found.verdict, found.method) == (Verdict.PROVED, "induction")
    # Not inductive by itself: it stands on a lemma.
    assert found.proof is not None
    assert len(found.proof.lemmas) > 1


@pytest.mark.parametrize("name", ["paused-flush-succeeds", "versions-agree", "requests-return"])
def test_hints_change_no_verdict(name):
    prop = catalogue()[name]
    misleading = Hints()
    nonsense = Step("Pause", {"Pause.late": 5}, {})
    for number in range(2):
        misleading.refuted(f"{name}//{number}", [nonsense, nonsense])
        misleading.proved(f"{name}//{number}", [((1, "waiting"),), ((7, "nowhere"),)])
    plain = [d.verdict for d in Workbench(PROFILE, PLACE).decide(prop)]
    hinted = [d.verdict for d in Workbench(PROFILE, PLACE, hints=misleading).decide(prop)]
    assert plain == hinted


def test_a_run_of_one_configuration_is_replayed_in_the_next():
    hints = Hints()
    prop = catalogue()["deferred-flush-agrees"]
    first = Workbench(PROFILE, PLACE, hints=hints).decide(prop)
    second = Workbench(PROFILE, Configuration("normal", "in_place", "none"), hints=hints).decide(prop)
    assert [d.method for d in (*first, *second)] == ["random-run", "known-run"]
    assert [len(d.confirmed.steps) for d in (*first, *second)] == [2, 2]
