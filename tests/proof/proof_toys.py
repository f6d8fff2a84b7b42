"""Toy specs, built with spec.tla alone, and what the tests ask of every proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import z3

from checker.certificate import smt_lib
from checker.certify import answers_of
from checker.decide.decided import Decided
from checker.proof.interpreter import Interpreter
from checker.proof.obligations import Obligation, Proof, obligations
from checker.proof.refute import Refutation, refute_by_stuck_region, stuck_region
from checker.proof.system import Limits, System, Tally
from checker.proof.unroll import Unrolling, reach_state
from checker.subject import Subject
from checker.workbench import decide_part
from spec.draft import Draft
from spec.properties import Part
from spec.tla import Action, Claim, Fairness, LeadsTo, Sort, Spec, Variable

NONE, WEAK, STRONG = Fairness.NONE, Fairness.WEAK, Fairness.STRONG
TRUE = z3.BoolVal(val=True)


def flag(name: str) -> Variable:
    return Variable(name, Sort.BOOL)


def counter(name: str) -> Variable:
    return Variable(name, Sort.NAT)


@dataclass(frozen=True)
class Rule:
    """An action of a toy: its body drafts it."""

    name: str
    fair: Fairness
    body: Callable[[Draft], None]
    unit: str = ""
    help: bool = False


def sets(name: str) -> Callable[[Draft], None]:
    """A body without a guard that sets a flag."""

    def body(s: Draft) -> None:
        s[name] = True

    return body


def adds(*names: str) -> Callable[[Draft], None]:
    """A body without a guard that counts up."""

    def body(s: Draft) -> None:
        for name in names:
            s[name] += 1

    return body


def toy(variables: Iterable[Variable], *rules: Rule, init: Mapping[str, int | bool] | None = None) -> Spec:
    """A spec in which everything begins at 0 or false, but for `init`."""
    known = {v.name: v for v in variables}
    zero = {v.name: 0 if v.sort is Sort.NAT else False for v in known.values()}
    return Spec("toy", tuple(known.values()), {**zero, **(init or {})}, tuple(_action(known, r) for r in rules))


def _action(known: Mapping[str, Variable], rule: Rule) -> Action:
    draft = Draft(known, rule.name)
    rule.body(draft)
    return draft.finish(actor="toy", engine="toy", fairness=rule.fair, unit=rule.unit, help=rule.help)


@dataclass(frozen=True)
class Toy:
    """What a Subject needs of a protocol: its spec."""

    machine: Spec

    def spec(self) -> Spec:
        return self.machine


def decide(spec: Spec, claim: Claim, limits: Limits | None = None) -> Decided:
    """The whole way of `checker verify` for one claim: proof, refutation re-run, or neither."""
    return decide_part(Subject(Toy(spec), limits or Limits(), Tally()), Part(claim))


def stuck_in(spec: Spec, claim: LeadsTo) -> Refutation | None:
    """A stuck region and the shortest run into it, without lemmas and random runs."""
    system = System(spec)
    stuck = stuck_region(system, claim, [])
    run = reach_state(Unrolling(system), stuck.region) if stuck else None
    return refute_by_stuck_region(Interpreter(spec), stuck, run) if stuck else None


def satisfiable(system: System, proof: Proof) -> list[Obligation]:
    """The obligations that Z3 finds a model of: none for a proof."""
    return [o for o in obligations(system, proof) if not system.impossible(system.solver(), o.formula)]


def numbers(system: System, proof: Proof) -> list[int]:
    """The numbers of the obligations that fail, each once."""
    return sorted({o.number for o in satisfiable(system, proof)})


def second_opinion(system: System, proof: Proof) -> set[str]:
    """What cvc5 answers to the obligations: {"unsat"} for a proof."""
    return set(answers_of(smt_lib(obligations(system, proof))))


def assert_proved(found: Decided) -> Proof:
    """It is proved, and both solvers agree to every obligation of the proof."""
    assert found.verdict.value == "proved", found.note
    assert found.proof is not None
    assert found.system is not None
    assert satisfiable(found.system, found.proof) == []
    assert second_opinion(found.system, found.proof) == {"unsat"}
    return found.proof
