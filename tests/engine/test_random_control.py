"""Random control sequences and holds on the real engine, each observation compared with the spec.

What the spec leaves to the environment is not known here: how many requests a pass admits, finishes, caches. So a set
of states of the spec is kept, those that explain everything seen so far; a step of the engine makes of it the states
that the spec's own action allows and that agree with what is seen. Where none is left, the engine does what the spec
does not say. QUIESCE_RANDOM_EXAMPLES=100 takes more sequences than CI does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from harness import REMEDY, Models
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from checker.proof.interpreter import Interpreter, State
from checker.reproduce.run import Place
from checker.reproduce.schedule import Setup
from engine_hooks.sglang.testbed.server import Server
from engine_hooks.sglang.testbed.warm import Warm
from engine_hooks.sglang.testbed.witness import Witness
from spec.profile import Profile, load_profile
from spec.protocol import Protocol

pytestmark = pytest.mark.engine

EXAMPLES = int(os.environ.get("QUIESCE_RANDOM_EXAMPLES", "8"))
STEPS = 30
REQUESTS = 2
PAUSED_STEPS = 6
"""How long a pause lasts at least: what is claimed is mostly of what happens in one."""
_UNBOUNDED = 2
"""How much of a choice without an upper bound is tried: no more prefixes than requests enter the tree in a pass."""


class Belief:
    """The states of the spec that explain what was seen."""

    def __init__(self, profile: Profile, loop: str) -> None:
        (configuration,) = (c for c in profile.configurations([loop], ["retract"]) if c.storage == "none")
        spec = Protocol(profile, configuration).spec()
        self._interpreter = Interpreter(spec)
        # What only claims read grows without end, and tells no two states apart here.
        self._ghosts = {v.name: spec.init[v.name] for v in spec.variables if v.ghost}
        self.states = [self._interpreter.initial()]

    def step(self, *actions: str, seen: Callable[[State], bool] = lambda _state: True) -> bool:
        """One of these actions was taken, and after it `seen` holds. False where the spec does not allow it."""
        after = [next_ for s in self.states for name in actions for next_ in self._after(s, name) if seen(next_)]
        return self._keep(after)

    def land(self) -> bool:
        """Every write-through that was submitted is done."""
        return self._keep([self._landed(state, "write_through") for state in self.states])

    def _landed(self, state: State, ledger: str) -> State:
        while state[f"{ledger}_submitted"]:
            state = self._interpreter.apply(state, f"DeviceDone({ledger}.submitted)", {})
        return state

    def _keep(self, states: list[State]) -> bool:
        # A load to the device is not held: the pass that starts one ends after it.
        states = [self._landed(state, "load_back") for state in states]
        self.states = list({tuple(s.values()): s for s in ({**s, **self._ghosts} for s in states)}.values())
        return bool(self.states)

    def _after(self, state: State, name: str) -> Iterator[State]:
        if self._interpreter.enabled(state, name):
            for choices in self._choices(state, name, {}):
                yield self._interpreter.apply(state, name, choices)

    def _choices(self, state: State, name: str, picked: dict[str, int]) -> Iterator[dict[str, int]]:
        """Every way to make the choices that are not picked yet, each within its range."""
        compiled = self._interpreter.actions[name].choices
        if len(picked) == len(compiled):
            yield picked
            return
        choice = compiled[len(picked)]
        high = _UNBOUNDED if choice.high is None else choice.high(state, picked)
        for value in range(choice.low(state, picked), min(high, _UNBOUNDED) + 1):
            yield from self._choices(state, name, picked | {choice.name: value})


class Control(RuleBasedStateMachine):
    """A trainer and clients that do anything, one step at a time."""

    def __init__(self, drive: Witness, belief: Belief) -> None:
        super().__init__()
        drive.reset()
        drive.hold()
        self.drive, self.belief = drive, belief
        self.paused, self.paused_at = False, 0
        self.done: list[str] = []
        # What the engine did before it was held; an idle one stays as it is.
        self.take("idle", "RunningPass", seen=lambda state: not state["last_batch"])

    def take(self, what: str, *actions: str, seen: Callable[[State], bool] = lambda _state: True) -> None:
        """The engine did it; the spec must have a way to."""
        writing = self.drive.rank.d2h.in_flight > 0
        self.done.append(what)
        allowed = self.belief.step(*actions, seen=lambda s: seen(s) and (s["write_through_submitted"] > 0) is writing)
        assert allowed, f"the spec does not say this, with {'a' if writing else 'no'} write in flight: {self.done}"

    @precondition(lambda self: not self.paused and len(self.drive.answers) < REQUESTS)
    @rule(prompt=st.sampled_from([48, 320, 8]), tokens=st.sampled_from([1, 3, 64]))
    def request(self, prompt: int, tokens: int) -> None:
        self.drive.request(prompt, tokens)
        self.take(f"request({prompt}, {tokens})", "Arrive")
        self.run_pass(1)

    @rule(count=st.integers(1, 3))
    def run_pass(self, count: int) -> None:
        for _ in range(count):
            self.drive.run_pass()
            self.take("run_pass", "PausedPass" if self.paused else "RunningPass")

    @precondition(lambda self: self.drive.rank.d2h.in_flight)
    @rule()
    def land(self) -> None:
        self.drive.land("d2h")
        self.done.append("land")
        assert self.belief.land()

    @precondition(lambda self: not self.paused)
    @rule()
    def pause(self) -> None:
        self.paused, self.paused_at = True, len(self.done)
        self.drive.pause("retract")
        self.take("pause", "Pause", seen=lambda state: state["late"] == 0)

    @precondition(lambda self: self.paused and len(self.done) >= self.paused_at + PAUSED_STEPS)
    @rule()
    def resume(self) -> None:
        self.paused = False
        self.drive.continue_()
        self.take("continue", "Continue")

    @rule()
    def flush(self) -> None:
        granted = self.drive.flush()
        self.take(f"flush: {granted}", "FlushGranted" if granted else "FlushRefused")

    @precondition(lambda self: self.paused)
    @rule()
    def update(self) -> None:
        success = self.drive.update()
        self.take(f"update: {success}", "UpdateFlushed" if success else "UpdateRefused")


def drive_at_random(drive: Witness, profile: Profile, examples: int) -> None:
    """Sequences that are the same each time."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: Control(drive, Belief(profile, "normal")), settings=chosen)


@pytest.fixture(scope="module")
def drive(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    where = Place(tmp_path_factory.mktemp("random"), models.old, models.new, warm)
    with Server(where.options(Setup("normal", storage=False))) as server:
        yield Witness(server, where.new)


def test_the_engine_does_what_the_spec_says(drive: Witness) -> None:
    drive_at_random(drive, load_profile("sglang-0.5.23"), EXAMPLES)


def the_founding_case(control: Control) -> None:
    control.request(48, 64)
    control.pause()
    control.land()
    control.run_pass(1)
    control.flush()


def test_an_engine_without_the_remedy_is_not_one_with_it(drive: Witness) -> None:
    """The negative control: the spec of an engine that reaps while paused, and one that does not."""
    the_founding_case(Control(drive, Belief(load_profile("sglang-0.5.23"), "normal")))
    repaired = Belief(load_profile("sglang-0.5.23").with_remedies([REMEDY]), "normal")
    with pytest.raises(
        AssertionError, match=r"the spec does not say this, with no write in flight: .*'flush: False'\]"
    ):
        the_founding_case(Control(drive, repaired))
