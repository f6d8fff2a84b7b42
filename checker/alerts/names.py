"""The names of alerts, which are also those of their runbooks."""

from __future__ import annotations

STUCK = "FlushCannotSucceed"
BLOCKED = "FlushBlockedTooLong"
PAUSED = "EnginePausedTooLong"
PENDING = "WeightUpdatePendingTooLong"
FAILED = "WeightUpdateFailed"
RANKS_DIFFER = "WeightsDifferAcrossRanks"
MISALIGNED = "RanksMisaligned"
VERSIONS = "WeightVersionsDisagree"
ABSENT = "QuiesceMonitorAbsent"
HOOK = "QuiesceHookNotApplied"
SPEC = "QuiesceSpecDiffersAcrossRanks"
BUDGET = "QuiesceChecksOverBudget"
DROPPED = "QuiesceTraceEventsDropped"


def violated(property_id: str) -> str:
    """The alert of a property: `no-stale-kv` has NoStaleKvViolated."""
    return "".join(part.capitalize() for part in property_id.split("-")) + "Violated"
