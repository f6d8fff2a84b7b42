"""Whether a retract keeps the requests that it takes back (`Scheduler.pause_generation`)."""

from __future__ import annotations

from typing import Any

# Objects of the engine; its modules are not imported here.
Engine = Any

KEEPING_LOOPS = frozenset(("normal", "overlap"))
"""Where a retract puts every request back into the one queue. A pipeline takes back one micro-batch of several, and the
queues of prefill and decode workers are others."""


def admitted(scheduler: Engine) -> list[Engine]:
    """The requests that wait or run, each at least once; none of a diffusion LLM, which has queues of its own."""
    if scheduler.dllm_config is not None:
        return []
    last, chunked = scheduler.last_batch, scheduler.chunked_req
    found = [*scheduler.waiting_queue, *scheduler.running_batch.reqs]
    if last is not None:
        found += last.reqs
    return found if chunked is None else [*found, chunked]


def turned_away(scheduler: Engine, before: list[Engine]) -> int:
    """How many of them neither wait or run any more nor have ended.

    What the engine turns away (`_abort_on_queued_limit`) is answered, and not marked as finished.
    """
    kept = {id(request) for request in admitted(scheduler)}
    return len({id(request) for request in before if id(request) not in kept and not request.finished()})
