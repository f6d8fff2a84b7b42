"""The Prometheus series, and the sink that writes them.

prometheus_client decides at its import whether it is in multiprocess mode, from PROMETHEUS_MULTIPROC_DIR; so it is
imported only when a sink is built, in a process in which the engine has set that variable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from engine_hooks.census.words import CLASSES
from engine_hooks.lineage.words import PLACES
from engine_hooks.recorder_writer import DROP_REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from engine_hooks.monitor_board import Violation

PREFIX = "quiesce_"
RANK_LABELS = ("tp_rank", "pp_rank", "dp_rank")
FLUSH_KINDS = ("immediate", "deferred", "update", "release")
FLUSH_RESULTS = ("granted", "refused", "timed_out")
UPDATE_KINDS = ("disk", "distributed", "tensor", "ipc")
UPDATE_RESULTS = ("ok", "failed", "unflushed")
STAGES = ("queued", "submitted", "ready")
INFO_LABELS = ("spec_digest", "version", "engine", "engine_version")
# A check takes microseconds; the last bucket is the pass of a slow decode.
_BUCKETS = (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2)

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Vocabulary:
    """The closed sets of label values of one process."""

    properties: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    """Ledgers and engine terms that can hold a flush back."""
    hooks: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    info: Labels = field(default=("", "", "", ""))
    """The values of INFO_LABELS."""
    process: str = "scheduler"


@dataclass(frozen=True)
class Series:
    """One series of the design's table."""

    kind: str
    labels: Labels
    text: str
    children: Callable[[Vocabulary], Iterable[Labels]]


def _each(names: Iterable[str]) -> list[Labels]:
    return [(name,) for name in names]


SERIES: Mapping[str, Series] = {
    "violations_total": Series(
        "counter",
        ("property",),
        "Episodes in which a property of the protocol did not hold.",
        lambda v: _each(v.properties),
    ),
    "checks_total": Series("counter", ("property",), "Checks evaluated.", lambda v: _each(v.properties)),
    "stuck": Series(
        "gauge",
        ("property",),
        "1: nothing but continue, abort or a reset can make the property come true.",
        lambda v: _each(v.properties),
    ),
    "paused": Series("gauge", ("process",), "1: paused.", lambda v: [(v.process,)]),
    "pause_start_timestamp_seconds": Series(
        "gauge", ("process",), "When the current pause began; 0 while running.", lambda v: [(v.process,)]
    ),
    "flushes_total": Series(
        "counter", ("kind", "result"), "Decisions about a flush.", lambda _: product(FLUSH_KINDS, FLUSH_RESULTS)
    ),
    "flush_blocked": Series(
        "gauge", ("ledger",), "1: a flush is wanted and this ledger holds it back.", lambda v: _each(v.blockers)
    ),
    "updates_total": Series(
        "counter", ("kind", "result"), "Weight updates answered.", lambda _: product(UPDATE_KINDS, UPDATE_RESULTS)
    ),
    "update_start_timestamp_seconds": Series(
        "gauge", (), "When the weight update in progress began; 0 where none is.", lambda _: [()]
    ),
    "weight_epoch": Series("gauge", (), "Weight loads so far, partial ones included.", lambda _: [()]),
    "version_mismatch": Series(
        "gauge",
        (),
        "1: this rank took the version of an update that it answered as failed; the tokenizer reports another.",
        lambda _: [()],
    ),
    "protocol_digest": Series(
        "gauge",
        (),
        "Of all pauses, resumes, updates and flushes, how each was decided and in which pass; the same on all ranks.",
        lambda _: [()],
    ),
    "ledger_entries": Series("gauge", ("ledger", "stage"), "Entries in flight.", lambda v: product(v.ledgers, STAGES)),
    "ledger_oldest_timestamp_seconds": Series(
        "gauge",
        ("ledger",),
        "When the oldest entry was first seen; 0 where the ledger is empty.",
        lambda v: _each(v.ledgers),
    ),
    "kv_pages": Series(
        "gauge", ("state",), "Pages of the KV pool by who holds them, at the last census.", lambda _: _each(CLASSES)
    ),
    "kv_tokens_read_total": Series(
        "counter",
        ("tier", "lineage"),
        "Tokens of earlier KV that requests read, by what brought them in and by the weights behind them.",
        lambda _: PLACES,
    ),
    "hook_applied": Series(
        "gauge", ("hook",), "1: the hook works; 0: what depends on it is not checked.", lambda v: _each(v.hooks)
    ),
    "remedy_active": Series("gauge", ("remedy",), "1: the remedy is active.", lambda v: _each(v.remedies)),
    "info": Series("gauge", INFO_LABELS, "What watches what; always 1.", lambda v: [v.info]),
    "trace_events_dropped_total": Series(
        "counter",
        ("reason",),
        "Passes and events of flight records that were not written.",
        lambda _: _each(DROP_REASONS),
    ),
    "check_duration_seconds": Series(
        "histogram", (), "Time to check one pass (one pass in 64 is timed).", lambda _: [()]
    ),
}
"""By the name that the monitor uses."""


class PrometheusSink:
    """Writes the series, or some of them, with every label child created at 0 at construction."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        rank: tuple[object, ...],
        registry: Any = None,  # noqa: ANN401 - a prometheus type, not known before the import
        series: Iterable[str] = SERIES,
    ) -> None:
        import prometheus_client  # noqa: PLC0415 - not before PROMETHEUS_MULTIPROC_DIR is set

        self._rank = tuple(map(str, rank))
        self._children: dict[tuple[str, Labels], Any] = {}
        # A registry of our own: in multiprocess mode values go to files, and names cannot collide with the engine's.
        target = registry if registry is not None else prometheus_client.CollectorRegistry()
        for name in series:
            one = SERIES[name]
            metric = self._metric(prometheus_client, name, one, target)
            for labels in one.children(vocabulary):
                self._children[name, labels] = child = metric.labels(*self._rank, *labels)
                if one.kind == "gauge":
                    # Where processes are merged by the most recent value, one that was never set is left out.
                    child.set(0)
        self.gauge("info", vocabulary.info, 1)

    @staticmethod
    def _metric(client: Any, name: str, series: Series, registry: Any) -> Any:  # noqa: ANN401 - a prometheus type, not known before the import
        names = (*RANK_LABELS, *series.labels)
        if series.kind == "counter":
            return client.Counter(PREFIX + name, series.text, names, registry=registry)
        if series.kind == "histogram":
            return client.Histogram(PREFIX + name, series.text, names, registry=registry, buckets=_BUCKETS)
        return client.Gauge(PREFIX + name, series.text, names, registry=registry, multiprocess_mode="mostrecent")

    def count(self, series: str, labels: Labels, by: int) -> None:
        """Add `by` to a counter; a label outside the closed set is dropped."""
        child = self._children.get((series, labels))
        if child is not None:
            child.inc(by)

    def gauge(self, series: str, labels: Labels, value: float) -> None:
        """Set a gauge; a label outside the closed set is dropped."""
        child = self._children.get((series, labels))
        if child is not None:
            child.set(value)

    def observe(self, series: str, value: float) -> None:
        """Add an observation (s) to a histogram."""
        self._children[series, ()].observe(value)

    def report(self, violation: Violation) -> None:
        """Nothing to do: the counter says it, the text is in the log."""

    def flush(self) -> None:
        """Nothing to do: values are shared memory, seen at the next scrape."""
