"""Mutated traces: what a replay notices, and what it cannot. A check that never fails is worth nothing.

Each mutant differs from a recorded trace in one place, and is numbered and sealed anew, so that only the spec can tell.
As the file is written, checksums and numbers tell of every such change (test_hostile_traces).
"""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from replay_traces import PEERS, STAGES, load, recorded

from checker.replay.differences import LANDS, of_ranks
from checker.replay.judge import Carried, Judge
from checker.replay.relation import Relations
from engine_hooks.trace import PEER, STATE_FIELDS, Step, TraceState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PLACES = 150
"""Of each trace, for each kind of mutant."""
_FLAGS = frozenset(name for name in STATE_FIELDS if isinstance(getattr(TraceState(), name), bool))


class Where:
    number = 0


class Follower:
    """Judges a trace once, and then any change of it from where it differs."""

    def __init__(self, name: str) -> None:
        header, self.steps = recorded(name)
        allowed = of_ranks(header) | {LANDS}
        self.judge = Judge(Relations(load(header), header.loop, header.storage, allowed))
        self.shown = [name for name in STATE_FIELDS if not name.startswith(PEER) or name.startswith(header.counted)]
        self.carried = [Carried()]
        for x, y in pairwise(self.steps):
            found = self.step(x.state, y, self.carried[-1])
            assert found is not None
            self.carried.append(found)

    def step(self, x: TraceState, y: Step, carried: Carried) -> Carried | None:
        found = self.judge.judge(y.do, y.how, x, y.state, carried, Where())
        if found is not None and y.times > 1:
            found = self.judge.judge(y.do, y.how, y.state, y.state, found, Where())
        return found

    def is_run(self, at: int, changed: Sequence[Step], rest: int) -> bool:
        """Whether the solver alone accepts the changed lines and the one after them."""
        x, carried = self.steps[at - 1].state, self.carried[at - 1]
        for y in [*changed, *self.steps[rest : rest + 1]]:
            after = self.step(x, y, carried)
            assert after is not None
            alone = self.judge._learn(y.do, y.how, x, y.state, carried, Where(), has_host=after.has_host)
            if alone is None:
                return False
            x, carried = y.state, after
        return True

    def rejects(self, at: int, changed: Sequence[Step], rest: int) -> bool:
        """Whether the trace diverges where the steps from `at` on are `changed`, and then the recorded ones go on."""
        x, carried = self.steps[at - 1].state, self.carried[at - 1]
        # Once what is carried is what it was in the recorded trace, all that follows is accepted as it was there.
        for offset, y in enumerate([*changed, *self.steps[rest:]]):
            found = self.step(x, y, carried)
            if found is None:
                return True
            x, carried = y.state, found
            place = rest + offset - len(changed)
            if offset >= len(changed) and carried == self.carried[place]:
                return False
        return False


def dropped(steps: Sequence[Step], at: int, *_: object) -> tuple[Sequence[Step], int] | None:
    """One line is not there."""
    return ((), at + 1) if at + 1 < len(steps) else None


def duplicated(steps: Sequence[Step], at: int, *_: object) -> tuple[Sequence[Step], int]:
    """One line is there twice."""
    return (steps[at], steps[at]), at + 1


def swapped(steps: Sequence[Step], at: int, *_: object) -> tuple[Sequence[Step], int] | None:
    """Two lines have changed places."""
    return ((steps[at + 1], steps[at]), at + 2) if at + 1 < len(steps) else None


def off_by_one(steps: Sequence[Step], at: int, rng: random.Random, shown: Sequence[str]) -> tuple[Sequence[Step], int]:
    """One number of one line is one more or less, or a flag is the other."""
    state = steps[at].state
    name = rng.choice(shown)
    value = getattr(state, name)
    other = not value if name in _FLAGS else value + (1 if value == 0 else rng.choice((1, -1)))
    return (msgspec.structs.replace(steps[at], state=msgspec.structs.replace(state, **{name: other})),), at + 1


KINDS: dict[str, Callable[..., tuple[Sequence[Step], int] | None]] = {
    "dropped": dropped,
    "duplicated": duplicated,
    "swapped": swapped,
    "off by one": off_by_one,
}
REJECTED = {
    ("normal-none", "dropped"): (143, 150),
    ("normal-none", "duplicated"): (132, 150),
    ("normal-none", "swapped"): (146, 149),
    ("normal-none", "off by one"): (143, 150),
    ("overlap-file", "dropped"): (127, 150),
    ("overlap-file", "duplicated"): (131, 150),
    ("overlap-file", "swapped"): (145, 149),
    ("overlap-file", "off by one"): (149, 150),
    ("pd/decode-normal", "dropped"): (114, 149),
    ("pd/decode-normal", "duplicated"): (101, 150),
    ("pd/decode-normal", "swapped"): (135, 150),
    ("pd/decode-normal", "off by one"): (138, 150),
    ("pd/decode-overlap-repaired", "dropped"): (99, 149),
    ("pd/decode-overlap-repaired", "duplicated"): (107, 150),
    ("pd/decode-overlap-repaired", "swapped"): (134, 149),
    ("pd/decode-overlap-repaired", "off by one"): (141, 150),
    ("pd/prefill-normal", "dropped"): (47, 149),
    ("pd/prefill-normal", "duplicated"): (49, 150),
    ("pd/prefill-normal", "swapped"): (84, 124),
    ("pd/prefill-normal", "off by one"): (148, 150),
    ("pd/prefill-overlap-repaired", "dropped"): (50, 149),
    ("pd/prefill-overlap-repaired", "duplicated"): (50, 150),
    ("pd/prefill-overlap-repaired", "swapped"): (103, 133),
    ("pd/prefill-overlap-repaired", "off by one"): (146, 150),
    ("pp2/rank0", "dropped"): (137, 150),
    ("pp2/rank0", "duplicated"): (144, 150),
    ("pp2/rank0", "swapped"): (147, 150),
    ("pp2/rank0", "off by one"): (146, 150),
    ("pp2-repaired/rank1", "dropped"): (129, 150),
    ("pp2-repaired/rank1", "duplicated"): (138, 150),
    ("pp2-repaired/rank1", "swapped"): (149, 150),
    ("pp2-repaired/rank1", "off by one"): (146, 150),
}
"""(trace, kind) to how many mutants are rejected, of how many."""


def mutants(follower: Follower, kind: str) -> Iterator[tuple[int, Sequence[Step], int]]:
    rng = random.Random(kind)  # noqa: S311 - not for secrets
    for _ in range(PLACES):
        at = rng.randrange(1, len(follower.steps))
        made = KINDS[kind](follower.steps, at, rng, follower.shown)
        if made is not None:
            changed, rest = made
            same = [s.state for s in changed] == [s.state for s in follower.steps[at:rest]]
            labels = [(s.do, s.how) for s in changed] == [(s.do, s.how) for s in follower.steps[at:rest]]
            if not (same and labels):
                yield at, changed, rest


@pytest.mark.parametrize("name", ["normal-none", "overlap-file", *PEERS, *STAGES])
def test_the_share_of_mutants_that_the_spec_rejects(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(name)
    found = {}
    for kind in KINDS:
        made = list(mutants(follower, kind))
        survivors = [mutant for mutant in made if not follower.rejects(*mutant)]
        found[name, kind] = (len(made) - len(survivors), len(made))
        # What is accepted is a run of the spec: the solver says so, with nothing that was learned before.
        assert all(follower.is_run(*mutant) for mutant in survivors)
    with capsys.disabled():
        for (_, kind), (rejected, every) in found.items():
            sys.stdout.write(f"\n{name}, {kind}: {rejected} of {every} rejected ({100 * rejected / every:.0f}%)")
    assert found == {key: value for key, value in REJECTED.items() if key[0] == name}
