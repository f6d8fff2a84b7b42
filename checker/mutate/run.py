"""Mutants in parallel, each worker with a judge of its own; a sample of them, by a seed, where asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from checker import workers
from checker.mutate.results import SCHEMA, Outcome, Report, reasons
from spec.profile import Configuration, Profile

if TYPE_CHECKING:
    from checker.mutate.mutants import Mutant


@dataclass(frozen=True)
class Request:
    """What to mutate. `sample` is how many mutants to try, None for all."""

    profile: Profile
    configuration: Configuration
    sample: int | None = None
    seed: int = 0
    workers: int = 1


def mutate(request: Request, progress: Callable[[int, int], None] | None = None) -> Report:
    """Every chosen mutant. An interrupt ends it with what is known so far (`complete` is false)."""
    found: dict[int, Outcome] = {}
    total, complete = 0, True
    try:
        for message in workers.results(partial(_in_worker, request), range(request.workers), request.workers):
            number, outcome, total, tried = message
            if outcome is not None:
                found[number] = outcome
            if progress:
                progress(len(found), tried)
    except KeyboardInterrupt:
        complete = False
    outcomes = [found[n] for n in sorted(found)]
    place = {"loop": request.configuration.loop, **request.configuration.as_dict()}
    names = request.profile.applied
    return Report(SCHEMA, request.profile.name, names, place, request.seed, total, outcomes, complete)


Message = tuple[int, Outcome | None, int, int]
"""A mutant's number and outcome; how many mutants there are, and how many are tried."""


def _in_worker(request: Request, share: int) -> Iterator[Message]:
    """Each worker takes every n-th mutant. It decides the unmutated spec itself: proofs do not travel."""
    import z3  # noqa: PLC0415 - loaded in the worker alone, so that no term exists before the fork

    from checker.mutate.judge import Judge  # noqa: PLC0415

    z3.z3.Z3_DEBUG = False  # as in checker.verify
    judge = Judge(request.profile, request.configuration, request.seed)
    every = judge.mutants()
    tried = sampled(every, request)
    yield -1, None, len(every), len(tried)
    c = request.configuration
    known = reasons(f"{c.loop} {c.mode} {c.storage}")
    for number in range(share, len(tried), request.workers):
        start = time.perf_counter()
        mutant = tried[number]
        kill = judge.judged(mutant)
        seconds = round(time.perf_counter() - start, 2)
        if kill:
            outcome = Outcome(str(mutant), mutant.kind, True, kill.how, kill.property_id, seconds=seconds)  # noqa: FBT003
        else:
            reason = known.get(str(mutant), "")
            outcome = Outcome(str(mutant), mutant.kind, False, reason=reason, seconds=seconds)  # noqa: FBT003
        yield number, outcome, len(every), len(tried)


def sampled(mutants: Sequence[Mutant], request: Request) -> list[Mutant]:
    """The mutants to try, in the order of the spec; the same for a seed, whatever the number of workers."""
    if request.sample is None or request.sample >= len(mutants):
        return list(mutants)
    rng = random.Random(request.seed)  # noqa: S311 - not for secrets
    return [mutants[i] for i in sorted(rng.sample(range(len(mutants)), request.sample))]
