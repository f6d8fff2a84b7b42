"""Which configuration and which claims are exported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import z3

from spec.cone import Cones
from spec.errors import QuiesceError, UnknownNameError
from spec.profile import Configuration, Profile
from spec.properties import Part, Property, chosen
from spec.protocol import Protocol
from spec.terms import Term, neg
from spec.tla import Always, Claim, EachStep, LeadsTo, Spec, stuttering
from spec.unknowns import reasons


class ExportError(QuiesceError):
    """What was asked for does not exist, or cannot be written. Remedy: in the text."""


@dataclass(frozen=True)
class NamedClaim:
    """One claim of a property, with a name that no other claim has."""

    of: Property
    part: Part
    name: str

    @property
    def claim(self) -> Claim:
        """The claim itself."""
        return self.part.claim


@dataclass(frozen=True)
class Model:
    """What is written out: a spec, its claims, and the properties that have no meaning in it, with the reason."""

    title: str
    spec: Spec
    claims: Sequence[NamedClaim]
    silent: Sequence[tuple[Property, str]] = ()


@dataclass(frozen=True)
class Selection:
    """One configuration of a profile and some properties, or all (an empty tuple)."""

    profile: Profile
    configuration: Configuration
    properties: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is exported, in words."""
        c = self.configuration
        remedies = "".join(f", {name}" for name in self.profile.applied)
        return f"{self.profile.name}{remedies}: loop {c.loop}, mode {c.mode}, storage {c.storage}"

    @cached_property
    def properties_chosen(self) -> list[Property]:
        """The properties. Raises UnknownNameError."""
        return chosen(self.properties)

    @property
    def follow_request(self) -> bool:
        """Whether a claim speaks of one request."""
        return any(prop.needs_request for prop in self.properties_chosen)

    def model(self) -> Model:
        """The whole spec, or the slice that the properties need where some are named. Raises QuiesceError."""
        if self.profile.unknown:
            told = reasons(self.profile, self.profile.unknown)
            raise ExportError(f"{self.title} cannot be exported: it would state a guess as a fact\n  {told}")
        protocol = Protocol(self.profile, self.configuration, follow_request=self.follow_request)
        spec = protocol.spec()
        silent = [(p, reason) for p in self.properties_chosen if (reason := p.applies(protocol)) is not None]
        mute = {p.id for p, _ in silent}
        claims = [c for p in self.properties_chosen if p.id not in mute for c in _named(p, protocol, spec)]
        if self.properties and not claims:
            told = "; ".join(f"{p.id}: {reason}" for p, reason in silent) or "no claim in this configuration"
            raise ExportError(f"nothing to export for {', '.join(self.properties)} in {self.title}\n  {told}")
        return Model(self.title, sliced(spec, claims) if self.properties else spec, claims, silent)


def configuration(profile: Profile, loop: str | None, mode: str | None, storage: str | None) -> Configuration:
    """The configuration that the options name; what they leave open is the first of the profile."""
    matrix = profile.configuration
    if storage is not None and storage not in matrix.storage:
        raise UnknownNameError("storage", storage, matrix.storage)
    found = profile.configurations([loop or matrix.loop[0]], [mode or matrix.mode[0]])
    return next(c for c in found if c.storage == (storage or matrix.storage[0]))


def sliced(spec: Spec, claims: Iterable[NamedClaim]) -> Spec:
    """The part of the spec on which the claims depend."""
    every = frozenset(a.name for a in spec.actions)
    # A step that changes nothing kept may still break a claim about steps: idle-is-true speaks of each paused pass.
    steps = [every - c.claim.but for c in claims if isinstance(c.claim, EachStep) and breakable(spec, c.claim)]
    return Cones(spec).of(*(t for c in claims for t in terms(c.claim)), steps=frozenset[str]().union(*steps))


def breakable(spec: Spec, claim: EachStep) -> bool:
    """Whether a step that changes nothing can break the claim."""
    solver = z3.SimpleSolver()
    solver.add(neg(stuttering(spec, claim.holds)))
    return bool(solver.check() != z3.unsat)


def terms(claim: Claim) -> list[Term]:
    """What a claim says, as terms."""
    if isinstance(claim, Always | EachStep):
        return [claim.holds]
    return [claim.pending, claim.goal] if isinstance(claim, LeadsTo) else [claim.during, claim.event]


def camel(name: str) -> str:
    """`paused-flush-succeeds` as `PausedFlushSucceeds`."""
    return "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))


def _named(prop: Property, protocol: Protocol, spec: Spec) -> list[NamedClaim]:
    parts = list(prop.claims(protocol, spec))
    if len(parts) == 1:
        return [NamedClaim(prop, parts[0], camel(prop.id))]
    about = [part.about for part in parts]
    # A name of TLA+ and of Promela has no spaces.
    words = [(a if a and about.count(a) == 1 else f"{a}{n}").replace(" ", "_") for n, a in enumerate(about, 1)]
    return [NamedClaim(prop, part, f"{camel(prop.id)}_{word}") for part, word in zip(parts, words, strict=True)]
