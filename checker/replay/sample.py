"""Random runs of the spec, on plain numbers, as the steps of a trace: what a replay must accept.

For tests and the benchmark.

Many requests, lookups, pauses, flushes and updates. No rule of replay is used: the interpreter takes the steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import msgspec

from checker.proof.interpreter import Interpreter, State
from engine_hooks.trace import STATE_FIELDS, Do, Step, TraceState
from spec.facts import Configuration
from spec.profile import Profile
from spec.protocol import Protocol

_MODE = "retract"
_LABELS: Mapping[str, tuple[Do, str]] = {
    "Arrive": ("arrive", ""),
    "ArriveLate": ("arrive", ""),
    "Pause": ("pause", _MODE),
    "Continue": ("continue", ""),
    "RunningPass": ("pass", ""),
    "PausedPass": ("pass", ""),
    "FlushGranted": ("flush", "granted"),
    "FlushRefused": ("flush", "refused"),
    "DeferFlush": ("defer", ""),
    "DeferredFlushGranted": ("deferred", "granted"),
    "DeferredFlushTimesOut": ("deferred", "timed_out"),
    "UpdateFlushed": ("update", "ok"),
    "UpdateRefused": ("update", "unflushed"),
}
_RARE = frozenset(_LABELS) - {"Arrive", "RunningPass", "PausedPass", "Continue"}
_MOST_WAITING = 40
_OFTEN = 0.95
"""How often it goes on with its work, and nobody asks for anything."""
_SOON = 0.5
"""How likely something lands before the next step."""
_SPREAD = 400


class Sampler:
    """Random runs of the spec as the steps of a trace."""

    def __init__(self, profile: Profile, loop: str, storage: str, seed: int) -> None:
        """Deterministic for a seed."""
        spec = Protocol(profile, Configuration(loop, _MODE, storage)).spec()
        self._run = Interpreter(spec)
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._moves = [a.name for a in spec.actions if a.name not in _LABELS]

    def segment(self, length: int) -> list[Step]:
        """A run that begins and ends idle, of about so many steps, each counter relative to its begin."""
        state, steps = self._run.initial(), list[Step]()
        while len(steps) < length:
            state = self._environment(state)
            state = self._take(state, self._next(state), steps)
        return self._wind_up(state, steps)

    def _next(self, state: State) -> str:
        able = [n for n in _LABELS if self._run.enabled(state, n)]
        if state["waiting"] > _MOST_WAITING:
            able = [n for n in able if not n.startswith("Arrive")]
        common = [n for n in able if n not in _RARE]
        return self._random.choice(common if self._random.random() < _OFTEN and common else able)

    def _environment(self, state: State) -> State:
        for name in self._moves:
            while self._run.enabled(state, name) and self._random.random() < _SOON:
                state = self._run.apply(state, name, self._run.witness(state, name))
        return state

    def _take(self, state: State, name: str, steps: list[Step]) -> State:
        picked: dict[str, int] = {}
        for choice in self._run.actions[name].choices:
            low = int(choice.low(state, picked))
            high = low + 3 if choice.high is None else int(choice.high(state, picked))
            picked[choice.name] = self._random.randint(low, min(high, low + _SPREAD))
        state = self._run.apply(state, name, picked)
        do, how = _LABELS[name]
        shown = {field: state.get(field, 0) for field in STATE_FIELDS}
        steps.append(Step(len(steps) + 1, do, msgspec.convert(shown, TraceState, strict=False), how))
        return state

    def _wind_up(self, state: State, steps: list[Step]) -> list[Step]:
        """Until nothing is under way, and the last record is that of a pause with a waiting request."""
        if not state["paused"]:
            state = self._take(state, "Arrive", steps)
            state = self._take(state, "Pause", steps)
            state = self._take(state, "PausedPass", steps)
        if state["deferred_pending"]:
            state = self._take(state, "DeferredFlushTimesOut", steps)
        state = self._take(state, "Continue", steps)
        while any(state[name] for name in STATE_FIELDS if name in state and name not in {"lookups", "forwards"}):
            for name in self._moves:
                while self._run.enabled(state, name):
                    state = self._run.apply(state, name, self._run.witness(state, name))
            state = self._take(state, "RunningPass", steps)
        self._take(state, "FlushGranted", steps)
        return steps


def repeated(segment: list[Step]) -> Iterator[Step]:
    """The segment again and again, its counters going on."""
    last, number, lookups, forwards = segment[-1].state, 0, 0, 0
    while True:
        for step in segment:
            number += 1
            s = step.state
            state = msgspec.structs.replace(s, lookups=s.lookups + lookups, forwards=s.forwards + forwards)
            yield msgspec.structs.replace(step, n=number, state=state)
        lookups, forwards = lookups + last.lookups, forwards + last.forwards
