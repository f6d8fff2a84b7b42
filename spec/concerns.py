"""Which concerns a profile adds to the protocol, in one configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spec.holdings import Detaching, Holdings, Rejecting
from spec.pages import Accounting, Evictions, HeldRequests
from spec.peers import Peer, Wave
from spec.waits import FollowedLookup, Merging, Raising, SharedInterpreter

if TYPE_CHECKING:
    from spec.concern import Concern
    from spec.steps import Steps


def concerns_of(steps: Steps) -> tuple[Concern, ...]:
    """One for each table of the profile that speaks of one; none for a profile that speaks of none."""
    return tuple(_concerns(steps))


def _concerns(steps: Steps) -> Iterable[Concern]:
    profile = steps.profile
    if profile.update.refused == "asserts" or profile.merge:
        yield Raising(steps)
    if profile.merge:
        yield Merging(steps, profile.merge)
    if profile.accounts:
        yield Accounting(steps, profile.accounts)
    if profile.eviction:
        yield Evictions(steps, profile.eviction)
    if profile.requests.retract_keeps_kv:
        yield HeldRequests(steps)
    if steps.storage:
        yield from _of_storage(steps)
    if profile.peers and steps.configuration.ranks > 1:
        yield Peer(steps, profile.peers)
    if profile.waves:
        yield Wave(steps, profile.waves)


def _of_storage(steps: Steps) -> Iterable[Concern]:
    profile = steps.profile
    for name, facts in profile.holdings.items():
        yield Holdings(steps, name, facts)
    if profile.detach:
        yield Detaching(steps)
    if profile.requests.rejected_after_lookup:
        yield Rejecting(steps)
    if profile.threads:
        yield SharedInterpreter(profile.threads.source)
    if profile.lookup_wait and steps.mine:
        yield FollowedLookup(steps, profile.lookup_wait)
