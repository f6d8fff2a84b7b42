"""`checker verify`: every property in every configuration, configurations in parallel, results as data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from checker import workers
from checker.digest import spec_digest
from checker.results import SCHEMA, EngineInfo, Report, Result, Trace, TraceStep, overall
from checker.verdict import Verdict, worst
from checker.workers import WorkerLostError
from spec.profile import Configuration, Profile

if TYPE_CHECKING:
    from checker.confirm import Confirmed
    from checker.decide.decided import Decided
    from checker.hints import Hints
    from checker.workbench import Workbench
    from spec.tla import Spec


def scope_of(configuration: Configuration) -> str:
    """Of how much a verdict speaks: of any work in flight, and of so many ranks where there are several."""
    return "unbounded" if configuration.ranks == 1 else f"ranks={configuration.ranks}"


@dataclass(frozen=True)
class Request:
    """What to verify. Empty tuples mean all."""

    profile: Profile
    source: str = "bundled"
    properties: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    seed: int = 0
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    certificates: str | None = None
    anew: bool = False
    """Whether everything is searched for, and nothing taken from what an earlier search found."""


Found = TypeVar("Found")
Progress = Callable[[int, int, Result], None]


class VerifyLostError(WorkerLostError):
    """A worker was lost; `report` is what was decided before."""

    def __init__(self, why: str, report: Report) -> None:
        """`report` is not complete."""
        super().__init__(why)
        self.report = report


def verify(request: Request, progress: Progress | None = None) -> Report:
    """All results. An interrupt ends it with what is known so far (`complete` is false).

    Raises VerifyLostError, which holds what is known, where a worker is lost.
    """
    from spec.properties import chosen  # noqa: PLC0415 - z3 is loaded only when something is to be proved

    chosen(request.properties)
    configurations = request.profile.configurations(request.loops, request.modes)
    results: list[Result] = []
    complete, lost = True, ""
    try:
        for batch in _run(request, configurations):
            for result in batch:
                results.append(result)
                if progress:
                    progress(len(results), len(configurations), result)
    except KeyboardInterrupt:
        complete = False
    except WorkerLostError as error:
        complete, lost = False, str(error)
    results.sort(key=_order(request, configurations))
    report = _report(request, results, complete=complete)
    if lost:
        raise VerifyLostError(lost, report)
    return report


def _order(request: Request, configurations: Sequence[Configuration]) -> Callable[[Result], tuple[int, int]]:
    from spec.properties import chosen  # noqa: PLC0415

    places = {(c.loop, *c.as_dict().values()): i for i, c in enumerate(configurations)}
    ids = {p.id: i for i, p in enumerate(chosen(request.properties))}
    return lambda r: (places[r.loop, *r.configuration.values()], ids[r.property])


def _report(request: Request, results: list[Result], *, complete: bool) -> Report:
    import z3  # noqa: PLC0415

    profile = request.profile
    info = EngineInfo(profile.engine, profile.version, profile.name, request.source, list(profile.applied))
    verdict = overall(results, complete=complete).value
    solver = f"z3 {z3.get_version_string()}"
    return Report(SCHEMA, info, results, verdict, spec_digest(profile), solver, request.seed, complete)


def _run(request: Request, configurations: Sequence[Configuration]) -> Iterator[list[Result]]:
    # Forked before this process has made any Z3 term, so that each worker starts with an empty context of its own.
    # One worker too: an interrupt that arrives while Python frees a Z3 term is lost, and here nothing does.
    return workers.results(partial(in_worker, verify_chain, request), chains(request, configurations), request.workers)


def in_worker(
    decide: Callable[[Request, Sequence[Configuration]], Iterator[Found]],
    request: Request,
    chain: Sequence[Configuration],
) -> Iterator[Found]:
    """What `decide` finds, in a process that asks nothing else."""
    import z3  # noqa: PLC0415

    # Z3's Python layer checks the sorts of all that it is given. The tests run with these checks; they cost a tenth.
    z3.z3.Z3_DEBUG = False
    return decide(request, chain)


def chains(request: Request, configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Configurations of one loop, decided one after the other: what one teaches helps the next.

    However many workers there are: with other chains other ranks would be found, and what is printed would differ.
    """
    found: dict[str, list[Configuration]] = {}
    for configuration in configurations:
        found.setdefault(configuration.loop, []).append(configuration)
    return [sorted(chain, key=partial(_teaches, request.profile)) for chain in found.values()]


def _teaches(profile: Profile, configuration: Configuration) -> tuple[bool, bool, int]:
    """The fewer ledgers there are, and the less a pause does, the more of what is found holds in the others."""
    mode = profile.pause[configuration.mode]
    return configuration.storage != "none", not mode.sets_flag, len(mode.steps)


def verify_chain(request: Request, configurations: Sequence[Configuration]) -> Iterator[list[Result]]:
    """Every chosen property in each of these configurations, one after the other."""
    from checker.hints import Hints  # noqa: PLC0415
    from checker.kept.model import load_kept  # noqa: PLC0415

    hints: Hints[Decided] = Hints(kept=None if request.anew else load_kept(request.profile, request.seed))
    for configuration in configurations:
        yield verify_configuration(request, configuration, hints)


def verify_configuration(
    request: Request, configuration: Configuration, hints: Hints[Decided] | None = None
) -> list[Result]:
    """Every chosen property in one configuration."""
    from checker.proof.system import Limits  # noqa: PLC0415
    from checker.workbench import Workbench  # noqa: PLC0415

    return results_of(request, Workbench(request.profile, configuration, Limits(seed=request.seed), hints))


def results_of(request: Request, bench: Workbench) -> list[Result]:
    """Every chosen property on one bench."""
    from checker.spoken import Spoken  # noqa: PLC0415
    from spec.properties import chosen  # noqa: PLC0415

    configuration, results, spoken = bench.configuration, [], Spoken()
    for prop in chosen(request.properties):
        start = time.perf_counter()
        if unsure := bench.unsure(prop):
            results.append(_unsure(prop.id, configuration, unsure))
            continue
        reason = bench.not_applicable(prop)
        if reason is not None:
            results.append(_plain(prop.id, configuration, Verdict.NOT_APPLICABLE, reason))
            continue
        decided = bench.decide(prop)
        if not decided:
            reason = "no claim of it has a meaning in this configuration"
            results.append(_plain(prop.id, configuration, Verdict.NOT_APPLICABLE, reason))
            continue
        result = _result(bench, prop.id, decided, time.perf_counter() - start, request)
        if result.verdict == Verdict.PROVED.value:
            lemmas = [lemma for d in decided if d.proof for lemma in d.proof.lemmas]
            result = msgspec.structs.replace(result, invariant=spoken.invariant(lemmas))
        results.append(result)
    return results


def _plain(property_id: str, configuration: Configuration, verdict: Verdict, reason: str) -> Result:
    return Result(
        property_id, configuration.loop, configuration.as_dict(), verdict.value, "none", "none", reason, None, 0.0
    )


def _unsure(property_id: str, configuration: Configuration, reason: str) -> Result:
    plain = _plain(property_id, configuration, Verdict.UNKNOWN, reason)
    return msgspec.structs.replace(plain, method="unknown-fact")


def _result(bench: Workbench, property_id: str, decided: Sequence[Decided], seconds: float, request: Request) -> Result:
    from checker.certificate import write_certificate  # noqa: PLC0415
    from checker.reasons import Case, Reason, why  # noqa: PLC0415

    verdict = worst(d.verdict for d in decided)
    telling = next(d for d in decided if d.verdict is verdict)
    configuration = bench.configuration
    trace, reason = None, Reason(telling.note)
    if telling.confirmed is not None:
        subject = bench.subject(follow_request="mine_abort" in telling.confirmed.initial)
        trace = _trace(subject.spec, telling.confirmed)
        reason = why(property_id, Case(subject.protocol, telling.confirmed, telling.part.about, telling.method))
    certificate = None
    if verdict is Verdict.PROVED:
        reason = Reason(_proof_line(decided))
        if request.certificates:
            certificate = write_certificate(request.certificates, request.profile, configuration, property_id, decided)
    scope = scope_of(configuration) if verdict in (Verdict.PROVED, Verdict.REFUTED) else "none"
    return Result(
        property_id,
        configuration.loop,
        configuration.as_dict(),
        verdict.value,
        scope,
        telling.method,
        reason.text,
        reason.ledger,
        round(seconds, 4),
        trace,
        certificate,
        reason.function,
        any(d.kept for d in decided),
    )


def _proof_line(decided: Sequence[Decided]) -> str:
    ranks = [f"({', '.join(c.name for c in d.proof.rank)})" for d in decided if d.proof and d.proof.rank]
    return f"rank {'; '.join(ranks)}" if ranks else f"{len(decided)} claim(s) by {decided[0].method}"


def _trace(spec: Spec, confirmed: Confirmed) -> Trace:
    steps = []
    for step in confirmed.steps:
        action = spec.action(step.action)
        choices = {name.split(".", 1)[1]: value for name, value in step.choices.items() if value}
        state = {name: value for name, value in step.state.items() if value}
        steps.append(TraceStep(step.action, action.actor, action.engine, choices, state))
    return Trace(steps, confirmed.loop_from)
