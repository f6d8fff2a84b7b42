"""What a verification says, as data: the JSON of `checker verify --json`, schema 1. Extend it, do not change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from checker.verdict import Verdict, worst

SCHEMA = 1


class TraceStep(msgspec.Struct, frozen=True):
    """One step of a counterexample. `state` is the state after it, without what is 0 or false."""

    action: str
    actor: str
    engine: str
    choices: Mapping[str, int]
    state: Mapping[str, int | bool]


class Trace(msgspec.Struct, frozen=True):
    """A counterexample, re-run on the concrete interpreter. From step `loop_from` on it repeats for ever."""

    steps: Sequence[TraceStep]
    loop_from: int | None


class Result(msgspec.Struct, frozen=True):
    """One property in one configuration."""

    property: str
    loop: str
    configuration: Mapping[str, str | int]
    verdict: str
    scope: str
    method: str
    reason: str
    ledger: str | None
    seconds: float
    trace: Trace | None = None
    certificate: str | None = None
    engine_function: str | None = None
    """For a stuck ledger: the engine's function that would have had to run."""
    kept: bool = False
    """Whether an earlier search had found it, kept with the profile; it was checked in full now."""
    invariant: Sequence[str] = ()
    """For a proof: what holds in every state that the spec can reach, and was proved with it; lemma by lemma."""


class EngineInfo(msgspec.Struct, frozen=True):
    """Which engine and profile the results speak of."""

    name: str
    version: str
    profile: str
    source: str
    remedies: Sequence[str]


class Report(msgspec.Struct, frozen=True):
    """The whole answer. `complete` is false where it was interrupted."""

    schema: int
    engine: EngineInfo
    results: Sequence[Result]
    verdict: str
    spec_digest: str
    solver: str
    seed: int
    complete: bool = True


def overall(results: Sequence[Result], *, complete: bool = True) -> Verdict:
    """The worst verdict; an incomplete run is never better than unknown."""
    verdict = worst(Verdict(r.verdict) for r in results)
    return verdict if complete or verdict is Verdict.REFUTED else Verdict.UNKNOWN
