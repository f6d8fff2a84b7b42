"""What is looked for at the end of a schedule: the claim's violation, seen on the engine by means of its own.

The steps before it show that the engine goes where the model goes. Only these moves show that a promise is broken
there, and each of them can fail: it raises where the engine kept its promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from checker.reproduce.schedule import (
    BELOW_A_PAGE,
    ENDLESS_TOKENS,
    MANY_TOKENS,
    CannotBeDrivenError,
    Move,
    Schedule,
    Setup,
    moves_of,
)
from checker.results import Result

_WATCHDOG_SECONDS = 6
_WAITING_SECONDS = 2
_LIMIT = ("max_queued_requests", 1)
_LOOPS = ("normal", "overlap", "pp", "prefill-normal", "prefill-overlap", "decode-normal", "decode-overlap")
_NOT_HERE = {
    "pdmux": "pdmux shares out the multiprocessors of a CUDA device to prefill and decode, and a CPU has none",
    "prefill-pp": "the driver steps no pipeline of prefill workers",
    "decode-pp": "the driver steps no pipeline of decode workers",
}
Claim = tuple[Sequence[Move], Setup]


def schedule_of(result: Result, remedies: Sequence[str]) -> Schedule:
    """The schedule of a counterexample, for an engine with these remedies. Raises CannotBeDrivenError."""
    if result.property not in _CLAIMS:
        raise CannotBeDrivenError(f"nothing outside the engine shows yet whether it keeps {result.property}")
    moves, setup = _CLAIMS[result.property](result, _setup(result, remedies))
    hold, *steps = moves_of(result, ENDLESS_TOKENS if _runs_on(result) else MANY_TOKENS)
    return Schedule(result, setup, [hold, *_before(setup), *steps, *moves])


def _runs_on(result: Result) -> bool:
    """Whether it is a request that stands in the way of a flush, since it goes on while paused."""
    return result.loop == "pp" and result.property == "paused-flush-succeeds"


def _before(setup: Setup) -> Sequence[Move]:
    """The limit of an engine is at least one request: one of our own takes that place, ahead of those of the trace."""
    return [Move("request", (BELOW_A_PAGE, MANY_TOKENS)), Move("run_pass")] if _LIMIT in setup.arguments else []


def _setup(result: Result, remedies: Sequence[str]) -> Setup:
    if result.loop not in _LOOPS:
        raise CannotBeDrivenError(_NOT_HERE.get(result.loop, f"the driver does not step the loop {result.loop}"))
    if result.configuration["ranks"] != 1:
        raise CannotBeDrivenError("the driver steps an engine of one rank")
    return Setup(result.loop, result.configuration["storage"] == "file", (), tuple(remedies))


def _looking_at(method: str) -> Callable[[Result, Setup], Claim]:
    """A claim whose violation one move sees, on any engine."""
    return lambda _result, setup: ([Move(method)], setup)


def _entry_stays(result: Result, setup: Setup) -> Claim:
    """In mode retract nothing runs, so that only an entry of a ledger can keep a flush from being granted."""
    if result.configuration["mode"] != "retract":
        raise CannotBeDrivenError(
            "outside the engine only a refused flush shows the entry, and running work refuses too"
        )
    return [Move("flush_stays_refused")], setup


def _truth(result: Result, setup: Setup) -> Claim:
    stored = "storage" in result.reason
    return [Move("storage_keeps_old_pages" if stored else "new_weights_serve_after_failure")], setup


def _ends(result: Result, setup: Setup) -> Claim:
    if "watchdog" in result.reason:
        arguments = (*setup.arguments, ("watchdog_timeout", _WATCHDOG_SECONDS))
        return [Move("watchdog_fires")], replace(setup, arguments=arguments, dies=True)
    raise CannotBeDrivenError("no move of the testbed cuts off a storage call at admission")


def _conserved(result: Result, setup: Setup) -> Claim:
    if "time-out of waiting" not in result.reason:
        arguments = (*setup.arguments, _LIMIT)
        return [Move("retracted_request_is_turned_away")], replace(setup, arguments=arguments)
    environment = (*setup.environment, ("SGLANG_REQ_WAITING_TIMEOUT", str(_WAITING_SECONDS)))
    return [Move("paused_request_times_out")], replace(setup, environment=environment)


def _during_load(_result: Result, _setup: Setup) -> Claim:
    raise CannotBeDrivenError(
        "on a CPU the forward runs in the scheduler's thread: it has left the device before an update is handled"
    )


_CLAIMS: Mapping[str, Callable[[Result, Setup], Claim]] = {
    "paused-flush-succeeds": _looking_at("flush_stays_refused"),
    "update-flushes": _looking_at("update_was_refused_by_its_flush"),
    "deferred-flush-agrees": _looking_at("deferred_flush_disagrees"),
    "ledgers-drain": _entry_stays,
    "abort-answered": _looking_at("abort_has_no_effect"),
    "no-forward-while-paused": _looking_at("answers_while_paused"),
    "no-forward-during-load": _during_load,
    "no-stale-kv": _looking_at("answers_are_stale"),
    "update-tells-truth": _truth,
    "versions-agree": _looking_at("versions_split"),
    "engine-survives": _ends,
    "requests-conserved": _conserved,
}
