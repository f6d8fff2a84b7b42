"""Which concerns a profile adds to the protocol, in one configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spec.controls import ControlRequests
from spec.facts import LOOKUP_ENDS
from spec.holdings import Detaching, Holdings, Rejecting, Releases
from spec.pages import Accounting, Evictions, HeldRequests
from spec.peers import FIRST_PEER, Peer, Wave
from spec.resend import HeldBack
from spec.tiers import DerivedCache
from spec.update_session import SessionUpdates
from spec.waits import FollowedLookup, Merging, Raising, SharedInterpreter, Staying

if TYPE_CHECKING:
    from spec.concern import Concern
    from spec.profile import Profile
    from spec.updates import Updates


def concerns_of(steps: Updates) -> tuple[Concern, ...]:
    """One for each table of the profile that speaks of one; none for a profile that speaks of none."""
    return tuple(_concerns(steps))


def _concerns(steps: Updates) -> Iterable[Concern]:
    profile = steps.profile
    if raises(profile):
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
    yield from _of_others(steps)


def _of_others(steps: Updates) -> Iterable[Concern]:
    profile = steps.profile
    if profile.peers:
        yield from (Peer(steps, profile.peers, rank) for rank in range(FIRST_PEER, steps.configuration.ranks + 1))
    if profile.waves:
        yield Wave(steps, profile.waves)
    if profile.requeue:
        yield Staying(steps, profile.requeue)
    if profile.resend:
        yield HeldBack(steps, profile.resend)
    if profile.controls:
        yield ControlRequests(steps, profile.controls)
    if profile.update_session:
        yield SessionUpdates(steps, profile.update_session)
    for name, tier in profile.tiers.items():
        yield DerivedCache(steps, name, tier)


def raises(profile: Profile) -> bool:
    """Whether some handler of this profile may raise."""
    controls = profile.controls
    some = [one for one in (controls.release, controls.resume) if one] if controls else []
    asserts = profile.update.refused == "asserts" or any(x.refused == "raises" for x in some)
    return asserts or profile.merge is not None or profile.requeue is not None


def _of_storage(steps: Updates) -> Iterable[Concern]:
    profile = steps.profile
    for name, facts in profile.holdings.items():
        yield Holdings(steps, name, facts)
    if any(ledger.facts.created_by == LOOKUP_ENDS for ledger in steps.ledgers.values()):
        yield Releases(steps)
    if profile.detach:
        yield Detaching(steps)
    if profile.requests.rejected_after_lookup:
        yield Rejecting(steps)
    if profile.threads:
        yield SharedInterpreter(profile.threads.source)
    if profile.lookup_wait and steps.mine:
        yield FollowedLookup(steps, profile.lookup_wait)
