"""Which counterexamples are run, and on which engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby

from checker.options import INSTALL_ENGINE, NoEngineError
from checker.reproduce.claims import schedule_of
from checker.reproduce.schedule import CannotBeDrivenError, Schedule
from checker.results import Result
from engine_hooks.sglang.remedies import REMEDIES
from spec.errors import UnknownNameError
from spec.profile import Profile

Undriven = tuple[Result, str]
"""A counterexample that the testbed cannot drive, and why."""


def check_engine(profile: Profile) -> None:
    """Raises NoEngineError where the engine that the profile speaks of is not installed here."""
    try:
        found = version(profile.engine)
    except PackageNotFoundError as error:
        raise NoEngineError(f"no SGLang is installed in this environment; install it with: {INSTALL_ENGINE}") from error
    if found != profile.version:
        raise NoEngineError(
            f"{profile.name} speaks of {profile.engine} {profile.version}, and {found} is installed; "
            f"install it with: pip install {profile.engine}=={profile.version}, or give another --profile"
        )


def remedies_of(profile: Profile, more: Sequence[str]) -> tuple[str, ...]:
    """With which remedies the engine runs: those of the profile, and `more`. Raises UnknownNameError."""
    known = _with_hooks(profile)
    for name in more:
        if name not in known:
            raise UnknownNameError("remedy", name, known)
    return tuple(dict.fromkeys((*(name for name in profile.applied if name in known), *more)))


def _with_hooks(profile: Profile) -> list[str]:
    """The remedies and variants of a profile that an engine can run with."""
    return [*profile.remedies, *(name for name in profile.variants if name in REMEDIES)]


def counterexamples(results: Iterable[Result]) -> Iterator[list[Result]]:
    """Those that a verification found, together where loop and reason are the same; in each the shortest first."""
    refuted = [r for r in results if r.trace is not None]
    order = {key: n for n, key in enumerate(dict.fromkeys((r.loop, r.reason) for r in refuted))}
    refuted.sort(key=lambda r: (order[r.loop, r.reason], len(r.trace.steps) if r.trace else 0))
    for _, group in groupby(refuted, key=lambda r: (r.loop, r.reason)):
        yield list(group)


_STARTED = {"write_through", "load_back", "backup", "prefetch", "grammar"}
"""The ledgers of the engines that the testbed starts, besides those of workers (`pd_*`)."""


def _not_started(profile: Profile) -> str | None:
    """What an engine of this profile has that none of the testbed has; None where there is nothing."""
    if profile.configuration.host_mode != "cache":
        return f"host_mode {profile.configuration.host_mode!r}"
    more = [name for name in profile.ledgers if name not in _STARTED and not name.startswith("pd_")]
    if more:
        return f"the ledger {more[0]}"
    return f"the cache {next(iter(profile.tiers))}" if profile.tiers else None


def drivable(group: Sequence[Result], profile: Profile, remedies: Sequence[str]) -> Schedule | Undriven:
    """The shortest of a group that the testbed can drive; else the shortest, and why it cannot."""
    for name in profile.applied:
        if name not in _with_hooks(profile):
            return group[0], f"{name} is a variant of the profile without a hook, so no engine is started with it"
    if (lacks := _not_started(profile)) is not None:
        return group[0], f"the testbed starts no engine with {lacks}"
    reasons = []
    for result in group:
        try:
            return schedule_of(result, remedies)
        except CannotBeDrivenError as error:
            reasons.append(str(error))
    return group[0], reasons[0]
