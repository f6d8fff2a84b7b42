"""What the monitor says to a person: which checks need which hooks, and the line that a violation is logged with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from engine_hooks.compiled import CompiledProfile
    from engine_hooks.observation import Observation

WORKER_QUEUES = (
    "pd_bootstrap_waiting", "pd_inflight_sending", "pd_prealloc_waiting", "pd_transfer_receiving", "pd_release_held",
)  # fmt: skip
"""What an observation has of the queues of a prefill or decode worker."""
HOOKS = (
    "profile", "pass", "paused_pass", "forward", "pause", "resume", "flush", "deferred_flush", "update", "idle",
    "state", "lookups", "gate", "stuck_region", "version", "census", "lineage",
)  # fmt: skip
"""`profile`: the engine's version has one. `state`: the observation's variables. `gate`: the compiled gate agrees with
the engine's own. `stuck_region`: one was compiled for the configuration of this pause; it comes and goes with it.
`version`: the weight version, of which `version_mismatch` speaks. `census`: the KV pages can be counted. `lineage`:
which weights are behind each can be followed. The others are places in the engine's code."""

NEEDS: Mapping[str, frozenset[str]] = {
    "paused-flush-succeeds": frozenset(("profile", "state", "gate", "paused_pass", "pause", "resume", "flush")),
    "update-flushes": frozenset(("profile", "update", "flush", "pause", "resume")),
    "deferred-flush-agrees": frozenset(("profile", "state", "gate", "pass", "deferred_flush")),
    "no-new-lookup-while-paused": frozenset(("profile", "state", "lookups", "pass", "paused_pass")),
    "no-forward-while-paused": frozenset(("profile", "forward", "pause", "resume")),
    "idle-is-true": frozenset(("profile", "state", "gate", "idle", "paused_pass")),
    "flush-only-when-quiescent": frozenset(("profile", "state", "gate", "flush")),
    "no-stale-kv": frozenset(("profile", "forward", "update", "flush")),
    "pages-conserved": frozenset(("profile", "census")),
    "update-tells-truth": frozenset(("profile", "forward", "update", "flush")),
    "versions-agree": frozenset(("profile", "update", "version")),
    "requests-conserved": frozenset(("profile", "pause", "resume")),
    "ready-work-retired": frozenset(("profile", "state", "pass", "resume")),
    "ledgers-drain": frozenset(("profile", "state", "pass", "paused_pass", "resume")),
    "requests-return": frozenset(("profile", "state", "pass", "resume")),
    "control-answered": frozenset(("profile", "state", "pass", "paused_pass", "resume")),
    "paused-work-ends": frozenset(("profile", "state", "lookups", "pass", "paused_pass", "resume")),
}
"""The properties watched, each with the hooks without which it is not checked."""

READY = "ready-work-retired"
"""The property that says itself of whose reaper the turn is overdue."""
# The properties of which the ledgers are the cause, so that their entries belong in the line.
_ABOUT_LEDGERS = frozenset((
    "paused-flush-succeeds", "update-flushes", "idle-is-true", "flush-only-when-quiescent", READY, "ledgers-drain",
))  # fmt: skip

_ADVICE: Mapping[str, str] = {
    "paused-flush-succeeds": "no retry can succeed while paused: call continue_generation and then flush, before any "
    "new request; or start with QUIESCE_REMEDIES=reap-while-paused (prefill and decode workers: "
    "pd-drains-while-paused)",
    "update-flushes": "the new weights are loaded but the old cache is not dropped: call flush_cache until it "
    "succeeds, before continue_generation",
    "deferred-flush-agrees": "send the flush again without a time-out",
    "no-new-lookup-while-paused": "the storage is queried for requests that cannot run: look for a hook or patch that "
    "reaps with storage retries while paused",
    "no-forward-while-paused": "this loop does not honour the pause: do not change weights under it",
    "idle-is-true": "do not trust the engine's idle record (its metrics, its load balancing) during this pause",
    "flush-only-when-quiescent": "caches were reset under work in flight: restart the engine",
    "no-stale-kv": "outputs may mix old and new weights: pause, flush until it succeeds, and discard what was "
    "generated since the update",
    "pages-conserved": "a page that two hold gives wrong answers, so restart the engine; one that nobody holds is lost "
    "until the next flush, so flush",
    "update-tells-truth": "the update failed, and its weights answer all the same: pause, flush until it succeeds, and "
    "discard what was generated since the update",
    "versions-agree": "samples carry the version of one of the two: send the update again until it succeeds",
    "requests-conserved": "send these requests again; or start with a larger max_queued_requests, or with "
    "QUIESCE_REMEDIES=retract-keeps-admitted",
    "ready-work-retired": "the running loop does not reach the function that would retire it: look for a patch of the "
    "loop; on several ranks, for one of them whose copies do not end",
    "ledgers-drain": "while paused call continue_generation; while running look at the device, the storage or the peer "
    "that was given the work",
    "requests-return": "look for what keeps requests from being scheduled: a lookup of a storage that does not answer, "
    "memory, a rank that waits for another",
    "paused-work-ends": "the storage is queried for as long as the pause lasts: look for a hook or patch that retries "
    "lookups while paused",
    "control-answered": "whoever sent the flush still waits: end its connection and send it again",
}


def blocker_names(profile: CompiledProfile) -> tuple[str, ...]:
    """Every ledger and engine term that can hold back some gate, in the order of the profile."""
    return tuple(dict.fromkeys(name for blockers in profile.blockers.values() for name in blockers))


def describe_ledgers(profile: CompiledProfile, seen: Observation, now: float, left_alone: Container[str]) -> str:
    """Each ledger that is not empty, with its stages, the age of its oldest entry (s) and its reaper.

    Of a ledger that is `left_alone` the reaper does not run; of another what is in flight is not done yet.
    """
    parts = []
    for name, ledger in profile.ledgers.items():
        stages = {stage: sum(getattr(seen, a) for a in attributes) for stage, attributes in ledger.stages.items()}
        if not any(stages.values()):
            continue
        counts = ", ".join(f"{number} {stage}" for stage, number in stages.items() if number)
        age = f", the oldest seen {now - seen.oldest[name]:.2f} s ago" if name in seen.oldest else ""
        needed = "would have to run" if name in left_alone else "retires it when it is done"
        parts.append(f"{name} ({counts}{age}; {ledger.reaper} {needed})")
    for attribute in WORKER_QUEUES:
        if number := getattr(seen, attribute):
            name, _, stage = attribute.rpartition("_")
            parts.append(f"{name} ({number} {stage})")
    return "; ".join(parts)


@dataclass(frozen=True)
class Finding:
    """A property that does not hold."""

    property: str
    what: str
    """What was seen, in a few words."""
    seen: Observation | None
    now: float
    """Wall-clock time (s)."""
    since: float | None
    """Start of the pause (wall-clock s); None while running."""
    left_alone: Container[str] = ()
    """The ledgers that no pass of this pause retires."""


def describe(profile: CompiledProfile, finding: Finding) -> str:
    """The one line that an episode is logged with."""
    seen, now = finding.seen, finding.now
    ledgers = ""
    if seen is not None and finding.property in _ABOUT_LEDGERS:
        left_alone = seen.ready_since if finding.property == READY else finding.left_alone
        ledgers = describe_ledgers(profile, seen, now, left_alone)
    where = ""
    if seen is not None:
        where = f" on {seen.rank}, pass {seen.sequence} of loop {seen.loop}"
    paused = f", paused for {now - finding.since:.2f} s" if finding.since is not None else ""
    mode = f" ({seen.mode})" if seen is not None and seen.mode else ""
    held = f"; in flight: {ledgers}" if ledgers else ""
    return (
        f"{finding.property} does not hold{where}{paused}{mode}: {finding.what}{held}; now: {_ADVICE[finding.property]}"
    )
