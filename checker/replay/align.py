"""Whether the ranks of one engine were told the same, in the same order.

Every rank handles each control request, between two passes of its own; how many passes lie between is not compared,
since no clock holds the ranks together. Replicas (data-parallel ranks) serve other requests each, so that what came
between, and what a flush was answered, may differ: only pauses, resumes and updates are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from checker.clock import utc
from checker.replay.reading import Place, Reading, Trace
from checker.replay.results import ACCEPTED, DIVERGES, UNKNOWN, Alignment
from engine_hooks.trace import Step

_CONTROLS = frozenset(("pause", "continue", "flush", "defer", "deferred", "update"))
_OF_REPLICAS = frozenset(("pause", "continue", "update"))
_SECONDS = 600.0
"""Traces of one engine begin within so long."""


def alignments(found: Sequence[Trace], *, open_: bool = False) -> list[Alignment]:
    """One for each engine of which there are several ranks; `open_` as for a Reading. Raises TraceError."""
    engines: list[list[Trace]] = []
    for trace in found:
        home = next((engine for engine in engines if _together(engine, trace)), None)
        if home is None:
            engines.append([trace])
        else:
            home.append(trace)
    return [_alignment(engine, open_=open_) for engine in engines if len(engine) > 1]


def _together(engine: Sequence[Trace], trace: Trace) -> bool:
    """Whether a trace is of another rank of this engine."""
    own, other = trace.header, engine[0].header
    same = (own.engine, own.engine_version, own.loop, own.remedies, own.storage) == (
        other.engine,
        other.engine_version,
        other.loop,
        other.remedies,
        other.storage,
    )
    folder = trace.parts[0].path.parent == engine[0].parts[0].path.parent
    new = all(trace.header.rank != one.header.rank for one in engine)
    return same and folder and new and abs(own.at - other.at) <= _SECONDS


def _alignment(engine: Sequence[Trace], *, open_: bool) -> Alignment:
    ranks = tuple(" ".join(f"{k}{v}" for k, v in trace.header.rank.items()) for trace in engine)
    if any(trace.header.part > 1 for trace in engine):
        return Alignment(UNKNOWN, ranks, "the beginning of a trace is gone, so that nothing says which requests match")
    several = len({trace.header.rank.get("dp", 0) for trace in engine}) > 1
    controls = 0
    for told in zip_longest(*(_told(Reading(trace, open_=open_), replicas=several) for trace in engine)):
        if any(one is None for one in told):
            # One was ended before the others; what all were told was the same.
            break
        words = {one[0] for one in told}
        if len(words) > 1:
            each = "; ".join(f"{rank}: {_said(one)}" for rank, one in zip(ranks, told, strict=True))
            return Alignment(DIVERGES, ranks, f"control request {controls + 1} differs: {each}", controls)
        controls += 1
    return Alignment(ACCEPTED, ranks, controls=controls)


def _told(reading: Reading, *, replicas: bool) -> Iterator[tuple[str, Place, float]]:
    """What a rank was told, and how it answered after how many requests; of replicas, what they were told."""
    arrived = 0
    for line in reading:
        if isinstance(line, Step):
            arrived += line.do == "arrive"
            if not replicas and line.do in _CONTROLS:
                yield f"{line.do} {line.how}".rstrip() + f" after {arrived} requests", reading.place, line.at
            elif replicas and line.do in _OF_REPLICAS:
                yield f"{line.do} {line.how if line.do == 'pause' else ''}".rstrip(), reading.place, line.at


def _said(told: tuple[str, Place, float]) -> str:
    word, place, at = told
    return f"{word} (line {place.line}, {utc(at)})"
