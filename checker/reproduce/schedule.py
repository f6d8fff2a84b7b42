"""A counterexample as a schedule: each step of the spec as moves of the testbed's driver.

The spec's atomicity is the engine's (`spec/protocol.py`): a control message is handled in ingest, a pass is what
follows, and a device or a storage completes one thing at a time. The driver holds the event loop in ingest and every
transfer, so a step of the trace is a call of the driver, and nothing else happens in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from checker.results import Result, TraceStep

THRESHOLD_TOKENS = 256
"""From how many uncached tokens on the engine asks its storage (`[prefetch] threshold_tokens`)."""
_LONG, _SHORT, BELOW_A_PAGE = 320, 48, 8
"""Prompts in tokens: one that is looked up in storage, one that is not, one that fills no page of 16."""
MANY_TOKENS = 64
"""More than the passes of a schedule generate."""
ENDLESS_TOKENS = 1500
"""More than are generated while a claim looks, in a loop that goes on while paused."""
STAGES = 2
"""Of a pipeline."""
_RESULT_COMES_LATER = ("overlap", "pp", "prefill-overlap", "decode-overlap")
"""The loops in which the step after a launch processes its result (`result_queue` of the profile)."""

_LANDS = {
    "DeviceDone(write_through.submitted)": "d2h",
    "StorageDone(prefetch.query)": "storage_query",
    "StorageDone(prefetch.loading)": "storage_read",
    "StorageDone(backup.queued)": "storage_write",
    "CompilerDone(grammar.compiling)": "grammar",
    "PeerDone(pd_inflight.sending)": "pd_send",
    "PeerDone(pd_transfer.receiving)": "pd_send",
}
_IN_FLIGHT = {
    "d2h": ("write_through_submitted",),
    "storage_query": ("prefetch_query", "prefetch_orphan"),
    "storage_read": ("prefetch_loading",),
    "storage_write": ("backup_queued",),
    "grammar": ("grammar_compiling",),
    "pd_send": ("pd_inflight_sending", "pd_transfer_receiving"),
}
"""Kind of transfer to the counters of the spec that say whether one is in flight."""
_BY_ITSELF = {"AbortAgain", "ForwardDone", "DeviceDone(load_back.submitted)", "WaitingTimesOut"}
"""What happens without a move: nothing of the testbed holds it. A clock is waited for at the end."""


@dataclass(frozen=True)
class Move:
    """One call of the driver, and the step of the trace that it stands for (empty: what the claim adds)."""

    method: str
    arguments: Sequence[object] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)
    step: str = ""

    @property
    def call(self) -> str:
        """As Python, without the driver's name."""
        said = [python(a) for a in self.arguments] + [
            f"{name}={python(value)}" for name, value in self.keywords.items()
        ]
        return f"{self.method}({', '.join(said)})"


def python(value: object) -> str:
    """A value as Python, in the quotes that formatters prefer."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{python(key)}: {python(one)}" for key, one in value.items()) + "}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


@dataclass(frozen=True)
class Setup:
    """The engine that a schedule needs. Those with equal setups share one."""

    loop: str
    storage: bool
    arguments: tuple[tuple[str, object], ...] = ()
    """Of the server, beyond the loop and the storage."""
    remedies: tuple[str, ...] = ()
    """With which the engine runs."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the engine's own, beyond the testbed's."""
    dies: bool = False
    """Whether the schedule is to end the engine, so that it cannot be shared."""

    @property
    def ranks(self) -> int:
        """How many schedulers the engine has: one for each stage of a pipeline."""
        return STAGES if self.loop == "pp" else 1

    @property
    def role(self) -> str:
        """Of a prefill or decode worker; empty for an engine that is both."""
        return role_of(self.loop)


def role_of(loop: str) -> str:
    """Of a worker with this loop: prefill or decode; empty for an engine that is both."""
    return next((role for role in ("prefill", "decode") if loop.startswith(f"{role}-")), "")


@dataclass(frozen=True)
class Schedule:
    """What is run: the counterexample that it comes from, the engine, and the moves."""

    result: Result
    setup: Setup
    moves: Sequence[Move]


class CannotBeDrivenError(Exception):
    """A step, or a claim, that the testbed has no move for. The text says why."""


@dataclass(frozen=True)
class Request:
    """A request of the trace, as it must be for the engine to do with it what the trace says."""

    prompt: int
    tokens: int
    grammar: bool = False
    """Whether it has one, to be compiled."""

    def move(self, method: str, step: str) -> Move:
        """The call of the driver that sends it."""
        return Move(method, (self.prompt, self.tokens), {"grammar": True} if self.grammar else {}, step)


def moves_of(result: Result, tokens: int = MANY_TOKENS) -> Iterator[Move]:
    """The moves of a counterexample's trace; what does not end in it asks for `tokens`. Raises CannotBeDrivenError."""
    steps = result.trace.steps if result.trace else ()
    requests = (r if r.tokens == 1 else replace(r, tokens=tokens) for r in _requests(steps, result.loop))
    in_flight: set[str] = set()
    yield Move("hold")
    for step in steps:
        yield from _moves(step, str(result.configuration["mode"]), requests)
        if role_of(result.loop) and step.action in ("Arrive", "ArriveLate"):
            yield from _queued(step, sends=any(s.choices.get("pd_inflight_new") for s in steps))
        wanted = {kind for kind, counters in _IN_FLIGHT.items() if any(step.state.get(c) for c in counters)}
        if wanted != in_flight or "Pass" in step.action:
            yield Move("expect_in_flight", tuple(sorted(wanted)))
        in_flight = wanted


def _queued(step: TraceStep, *, sends: bool) -> Iterator[Move]:
    """A worker puts each request into a queue of its own, where a profile leaves that open.

    The pass that admits a request of a prefill worker takes it from that queue, if its peer has it by then. `sends`:
    the trace says that its KV is sent after that, as the engine always does.
    """
    if step.state.get("pd_bootstrap_waiting") or step.state.get("pd_prealloc_waiting"):
        return
    if not sends:
        raise CannotBeDrivenError(
            "a request of the trace waits in no queue of the worker, and the engine puts each into one: the prefill "
            "worker until its peer asks for its KV and again until that is sent, the decode worker until it has it"
        )
    yield Move("peer_joins", step=f"{step.action}: its peer has it too")


def _moves(step: TraceStep, mode: str, requests: Iterator[Request]) -> Iterator[Move]:
    action = step.action
    if action == "Pause":
        yield from _pause(step, mode, requests)
    elif action in ("Arrive", "Park"):
        yield next(requests).move("request" if action == "Arrive" else "park", action)
    elif action in _LANDS:
        yield Move("land", (_LANDS[action],), step=action)
    elif action in _PLAIN:
        method, keywords = _PLAIN[action]
        yield Move(method, (), keywords, step=action)
    elif action not in _BY_ITSELF:
        raise CannotBeDrivenError(f"the testbed has no move for the step {action} ({step.actor}, {step.engine})")


_PLAIN: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "ArriveLate": ("late_arrives", {}),
    "Continue": ("continue_", {}),
    "RunningPass": ("run_pass", {}),
    "OthersPass": ("run_pass", {}),
    "PausedPass": ("run_pass", {}),
    "FlushGranted": ("flush", {"granted": True}),
    "FlushRefused": ("flush", {"granted": False}),
    "UpdateFlushed": ("update", {"success": True}),
    "UpdateRefused": ("update", {"success": False}),
    "UpdateUnflushed": ("update", {"success": True, "flush_cache": False}),
    "AbortMine": ("abort", {}),
    "Clear": ("clear_storage", {}),
    "OrphanDone": ("land_all", {}),
    "PeerDone(pd_bootstrap.waiting)": ("peer_joins", {}),
    "PeerDone(pd_prealloc.waiting)": ("peer_joins", {}),
}


def _pause(step: TraceStep, mode: str, requests: Iterator[Request]) -> Iterator[Move]:
    for _ in range(step.choices.get("late", 0)):
        yield next(requests).move("late_request", "Pause: a request is still on its way")
    yield Move("pause", (mode,), step="Pause")


def _requests(steps: Sequence[TraceStep], loop: str) -> Iterator[Request]:
    """The requests in the order in which they come: each with the next admission that no earlier one took."""
    admissions = [n for n, s in enumerate(steps) if s.choices.get("admitted")]
    for number, step in enumerate(steps):
        for arrival in _coming(step, steps[number + 1 :]):
            later = [n for n in admissions if n > number]
            if later:
                admissions.remove(later[0])
            yield _request(arrival, _outcome(steps, later[0], loop) if later else None)


def _coming(step: TraceStep, rest: Sequence[TraceStep]) -> Iterator[TraceStep]:
    """For each request that a step sends, the step in which it arrives; the step itself where none is shown."""
    if step.action in ("Arrive", "Park"):
        yield step
    if step.action == "Pause":
        late = [s for s in rest if s.action == "ArriveLate"]
        yield from (late + [step] * step.choices.get("late", 0))[: step.choices.get("late", 0)]


def _outcome(steps: Sequence[TraceStep], admitted: int, loop: str) -> TraceStep | None:
    """The step that processes the result of the batch which the pass `admitted` launched."""
    if loop not in _RESULT_COMES_LATER:
        return steps[admitted]
    # The handler of a pause processes it too, but in a pipeline.
    processing = ("RunningPass", "OthersPass", *(() if loop.endswith("pp") else ("Pause",)))
    after = [s for s in steps[admitted + 1 :] if s.action in processing]
    return after[0] if after else None


def _request(arrival: TraceStep, outcome: TraceStep | None) -> Request:
    tokens = 1 if outcome is not None and outcome.choices.get("finished") else MANY_TOKENS
    grammar = bool(arrival.choices.get("grammar_new"))
    if arrival.choices.get("tokens", 1) >= THRESHOLD_TOKENS:
        return Request(_LONG, tokens, grammar)
    # The engine caches each full page of a prefill; where the trace does not, the prompt fills none.
    cached = outcome is None or outcome.choices.get("inserted")
    return Request(_SHORT if cached else BELOW_A_PAGE, tokens, grammar)
