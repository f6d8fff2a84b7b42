"""From an engine's answers to a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from checker.alerts import names
from checker.doctor.fetch import METRICS, MODEL, SERVER, Answer
from checker.doctor.reading import Own, Reading
from checker.doctor.results import Diagnosis, State
from checker.doctor.scrape import Scrape, ScrapeError, scrape

_T = TypeVar("_T")


class _Internal(msgspec.Struct, frozen=True):
    weight_version: str = ""


class _Server(msgspec.Struct, frozen=True):
    version: str
    internal_states: Sequence[_Internal]


class _Model(msgspec.Struct, frozen=True):
    weight_version: str


def diagnose(url: str, answers: Mapping[str, Answer]) -> Diagnosis:
    """What is wrong with one engine, by its answers to fetch.PATHS."""
    own = _own(answers)
    metrics = answers[METRICS]
    if metrics.problem and not own.version:
        return _unreachable(url, f"{METRICS}: {metrics.problem}")
    if metrics.problem:
        summary = f"sglang {own.version} without {METRICS} ({metrics.problem}); start it with --enable-metrics"
        return _cannot_tell(url, summary, own)
    try:
        return _read(url, scrape(metrics.body), own, metrics.at)
    except ScrapeError as error:
        return _unreachable(url, f"not an engine's answer: {error}")


def _read(url: str, found: Scrape, own: Own, now: float) -> Diagnosis:
    if found.has_ours and found.lacks:
        return _cannot_tell(url, f"Quiesce runs there, but its answer lacks {', '.join(found.lacks)}", own)
    if found.has_ours:
        return Reading(url, found, own, now).diagnosis()
    if found.is_engine or own.version:
        return _cannot_tell(
            url, f"sglang {own.version or '(version unknown)'} without Quiesce; nothing is watched", own
        )
    return _unreachable(url, f"not an engine: {METRICS} has no series of SGLang and none of Quiesce")


def _unreachable(url: str, why: str) -> Diagnosis:
    return Diagnosis(url, State.UNREACHABLE.value, why)


def _cannot_tell(url: str, why: str, own: Own) -> Diagnosis:
    engine = f"sglang {own.version}" if own.version else ""
    return Diagnosis(url, State.CANNOT_TELL.value, why, engine=engine, notes=own.notes, runbooks=(names.ABSENT,))


def _own(answers: Mapping[str, Answer]) -> Own:
    notes = [f"{path}: {answers[path].problem}" for path in (SERVER, MODEL) if answers[path].problem]
    server = _decoded(answers[SERVER], _Server, SERVER, notes)
    model = _decoded(answers[MODEL], _Model, MODEL, notes)
    schedulers = tuple(s.weight_version for s in server.internal_states if s.weight_version) if server else ()
    tokenizer = (model.weight_version,) if model else ()
    return Own(server.version if server else "", schedulers, tokenizer, tuple(notes))


def _decoded(answer: Answer, kind: type[_T], path: str, notes: list[str]) -> _T | None:
    if answer.problem:
        return None
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        notes.append(f"{path}: not what SGLang answers: {error}")
        return None
