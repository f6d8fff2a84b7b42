"""Mutants in parallel, place after place; a sample of them, by a seed, where asked for.

A worker has one place and a share of its mutants, and ends: what it has learned of one place is of no use in the next,
and all of it together would need more memory than a small machine has.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from checker import workers
from checker.mutate.results import SCHEMA, Outcome, Report

if TYPE_CHECKING:
    from checker.mutate.mutants import Mutant
    from checker.mutate.suite import Place

AT_ONCE = 80
"""A worker judges at most so many mutants, and then its memory is given back."""
Message = tuple[int, str | None, tuple[str, str] | None, float]
"""A mutant's number; why it is the same spec; how it was noticed and by which property; the seconds that took."""


@dataclass(frozen=True)
class Request:
    """Where to mutate: the places in the order in which they are tried. `sample` is how many mutants, None for all."""

    places: Sequence[Place]
    sample: int | None = None
    seed: int = 0
    workers: int = 1


def mutate(request: Request, progress: Callable[[int, int], None] | None = None) -> Report:
    """Every chosen mutant. An interrupt or a lost worker ends it with what is known so far (`complete` is false)."""
    tried: list[Tried] = []
    total, complete, lost = 0, True, ""
    try:
        ((total, tried),) = workers.results(_listed, [request], 1)
        if progress:
            progress(0, len(tried))
        for _ in in_each_place(request, tried):
            if progress:
                progress(sum(one.is_decided for one in tried), len(tried))
    except KeyboardInterrupt:
        complete = False
    except workers.WorkerLostError as error:
        complete, lost = False, str(error)
    outcomes = [one.outcome for one in tried if one.is_decided]
    first = request.places[0]
    place = {"loop": first.configuration.loop, **first.configuration.as_dict()}
    places = [one.name for one in request.places] if len(request.places) > 1 else []
    names = first.profile.applied
    return Report(SCHEMA, first.profile.name, names, place, request.seed, total, outcomes, complete, places, lost)


@dataclass
class Tried:
    """A mutant by its name, the places that have what it changes, and what was found in those that were tried."""

    mutant: str
    kind: str
    places: list[str]
    reasons: list[str | None] = field(default_factory=list)
    seconds: float = 0.0
    kill: tuple[str, str] | None = None
    """How it was noticed, and by which property."""

    @property
    def is_decided(self) -> bool:
        """Whether no further place has to be tried."""
        return self.kill is not None or len(self.reasons) == len(self.places)

    @property
    def outcome(self) -> Outcome:
        """Killed in the first place where some claim notices it; equivalent where it is the same spec in each."""
        seconds = round(self.seconds, 2)
        if self.kill:
            place = self.places[len(self.reasons) - 1]
            return Outcome(self.mutant, self.kind, True, *self.kill, seconds=seconds, place=place)  # noqa: FBT003
        reason = (self.reasons[0] or "") if all(self.reasons) else ""
        return Outcome(self.mutant, self.kind, killed=False, reason=reason, seconds=seconds)


def _listed(request: Request) -> Iterator[tuple[int, list[Tried]]]:
    """How many mutants there are, and those to try. In a worker: the specs are large, and needed only there."""
    from checker.mutate.judge import Judge  # noqa: PLC0415 - z3 is loaded in workers alone

    have = {place.name: Judge(place.profile, place.configuration, request.seed).mutants() for place in request.places}
    every = list(dict.fromkeys(mutant for mutants in have.values() for mutant in mutants))
    sets = {name: frozenset(mutants) for name, mutants in have.items()}
    chosen = sampled(every, request)
    yield len(every), [Tried(str(one), one.kind, [name for name in sets if one in sets[name]]) for one in chosen]


def in_each_place(request: Request, tried: Sequence[Tried]) -> Iterator[Tried]:
    """Place after place: those that are still open there. Each as it is found, and its record is extended."""
    for place in request.places:
        waiting = [n for n, one in enumerate(tried) if place.name in one.places and not one.is_decided]
        count = max(min(request.workers, len(waiting)), math.ceil(len(waiting) / AT_ONCE))
        shares = [waiting[share::count] for share in range(count)]
        work = partial(_in_place, request, place, tried)
        for number, reason, kill, seconds in workers.results(work, shares, request.workers):
            one = tried[number]
            one.reasons.append(reason)
            one.kill, one.seconds = kill, one.seconds + seconds
            yield one


def _in_place(request: Request, place: Place, tried: Sequence[Tried], share: Sequence[int]) -> Iterator[Message]:
    """Some mutants in one place. The worker decides the unmutated spec itself: proofs do not travel."""
    import z3  # noqa: PLC0415 - loaded in the worker alone, so that no term exists before the fork

    from checker.mutate.judge import Judge  # noqa: PLC0415

    z3.z3.Z3_DEBUG = False  # as in checker.verify
    judge = Judge(place.profile, place.configuration, request.seed)
    mutants = {str(mutant): mutant for mutant in judge.mutants()}
    for number in share:
        start, mutant = time.perf_counter(), mutants[tried[number].mutant]
        reason = judge.same(mutant)
        # What is the same spec, nothing can notice.
        kill = None if reason else judge.judged(mutant)
        yield number, reason, (kill.how, kill.property_id) if kill else None, time.perf_counter() - start


def sampled(mutants: Sequence[Mutant], request: Request) -> list[Mutant]:
    """The mutants to try, in the order of the spec; the same for a seed, whatever the number of workers."""
    if request.sample is None or request.sample >= len(mutants):
        return list(mutants)
    rng = random.Random(request.seed)  # noqa: S311 - not for secrets
    return [mutants[i] for i in sorted(rng.sample(range(len(mutants)), request.sample))]
