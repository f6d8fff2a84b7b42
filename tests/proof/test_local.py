"""A large spec: a claim is tried on what it needs of it first, which may prove it, and says nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import z3
from proof_toys import NONE, TRUE, WEAK, Rule, assert_proved, counter, decide, flag, toy
from synthetic import synthetic

from checker.decide.decided import Decided
from checker.proof.interpreter import Interpreter
from checker.proof.system import Limits
from checker.workbench import VACUOUS, Workbench, decide_part
from spec.cone import LARGE, Cones
from spec.draft import Draft
from spec.profile import load_profile
from spec.properties import chosen
from spec.terms import BoolTerm, conj, neg
from spec.tla import Action, Always, LeadsTo, Spec

MANY = LARGE + 5
CLOSED = [f"copies_{number:02}" for number in range(MANY)]


def gate(s: Draft) -> BoolTerm:
    return conj(*(s[name] == 0 for name in CLOSED))


def spec_of(*rules: Rule, flags: str, init: dict[str, int | bool] | None = None) -> Spec:
    """Some flags and many counters, each of which falls by fair steps."""

    def lands(name: str) -> Rule:
        def body(s: Draft) -> None:
            s.when(s[name] > 0)
            s[name] -= 1

        return Rule(f"Land({name})", WEAK, body)

    return toy([*map(flag, flags.split()), *map(counter, CLOSED)], *map(lands, CLOSED), *rules, init=init)


def never_lands(spec: Spec, name: str) -> Spec:
    return replace(spec, actions=tuple(a for a in spec.actions if a.name != f"Land({name})"))


def pause(s: Draft) -> None:
    s.when(gate(s))
    s.paused = True


def run(s: Draft) -> None:
    s.when(neg(s.paused), s.marked)
    s.marked = False


MARKED = z3.Bool("marked")
DRAINS = LeadsTo(MARKED, neg(MARKED) | z3.Bool("paused"))
PAUSES = spec_of(Rule("Pause", NONE, pause), Rule("Run", WEAK, run), flags="marked paused", init={"marked": True})


def variables(found: Decided) -> int:
    assert found.system is not None
    return len(found.system.spec.variables)


def test_a_claim_that_the_gate_has_nothing_to_do_with_is_proved_without_what_the_gate_reads():
    found = decide(PAUSES, DRAINS)
    assert_proved(found)
    assert variables(found) == 2
    assert len(Cones(PAUSES).of(DRAINS.pending, DRAINS.goal).variables) == MANY + 2


def test_a_claim_that_rests_on_what_the_gate_reads_is_proved_in_the_whole():
    held = never_lands(spec_of(Rule("Pause", NONE, pause), flags="paused", init={CLOSED[0]: 1}), CLOSED[0])
    found = decide(held, Always(neg(z3.Bool("paused"))))
    assert_proved(found)
    assert variables(found) == MANY + 1


def ready(s: Draft) -> None:
    s.when(gate(s))
    s.ready = True


def finish(s: Draft) -> None:
    s.when(s.ready)
    s.done = True


FINISHES = LeadsTo(TRUE, z3.Bool("done"))
IN_TURN = spec_of(Rule("Ready", WEAK, ready), Rule("Finish", WEAK, finish), flags="ready done", init={CLOSED[0]: 1})
HELD = never_lands(IN_TURN, CLOSED[0])


def test_no_fairness_is_assumed_of_an_action_whose_guard_is_not_all_there():
    found = decide(HELD, FINISHES)
    assert found.verdict.value == "refuted"
    assert variables(found) == MANY + 2


def test_where_it_were_assumed_the_claim_would_be_proved_wrongly(monkeypatch: pytest.MonkeyPatch):
    loosened = Cones._loosened

    def fair(self: Cones, action: Action, keep: frozenset[str]) -> Action:
        return replace(loosened(self, action, keep), fairness=action.fairness)

    monkeypatch.setattr(Cones, "_loosened", fair)
    assert decide(HELD, FINISHES).verdict.value == "proved"


def test_a_claim_that_is_pending_in_no_state_is_vacuous_as_before():
    never = replace(PAUSES, init={**PAUSES.init, "marked": False})
    found = decide(never, DRAINS)
    assert (found.verdict.value, found.method) == ("unknown", VACUOUS)


def test_a_small_spec_is_decided_whole():
    small = replace(
        PAUSES,
        variables=PAUSES.variables[: LARGE - 1],
        init={v.name: PAUSES.init[v.name] for v in PAUSES.variables[: LARGE - 1]},
        actions=(toy(PAUSES.variables[:3], Rule("Run", WEAK, run)).actions[0],),
    )
    assert Cones(small).local(DRAINS.pending, DRAINS.goal) is None


def test_each_step_of_a_profile_of_twenty_ledgers_is_one_of_what_a_ledger_needs_of_it(tmp_path: Path):
    profile = load_profile(str(synthetic(tmp_path, 20)))
    bench = Workbench(profile, profile.configurations()[0], Limits())
    (drain,) = chosen(("ledgers-drain",))
    subject = bench.subject(follow_request=drain.needs_request)
    part = list(drain.claims(subject.protocol, subject.spec))[-1]
    assert isinstance(part.claim, LeadsTo)
    piece = subject.local(part.claim.pending, part.claim.goal)
    assert piece is not None
    kept, little, taken = piece.system.spec.init.keys(), Interpreter(piece.system.spec), 0
    for run_of_whole in subject.walks.samples.runs:
        now = {name: subject.walks.samples.initial[name] for name in kept}
        for step in run_of_whole:
            then = {name: step.state[name] for name in kept}
            if now != then:
                assert little.legal(now, step.action, step.choices), step.action
                assert little.apply(now, step.action, step.choices) == then, step.action
                taken += 1
            now = then
    assert (len(kept), taken > 100) == (8, True)
    found = decide_part(subject, part)
    assert_proved(found)
    assert found.system is piece.system
