"""A counterexample as a short story: who did what, in the engine's words, and what it changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from checker.results import Result, TraceStep
from spec.peers import FIRST_PEER

_SENTENCES: Mapping[str, str] = {
    "Arrive": "a request arrives and is queued",
    "ArriveLate": "a request that had passed the tokenizer's gate before the pause arrives and is queued",
    "Pause": "pause_generation(mode={mode})",
    "Continue": "continue_generation: nothing is checked",
    "RunningPass": "one running pass of the loop",
    "PausedPass": "one paused pass of the loop",
    "ChainedPass": "one pass of the loop that chains a decode to the last: it neither reaps nor schedules",
    "OthersPass": "one turn of a micro-batch in which nobody runs, while those of another do",
    "WaitingPass": "one turn that launches nothing: a pause waits until no micro-batch is under way",
    "AbortAgain": "the pause aborts again what is still queued",
    "FlushGranted": "flush_cache is granted: the caches are reset",
    "FlushRefused": "flush_cache is refused: the gate is closed",
    "DeferFlush": "flush_cache(timeout) finds its gate closed and waits",
    "DeferredFlushGranted": "the waiting flush_cache is granted",
    "DeferredFlushTimesOut": "the waiting flush_cache times out",
    "WaitingTimesOut": "requests that waited longer than their time-out are aborted",
    "UpdateFlushed": "update_weights(flush_cache=True): loaded and flushed, success=True",
    "UpdateRefused": "update_weights(flush_cache=True): loaded, but its one flush is refused, success=False",
    "UpdateAsked": "update_weights(flush_cache=True) waits for the gate",
    "UpdateAnswered": "the waiting update_weights is loaded and flushed, success=True",
    "UpdateUnflushed": "update_weights(flush_cache=False): loaded, the caches stay, success=True",
    "SessionBegins": "begin_weight_update: the weights are laid out as they are loaded",
    "SessionEnds": "end_weight_update: the weights are laid out as they are used",
    "LoadBegins": "update_weights_from_distributed: the handler waits for the sender, and the scheduler with it",
    "LoadFlushed": "all parts have come and the flush is granted, success=True",
    "LoadRefused": "all parts have come, but the one flush is refused, success=False",
    "LoadFails": "a part does not come: success=False, and what was written stays",
    "ReleaseGranted": "release_memory_occupation: the KV is given up and flushed",
    "ReleaseRefused": "release_memory_occupation of an engine that is not idle",
    "Resume": "resume_memory_occupation",
    "ResumeRefused": "resume_memory_occupation, where nothing was released",
    "AttachGranted": "a storage backend is attached, with what it already holds",
    "AttachRefused": "the attachment of a storage backend is refused: the gate is closed",
    "DetachGranted": "the storage backend is detached; what it holds stays",
    "DetachRefused": "the detachment of the storage backend is refused: the gate is closed",
    "Clear": "clear_hicache_storage",
    "ClearRefused": "clear_hicache_storage is refused: the gate is closed",
    "AbortAll": "abort_request(abort_all): what waits leaves at once",
    "Detach": "the storage backend is detached while lookups may be in flight",
    "RejectLate": "a request is looked up in storage and then turned away",
    "Evict(device)": "for want of room, device pages that nothing locks are freed",
    "Evict(host)": "for want of room, host pages that nothing locks are freed",
    "MineAnswered": "the storage says how much it has for the followed request",
    "MineRead": "the KV of the followed request has been read",
    "MineSideRead": "its side pool has been filled",
    "MineTimesOut": "the time-out of its lookup ends it",
    "PeerCopyDone": "a copy is done on {peer}",
    "PeerForwardDone": "the forward of {peer} leaves its device",
    "PeerWaitsTooLong": "a waiting request has waited too long, by the clock of {peer}",
    "WaitsTooLong": "a waiting request has waited too long",
    "PeerHasWork": "another replica gets work and wakes the others",
    "Woken": "the wake arrives, and the replica steps",
    "ForwardDone": "the launched forward leaves the device",
    "OrphanDone": "a storage call that admission had cut off returns",
    "Park": "a request arrives and is parked at the tokenizer's gate",
    "Unpark": "the parked request is dispatched",
    "AbortMine": "the client aborts that request",
}
_CHOICES: Mapping[str, str] = {
    "tokens": "{n} uncached tokens",
    "late": "{n} still on the way",
    "admitted": "{n} admitted",
    "load_backs": "{n} loaded back from host",
    "finished": "{n} finished",
    "inserted": "{n} prefix inserted",
    "long": "{n} retracted with a long uncached part",
    "prefetch_taken": "{n} lookup read on",
    "kept": "{n} missed lookup kept for retry",
    "again": "{n} lookup retried",
    "write_through_split": "{n} fragment more of a split node backed up",
    "cut_query": "{n} lookup cut off",
    "cut_loading": "{n} read cut off",
}
# Not shown as changes: counters for claims, and what follows from the sentence itself.
_QUIET = (
    "mark_",
    "has_",
    "mine_",
    "forwards",
    "arrived",
    "answered",
    "works",
    "lookups",
    "flushes",
    "loads",
    "updates_ok",
    "gate_closed",
    "watched",
    "recorded_idle",
    "prefetch_budget",
    "late",
    "forward_busy",
)
_DONE = re.compile(r"\w+Done\((\w+)\.(\w+)\)")
_PEER = re.compile(r"Peer(\d?)(?=[A-Z])")
_HELP = "continue_generation, an abort or another request"


def tell(result: Result) -> Iterator[str]:
    """The lines of the story of one refuted result."""
    settings = ", ".join(f"{key} {value}" for key, value in result.configuration.items())
    yield f"Because {result.reason}"
    yield f"  (loop {result.loop}, {settings})"
    if result.trace is None:
        return
    yield ""
    before: Mapping[str, int | bool] = {}
    steps = result.trace.steps
    width = max((len(step.actor) for step in steps), default=0)
    for number, step in enumerate(steps, 1):
        yield f"  {number:>2}  {step.actor:<{width}}  {sentence(step, result)}"
        changed = ", ".join(changes(before, step.state))
        yield f"      {'':<{width}}  {step.engine}" + (f"   [{changed}]" if changed else "")
        before = step.state
    yield from ending(result)


def ending(result: Result) -> Iterator[str]:
    """How a counterexample goes on for ever, where it does."""
    if result.trace is None or result.trace.loop_from is None:
        return
    yield ""
    loop = result.trace.steps[result.trace.loop_from :]
    if loop:
        names = ", ".join(step.action for step in loop)
        yield f"  and then steps {result.trace.loop_from + 1} to {len(result.trace.steps)} repeat for ever ({names})."
        return
    yield f"  and so it stays: nothing but {_HELP} changes this."
    if result.engine_function:
        yield f"  The function that would have had to run: {result.engine_function}"


def sentence(step: TraceStep, result: Result) -> str:
    """What one step does, in a few words."""
    if done := _DONE.fullmatch(step.action):
        text = f"the {step.actor} completes a {done[1]} entry ({done[2]})"
    else:
        numbered = _PEER.match(step.action)
        action = _PEER.sub("Peer", step.action)
        text = _SENTENCES.get(action, _SENTENCES.get(action.split("(")[0], step.action))
        # The first of the other ranks has no number in its names.
        rank = (numbered and numbered[1]) or str(FIRST_PEER)
        text = text.replace("{mode}", str(result.configuration["mode"])).replace("{peer}", f"rank {rank}")
    told = [_CHOICES[key].format(n=value) for key, value in step.choices.items() if key in _CHOICES]
    return f"{text} ({', '.join(told)})" if told else text


def changes(before: Mapping[str, int | bool], after: Mapping[str, int | bool]) -> Iterator[str]:
    """What a step changed, without what only claims read."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, 0), after.get(name, 0)
        if old == new or name.startswith(_QUIET):
            continue
        if isinstance(old, bool) or isinstance(new, bool):
            yield name if new else f"not {name}"
        else:
            yield f"{name} {old}->{new}"
