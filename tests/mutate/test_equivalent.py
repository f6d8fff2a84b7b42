"""The list of equivalent mutants: each takes the same steps as the spec, which is proved; others are found not to."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

import pytest
import z3

from checker.mutate.judge import GivenSubject
from checker.mutate.mutants import Mutant, mutated, mutated_profile
from checker.mutate.results import EQUIVALENT, reasons
from checker.proof.system import Limits, Tally
from checker.workbench import decide_part
from spec.profile import Configuration, load_profile
from spec.properties import Part
from spec.protocol import Protocol
from spec.terms import BoolTerm, conj, disj, implies, neg
from spec.tla import Always, Spec

PROFILE = load_profile("sglang-0.5.23").with_remedies(["all"])
ENTRIES = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]
PLACES = sorted({place for entry in ENTRIES for place in entry["where"]})
# What changes nothing is no step to any claim but those that speak of each paused pass.
SPOKEN_OF = {"PausedPass"}


def invariants(spec: Spec) -> Sequence[BoolTerm]:
    v = {x.name: x.now for x in spec.variables}
    return [
        conj(v["write_through_queued"] == 0, v["load_back_queued"] == 0),
        conj(neg(v["mark_write_through_queued"]), neg(v["mark_load_back_queued"])),
        v["paused"] == v["gate_closed"],
        implies(v["flush_wanted"], v["paused"]),
        neg(v["update_waiting"]),
        implies(v["running"] > 0, v["last_batch"]),
        v["watched"] == v["last_batch"],
        implies(v["paused"], conj(v["running"] == 0, neg(v["stale_running"]))),
    ]


class Bench:
    """One configuration, with what was proved of it."""

    def __init__(self, place: str) -> None:
        self.configuration = Configuration(*place.split())
        protocol = Protocol(PROFILE, self.configuration, follow_request=True)
        subject = GivenSubject(protocol, Limits(), Tally(), walk_whole=False)
        self.spec = subject.spec
        for term in invariants(self.spec):
            assert decide_part(subject, Part(Always(term))).verdict.value == "proved", term
        self._solver = z3.Solver()
        self._solver.add(self.spec.naturals, *invariants(self.spec))

    def equivalent(self, mutant: Mutant) -> bool:
        other = self._other(mutant)
        pairs = list(zip(self.spec.actions, other.actions, strict=True))
        if any(a.fairness is not b.fairness for a, b in pairs):
            return False
        changes = disj(*(v.next != v.now for v in self.spec.variables))
        differ = [
            conj(self.spec.step(a) != other.step(b), *([] if a.name in SPOKEN_OF else [changes]))
            for a, b in pairs
            if a is not b
        ]
        differ += [term != other.definitions[name] for name, term in self.spec.definitions.items()]
        return all(self._solver.check(term) == z3.unsat for term in differ)

    def _other(self, mutant: Mutant) -> Spec:
        if mutant.kind != "step":
            return mutated(self.spec, mutant)
        profile = mutated_profile(PROFILE, self.configuration, mutant)
        return Protocol(profile, self.configuration, follow_request=True).spec()


@pytest.fixture(scope="module", params=PLACES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def parsed(name: str) -> Mutant:
    kind, _, rest = name.partition(" ")
    place, _, what = rest.partition(": ")
    return Mutant(kind, place, what)


def test_each_takes_the_same_steps(bench: Bench) -> None:
    c = bench.configuration
    listed = reasons(f"{c.loop} {c.mode} {c.storage}")
    assert len(listed) > 30
    assert [name for name in listed if not bench.equivalent(parsed(name))] == []


@pytest.mark.parametrize(
    "name",
    [
        "update Pause: waiting unchanged",
        "gate flush: drop write_through_ready = 0",
        "guard ArriveLate: drop late > 0",
        "fairness OrphanDone: none",
        "step loops.normal.paused: drop 1 reap",
        "update PausedPass: recorded_idle unchanged",
    ],
)
def test_what_is_another_spec_is_found_out(name: str, bench: Bench) -> None:
    assert not bench.equivalent(parsed(name))


def test_each_is_named_once_and_has_a_reason() -> None:
    names = [(place, name) for entry in ENTRIES for place in entry["where"] for name in entry["mutants"]]
    assert len(set(names)) == len(names)
    assert all(len(entry["reason"]) > 20 for entry in ENTRIES)
    assert reasons("nowhere") == {}
