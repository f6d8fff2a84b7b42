"""Blocks about what runs in the engine: metrics, their labels, environment variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checker.docs.blocks import Maker, code, table
from checker.docs.errors import DocsError
from engine_hooks.census.words import CLASSES
from engine_hooks.compiled import compiled_profile
from engine_hooks.lineage.words import KINDS, TIERS
from engine_hooks.metrics import (
    FLUSH_KINDS,
    FLUSH_RESULTS,
    INFO_LABELS,
    PREFIX,
    RANK_LABELS,
    SERIES,
    STAGES,
    UPDATE_KINDS,
    UPDATE_RESULTS,
)
from engine_hooks.monitor_text import HOOKS, NEEDS, blocker_names
from engine_hooks.recorder_writer import DROP_REASONS
from engine_hooks.settings import VARIABLES
from engine_hooks.sglang.tokenizer import PROCESS
from engine_hooks.sglang.tokenizer import SERIES as OF_TOKENIZER

_ENGINE, _VERSION = "sglang", "0.5.23"


def makers() -> Mapping[str, Maker]:
    """What can be generated about the hooks."""
    return {
        "metrics": lambda _: _metrics(),
        "labels": lambda _: _labels(),
        "environment": lambda _: _environment(),
    }


def _metrics() -> str:
    rows = [
        (f"`{PREFIX}{name}`", one.kind, code(one.labels), one.text, _processes(name)) for name, one in SERIES.items()
    ]
    return table(("series", "type", "labels", "says", "from"), rows)


def _processes(name: str) -> str:
    return f"scheduler, {PROCESS}" if name in OF_TOKENIZER else "scheduler"


def _labels() -> str:
    """The closed sets of values, by label; each label of a series is in one of them."""
    profile = compiled_profile(_ENGINE, _VERSION)
    if profile is None:
        raise DocsError(f"no compiled profile of {_ENGINE} {_VERSION}; run: python -m checker.compile")
    values: Mapping[tuple[str, str], Sequence[str]] = {
        ("property", ""): tuple(NEEDS),
        ("process", ""): ("scheduler", PROCESS),
        ("kind", "flushes_total"): FLUSH_KINDS,
        ("result", "flushes_total"): FLUSH_RESULTS,
        ("kind", "updates_total"): UPDATE_KINDS,
        ("result", "updates_total"): UPDATE_RESULTS,
        ("ledger", ""): tuple(profile.ledgers),
        ("ledger", "flush_blocked"): blocker_names(profile),
        ("stage", ""): STAGES,
        ("hook", ""): HOOKS,
        ("remedy", ""): tuple(profile.remedies),
        ("reason", ""): DROP_REASONS,
        ("state", ""): CLASSES,
        ("tier", ""): TIERS,
        ("lineage", ""): KINDS,
    }
    used = {label for one in SERIES.values() for label in one.labels}
    untold = used - {label for label, _ in values} - set(INFO_LABELS)
    if untold:
        raise DocsError(f"labels whose values are not told: {', '.join(sorted(untold))}")
    rows = [
        (f"`{label}`" + (f" of `{PREFIX}{of}`" if of else ""), code(names))
        for (label, of), names in values.items()
        if label in used
    ]
    ranks = (code(RANK_LABELS), "the rank's numbers, on each series; empty from the tokenizer")
    info = (code(INFO_LABELS), f"of `{PREFIX}info`: what watches what")
    return table(("label", "values"), [*rows, ranks, info])


def _environment() -> str:
    rows = [(f"`{one.name}`", one.values, one.default, one.text) for one in VARIABLES]
    return table(("variable", "values", "default", "what it does"), rows)
