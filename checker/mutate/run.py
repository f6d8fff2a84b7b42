"""Mutants in parallel, each worker with a judge of its own; a sample of them, by a seed, where asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from checker import workers
from checker.mutate.results import SCHEMA, Outcome, Report

if TYPE_CHECKING:
    from checker.mutate.judge import Judge
    from checker.mutate.mutants import Mutant
    from checker.mutate.suite import Place


@dataclass(frozen=True)
class Request:
    """Where to mutate: the places in the order in which they are tried. `sample` is how many mutants, None for all."""

    places: Sequence[Place]
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
    first = request.places[0]
    place = {"loop": first.configuration.loop, **first.configuration.as_dict()}
    places = [one.name for one in request.places] if len(request.places) > 1 else []
    names = first.profile.applied
    return Report(SCHEMA, first.profile.name, names, place, request.seed, total, outcomes, complete, places)


Message = tuple[int, Outcome | None, int, int]
"""A mutant's number and outcome; how many mutants there are, and how many are tried."""


def _in_worker(request: Request, share: int) -> Iterator[Message]:
    """Each worker takes every n-th mutant. It decides the unmutated spec itself: proofs do not travel."""
    import z3  # noqa: PLC0415 - loaded in the worker alone, so that no term exists before the fork

    from checker.mutate.judge import Judge  # noqa: PLC0415

    z3.z3.Z3_DEBUG = False  # as in checker.verify
    judges = {place.name: Judge(place.profile, place.configuration, request.seed) for place in request.places}
    have = {name: frozenset(judge.mutants()) for name, judge in judges.items()}
    every = list(dict.fromkeys(mutant for judge in judges.values() for mutant in judge.mutants()))
    tried = sampled(every, request)
    yield -1, None, len(every), len(tried)
    for number in range(share, len(tried), request.workers):
        mutant = tried[number]
        here = {name: judge for name, judge in judges.items() if mutant in have[name]}
        yield number, outcome_of(mutant, here), len(every), len(tried)


def outcome_of(mutant: Mutant, judges: Mapping[str, Judge]) -> Outcome:
    """In the first place where some claim notices it. Where it is the same spec none can; so in each: equivalent."""
    start, reasons = time.perf_counter(), []
    for place, judge in judges.items():
        reasons.append(judge.same(mutant))
        kill = None if reasons[-1] else judge.judged(mutant)
        if kill:
            seconds = round(time.perf_counter() - start, 2)
            return Outcome(str(mutant), mutant.kind, True, kill.how, kill.property_id, "", seconds, place)  # noqa: FBT003
    reason = (reasons[0] or "") if all(reasons) else ""
    return Outcome(str(mutant), mutant.kind, False, reason=reason, seconds=round(time.perf_counter() - start, 2))  # noqa: FBT003


def sampled(mutants: Sequence[Mutant], request: Request) -> list[Mutant]:
    """The mutants to try, in the order of the spec; the same for a seed, whatever the number of workers."""
    if request.sample is None or request.sample >= len(mutants):
        return list(mutants)
    rng = random.Random(request.seed)  # noqa: S311 - not for secrets
    return [mutants[i] for i in sorted(rng.sample(range(len(mutants)), request.sample))]
