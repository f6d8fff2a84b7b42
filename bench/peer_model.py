"""Whether promela/founding.pml is the spec: under the same bounds both must have equally many reachable states.

The spec is walked by the concrete interpreter, which shares no line with the Promela text; spin walks its own model
without the claim. Printed is one line for each case; the exit code is 1 where two counts differ.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import spin
from founding import PROPERTY, configuration, profile
from spin import Case

from checker.proof.interpreter import Choices, Interpreter, State, Value
from spec.cone import Cones
from spec.profile import Profile
from spec.properties import chosen
from spec.protocol import Protocol
from spec.tla import LeadsTo

CASES = (Case(1), Case(2), Case(1, remedy=True), Case(2, remedy=True), Case(2, requests=3, remedy=True))


def interpreter(engine: Profile) -> Interpreter:
    """The part of the spec on which the founding property's liveness depends."""
    protocol = Protocol(engine, configuration(engine))
    spec = protocol.spec()
    claim = next(iter(chosen([PROPERTY])[0].claims(protocol, spec))).claim
    if not isinstance(claim, LeadsTo):
        raise TypeError("the founding property no longer begins with its liveness claim")
    return Interpreter(Cones(spec).of(claim.pending, claim.goal))


def unlimited_retries(engine: Profile) -> Profile:
    """The profile whose retries have no budget, as in the peer's model."""
    return replace(engine, prefetch=replace(engine.prefetch, retry_attempts=0))


def inside(state: Mapping[str, Value], case: Case) -> bool:
    """Within the bounds of the peer's model."""
    names = ("write_through_", "load_back_", "backup_", "prefetch_")
    entries = sum(int(v) for name, v in state.items() if name.startswith(names) and name != "prefetch_budget")
    return entries <= case.entries and sum(int(state[n]) for n in ("late", "waiting", "running")) <= case.requests


def picks(machine: Interpreter, state: State, name: str, case: Case) -> list[Choices]:
    """Every assignment to the choices of an action; what has no upper end stops where the bounds do."""
    found: list[Choices] = [{}]
    for choice in machine.actions[name].choices:
        grown: list[Choices] = []
        for so_far in found:
            low = int(choice.low(state, so_far))
            top = max(case.entries, case.requests) if choice.high is None else int(choice.high(state, so_far))
            if choice.name.endswith(".tokens"):  # it matters only whether they reach the threshold, as the witness does
                values = [low, int(choice.witness(state, so_far))]
            else:
                values = list(range(low, top + 1))
            grown += [{**so_far, choice.name: value} for value in values]
        found = grown
    return found


def reachable(machine: Interpreter, case: Case) -> int:
    """How many states of the spec are reachable within the bounds."""
    first = machine.initial()
    seen, todo = {tuple(first.values())}, [first]
    while todo:
        state = todo.pop()
        for name in machine.actions:
            if not machine.enabled(state, name):
                continue
            for choices in picks(machine, state, name, case):
                after = machine.apply(state, name, choices)
                key = tuple(after.values())
                if key not in seen and inside(after, case):
                    seen.add(key)
                    todo.append(after)
    return len(seen)


def main() -> int:
    """Compare the counts; 0 where all are equal."""
    if hint := spin.install_hint():
        print(f"peer_model: {hint}", file=sys.stderr)
        return 2
    same = True
    for case in CASES:
        ours = reachable(interpreter(unlimited_retries(profile(remedy=case.remedy))), case)
        peers = spin.count_states(case)
        same &= ours == peers
        what = f"N={case.entries} requests={case.requests} remedy={'yes' if case.remedy else 'no'}"
        verdict = "equal" if ours == peers else "DIFFERENT"
        print(f"{what}: reachable states: spec {ours}, founding.pml {peers}: {verdict}", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
