"""Why a property is not counted by the monitor, and what can be seen of it all the same."""

from __future__ import annotations

from collections.abc import Mapping

UNWATCHED: Mapping[str, str] = {
    "abort-answered": (
        "Requests parked at the tokenizer's gate are in no scheduler, and those are what the refutation is about; "
        "what a scheduler has of an aborted request looks like any other that runs."
    ),
    "abort-flush-succeeds": (
        "A pause of mode abort is not told to the scheduler, whose monitor cannot tell it from running. A flush "
        "that is refused meanwhile is shown by `quiesce_flush_blocked`: alert `FlushBlockedTooLong`."
    ),
    "engine-survives": (
        "What ends the process ends its monitor. An engine that is gone is seen by whoever scrapes it: alert "
        "`QuiesceMonitorAbsent`."
    ),
    "flush-tells-truth": (
        "Whether a flush has left something behind is seen by the census of [pages-conserved](pages-conserved.md). "
        "A flush that is refused with its gate open cannot be told from a profile that does not fit the engine: the "
        "hook `gate` is then lost, and says so."
    ),
    "no-forward-during-load": (
        "Whether a forward is still on the device can be asked of a GPU only, and nothing here has been tried on one."
    ),
    "paused-controls-succeed": (
        "The handlers of releases, attaches and clears are not hooked, but for the release, whose flush is counted "
        "with the others."
    ),
    "ranks-aligned": (
        "A monitor sees one rank. Each rank exports `quiesce_protocol_digest`, a number of all that it was made to "
        "do, how it decided, and in which pass; ranks of one replica have the same. Alert: `RanksMisaligned`, "
        "runbook `deploy/runbooks/RanksMisaligned.md`. What parts two ranks between two control requests is seen at "
        "the next."
    ),
    "refusal-explained": (
        "What a refusal says is text for a person, and the bundled profile does not say what it names."
    ),
    "retries-are-lookups": ("SGLang 0.5.23 arms no retry that it does not send, so that there is nothing to see."),
}
"""Property to the reason. The pages of the properties say it."""
