"""The text of `/metrics` to our series, checked against what engine_hooks exports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from engine_hooks.metrics import PREFIX, RANK_LABELS, SERIES

ENGINE_PREFIXES = ("sglang:", "sglang_")
"""Of SGLang's own series; the second where the colon is escaped."""
_FLAGS = frozenset(("stuck", "paused", "flush_blocked", "hook_applied", "remedy_active", "version_mismatch"))
_LONGEST_LINE = 2048
_MOST_LINES = 20_000
"""An engine of a hundred ranks. What is parsed is bounded, so that no answer takes more than some seconds."""
_MOST_CHARACTERS = 4 * 2**20
_LARGEST = 2.0**53 / _MOST_LINES
"""So that no sum loses a unit; as a time it is far off, and a counter reaches it in no engine's life."""
_NEEDED = ("hook_applied", "paused", "stuck", "violations_total")
"""What every version of Quiesce exports. Where one of these is not there, its silence means nothing."""


class ScrapeError(ValueError):
    """An answer of `/metrics` that is not what an engine gives. The message says what is wrong, for a person."""


@dataclass(frozen=True)
class Scrape:
    """Our series of one engine, by name without prefix; and whether it has series of SGLang's own."""

    samples: Mapping[str, tuple[Sample, ...]]
    is_engine: bool

    @property
    def has_ours(self) -> bool:
        """Whether Quiesce runs there."""
        return "info" in self.samples

    @property
    def lacks(self) -> tuple[str, ...]:
        """Series without which nothing can be said, by their whole names."""
        return tuple(f"{PREFIX}{name}" for name in _NEEDED if name not in self.samples)

    def of(self, name: str, **labels: str) -> tuple[Sample, ...]:
        """The samples of a series that carry these labels."""
        return tuple(s for s in self.samples.get(name, ()) if labels.items() <= s.labels.items())

    def by(self, name: str, label: str) -> dict[str, list[float]]:
        """Label value to the values on all ranks, in the order of the text."""
        found: dict[str, list[float]] = {}
        for sample in self.of(name):
            found.setdefault(sample.labels[label], []).append(sample.value)
        return found


def scrape(body: bytes) -> Scrape:
    """Read an answer. Raises ScrapeError."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ScrapeError(f"/metrics is not text (byte {error.start} is not UTF-8)") from error
    lines = text.splitlines()
    is_engine = any(line.startswith(ENGINE_PREFIXES) for line in lines)
    found: dict[str, list[Sample]] = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for name, sample in _samples(_ours(lines)):
        key = name, frozenset(sample.labels.items())
        if key in seen:
            raise ScrapeError(f"/metrics has {sample.name} twice with the same labels; which one holds is not known")
        seen.add(key)
        found.setdefault(name, []).append(sample)
    return Scrape({name: tuple(samples) for name, samples in found.items()}, is_engine)


def _ours(lines: list[str]) -> str:
    """Our lines only: what else an engine exports need not be parsed."""
    starts = (PREFIX, f"# TYPE {PREFIX}")
    kept = [line for line in lines if line.startswith(starts)]
    if sum(map(len, kept)) > _MOST_CHARACTERS:
        raise ScrapeError(f"/metrics has more than {_MOST_CHARACTERS} characters of our series")
    if len(kept) > _MOST_LINES:
        raise ScrapeError(f"/metrics has {len(kept)} series of ours; no engine has more than {_MOST_LINES}")
    for line in kept:
        if len(line) > _LONGEST_LINE:
            raise ScrapeError(f"/metrics has a line of {len(line)} characters, which starts: {line[:60]}")
    return "\n".join(kept) + "\n"


def _samples(text: str) -> Iterator[tuple[str, Sample]]:
    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, IndexError, KeyError) as error:
        raise ScrapeError(f"/metrics cannot be parsed: {error}") from error
    for family in families:
        _check_kind(family.name, family.type)
        for sample in family.samples:
            name = _known(sample.name)
            if name is not None:
                _check(name, sample)
                yield sample.name.removeprefix(PREFIX), sample


def _known(sample_name: str) -> str | None:
    """The series that a sample belongs to; None for one of a later version."""
    name = sample_name.removeprefix(PREFIX)
    if name in SERIES:
        return name
    for suffix in ("_bucket", "_sum", "_count"):
        if name.removesuffix(suffix) in SERIES:
            return name.removesuffix(suffix)
    return None


def _check_kind(family: str, kind: str) -> None:
    """The parser gives the samples of a TYPE that does not fit them to a family of their own, so this one is empty."""
    bare = family.removeprefix(PREFIX)
    name = bare if bare in SERIES else f"{bare}_total"
    # Without a TYPE line the kind is not known, which is no contradiction.
    if name in SERIES and kind not in (SERIES[name].kind, "unknown"):
        raise ScrapeError(f"{PREFIX}{name} is a {kind} there, not a {SERIES[name].kind}")


def _check(name: str, sample: Sample) -> None:
    missing = {*RANK_LABELS, *SERIES[name].labels} - set(sample.labels)
    if missing:
        raise ScrapeError(f"{sample.name} lacks the labels {', '.join(sorted(missing))}")
    if not math.isfinite(sample.value):
        raise ScrapeError(f"{sample.name} is {sample.value}, not a number")
    if name in _FLAGS and sample.value not in (0, 1):
        raise ScrapeError(f"{sample.name} is {sample.value:g}, not 0 or 1")
    if sample.value > _LARGEST:
        raise ScrapeError(f"{sample.name} is {sample.value:g}, which is no count and no time")
    if sample.value < 0:
        raise ScrapeError(f"{sample.name} is {sample.value:g}, which is negative")
