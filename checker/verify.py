"""`checker verify`: every property in every configuration, configurations in parallel, results as data."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING

from checker.digest import spec_digest
from checker.results import SCHEMA, EngineInfo, Report, Result, Trace, TraceStep, overall
from checker.verdict import Verdict, worst
from spec.profile import Configuration, Profile

if TYPE_CHECKING:
    from checker.confirm import Confirmed
    from checker.hints import Hints
    from checker.workbench import Decided, Workbench
    from spec.tla import Spec

SCOPE = "unbounded"


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


Progress = Callable[[int, int, Result], None]


def verify(request: Request, progress: Progress | None = None) -> Report:
    """All results. An interrupt ends it with what is known so far (`complete` is false)."""
    from spec.properties import chosen  # noqa: PLC0415 - z3 is loaded only when something is to be proved

    chosen(request.properties)
    configurations = request.profile.configurations(request.loops, request.modes)
    results: list[Result] = []
    complete = True
    try:
        for batch in _run(request, configurations):
            for result in batch:
                results.append(result)
                if progress:
                    progress(len(results), len(configurations), result)
    except KeyboardInterrupt:
        complete = False
    results.sort(key=_order(request, configurations))
    return _report(request, results, complete=complete)


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
    chains = _chains(configurations)
    workers = min(request.workers, len(chains))
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("fork"), initializer=_start_worker, initargs=(os.getpid(),)
    )
    try:
        futures: list[Future[list[Result]]] = [pool.submit(verify_chain, request, chain) for chain in chains]
        for future in as_completed(futures):
            yield future.result()
    except BaseException:
        _stop(pool)
        raise
    pool.shutdown()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers now: a solver in the middle of a query does not look at anything else."""
    # The executor has no public way to do this before Python 3.14.
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(parent: int) -> None:
    """The parent answers the interrupt and ends its workers; a worker whose parent was killed ends itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _chains(configurations: Sequence[Configuration]) -> list[list[Configuration]]:
    """Configurations that differ in the pause mode alone: what one teaches helps the next. The dear ones come first."""
    chains: dict[tuple[str, str], list[Configuration]] = {}
    for configuration in configurations:
        chains.setdefault((configuration.storage, configuration.loop), []).append(configuration)
    return [chains[key] for key in sorted(chains, key=lambda key: (key[0] == "none", key[1] != "overlap"))]


def verify_chain(request: Request, configurations: Sequence[Configuration]) -> list[Result]:
    """Every chosen property in each of these configurations, one after the other."""
    from checker.hints import Hints  # noqa: PLC0415

    hints = Hints()
    return [result for c in configurations for result in verify_configuration(request, c, hints)]


def verify_configuration(request: Request, configuration: Configuration, hints: Hints | None = None) -> list[Result]:
    """Every chosen property in one configuration."""
    from checker.proof.system import Limits  # noqa: PLC0415
    from checker.workbench import Workbench  # noqa: PLC0415
    from spec.properties import chosen  # noqa: PLC0415

    bench = Workbench(request.profile, configuration, Limits(seed=request.seed), hints)
    results = []
    for prop in chosen(request.properties):
        start = time.perf_counter()
        reason = bench.not_applicable(prop)
        if reason is not None:
            results.append(_plain(prop.id, configuration, Verdict.NOT_APPLICABLE, reason))
            continue
        decided = bench.decide(prop)
        results.append(_result(bench, prop.id, decided, time.perf_counter() - start, request))
    return results


def _plain(property_id: str, configuration: Configuration, verdict: Verdict, reason: str) -> Result:
    return Result(
        property_id, configuration.loop, configuration.as_dict(), verdict.value, "none", "none", reason, None, 0.0
    )


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
    scope = SCOPE if verdict in (Verdict.PROVED, Verdict.REFUTED) else "none"
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
    )


def _proof_line(decided: Sequence[Decided]) -> str:
    ranks = [f"({', '.join(c.name for c in d.proof.rank)})" for d in decided if d.proof and d.proof.rank]
    if not decided:
        return "no claim in this configuration"
    return f"rank {'; '.join(ranks)}" if ranks else f"{len(decided)} claim(s) by {decided[0].method}"


def _trace(spec: Spec, confirmed: Confirmed) -> Trace:
    steps = []
    for step in confirmed.steps:
        action = spec.action(step.action)
        choices = {name.split(".", 1)[1]: value for name, value in step.choices.items() if value}
        state = {name: value for name, value in step.state.items() if value}
        steps.append(TraceStep(step.action, action.actor, action.engine, choices, state))
    return Trace(steps, confirmed.loop_from)
