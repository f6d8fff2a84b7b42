"""What rests on a fact that is unknown: a property whose cone of influence another value of the fact would change.

A profile that was extracted from source may say of an entry that the source does not decide it. What stands there is a
guess. Here it is worked out which properties the guess can matter to, in one configuration. An entry with few values
(a flag, what a gate waits for) is given each of the others in turn: where the slice of a property, its claims and
whether it applies stay term for term what they were, the property does not rest on it. Of a step that could not be read
anything may be true, so that everything in its loop or pause mode rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from spec.cone import Cones
from spec.errors import ProfileError, SpecError
from spec.interned import Interned
from spec.profile import Configuration, Profile, from_raw, overlay
from spec.properties import Property
from spec.protocol import Protocol
from spec.terms import Term, neg
from spec.tla import Always, Claim, EachStep, LeadsTo, Spec, stuttering

_VALUES: Mapping[tuple[str, ...], tuple[Any, ...]] = {
    ("gates", "*", "waiting"): ("unless-paused", "always", "never"),
    ("update", "flush"): ("immediate", "waits"),
    ("update", "waits_for_forward"): (True, False),
    ("update", "stamps"): ("before-flush", "on-success"),
    ("update", "refused"): ("fails", "asserts", "succeeds"),
    ("flush", "joins_storage_threads"): (True, False),
    ("storage", "key"): ("tokens", "tokens+epoch"),
    ("watchdog", "knows_pause"): (True, False),
    ("prefetch", "on_requeue"): (True, False),
    ("prefetch", "cut_at_admission"): (True, False),
    ("prefetch", "retry_attempts"): (0, 1, 2),
    ("prefetch", "threshold_tokens"): (0, 1),
    ("flush", "clears"): ((), ("device",), ("host",), ("device", "host")),
}
"""Every value of an entry, by its key; a star stands for any one part."""


@dataclass
class Unknowns:
    """The unknown entries of a profile, in one configuration."""

    profile: Profile
    configuration: Configuration
    _actions: Interned = field(default_factory=Interned)
    _specs: dict[tuple[str, bool], tuple[Protocol, Spec, Cones] | None] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)

    def under(self, prop: Property) -> list[str]:
        """The unknown entries that this property rests on, by their keys."""
        keys = [key for key in self.profile.unknown if self._concerns(tuple(key.split(".")))]
        return [key for key in keys if self._rests(prop, tuple(key.split(".")))]

    def _concerns(self, key: tuple[str, ...]) -> bool:
        """Whether the entry is one of this configuration."""
        if key[0] == "loops" and len(key) > 1:
            return key[1] == self.configuration.loop
        return key[0] != "primitives" or len(key) == 1 or key[1] in self._steps()

    def _rests(self, prop: Property, key: tuple[str, ...]) -> bool:
        if key[0] == "pause":
            return len(key) == 1 or key[1] == self.configuration.mode
        plain = self._signature(prop, "", self.profile)
        others = list(self._alternatives(key))
        if not others:
            # Anything may be true of it. Whether a property applies is up to the mode and the tables of the profile.
            return len(plain) != 1 or not isinstance(plain[0], str)
        return any(self._signature(prop, name, other) != plain for name, other in others)

    def _steps(self) -> set[str]:
        """The primitives of this configuration; the moves of a ledger are made by some of them."""
        loop, mode = self.profile.loops[self.configuration.loop], self.profile.pause[self.configuration.mode]
        return {step.partition(" ")[0] for step in (*loop.paused, *loop.running, *mode.steps)}

    def _alternatives(self, key: tuple[str, ...]) -> Iterator[tuple[str, Profile | None]]:
        """The profile with each other value of the entry; None where that makes no profile. Nothing: any value."""
        for value in _values(self.profile, key):
            difference: Any = list(value) if isinstance(value, tuple) else value
            for part in reversed(key):
                difference = {part: difference}
            raw = {**overlay(self.profile.raw, difference), "unknown": {}}
            try:
                other = from_raw(self.profile.name, raw, self.profile.path)
            except ProfileError:
                continue  # not a value that the model has for this profile
            yield f"{'.'.join(key)}={value}", other

    def _signature(self, prop: Property, name: str, profile: Profile | None) -> tuple[object, ...]:
        built = self._built(name, profile, follow_request=prop.needs_request)
        if built is None:
            return ("no spec",)
        protocol, spec, cones = built
        if (reason := prop.applies(protocol)) is not None:
            return (reason,)
        parts = list(prop.claims(protocol, spec))
        self._kept.append(parts)
        return tuple(_signed(part.claim, spec, cones, self._actions) for part in parts)

    def _built(
        self, name: str, profile: Profile | None, *, follow_request: bool
    ) -> tuple[Protocol, Spec, Cones] | None:
        key = (name, follow_request)
        if key not in self._specs:
            try:
                protocol = Protocol(profile or self.profile, self.configuration, follow_request=follow_request)
                spec = self._actions.spec(protocol.spec())
                self._specs[key] = protocol, spec, Cones(spec, self._actions)
            except (SpecError, ProfileError):
                self._specs[key] = None
        return self._specs[key]


def _values(profile: Profile, key: tuple[str, ...]) -> Sequence[Any]:
    """What else may stand there; nothing where that is not listed."""
    here: Any = profile.raw
    for part in key:
        here = here.get(part) if isinstance(here, Mapping) else None
    if key[0] == "gates" and key[-1:] == ("waits_for",) and isinstance(here, list):
        terms = ("running", "last_batch", "result_pending", *profile.ledgers)
        return [tuple(t for t in terms if (t in here) != (t == changed)) for changed in terms]
    for pattern, values in _VALUES.items():
        if len(pattern) == len(key) and all(p in ("*", k) for p, k in zip(pattern, key, strict=True)):
            return [v for v in values if v != (tuple(here) if isinstance(here, list) else here)]
    return ()


def _signed(claim: Claim, spec: Spec, cones: Cones, actions: Interned) -> tuple[object, ...]:
    """What decides a claim: its terms, and its slice. Z3 keeps equal terms once, and so does `actions` actions."""
    terms = _terms(claim)
    steps: frozenset[str] = frozenset()
    if isinstance(claim, EachStep) and _breaks(neg(stuttering(spec, claim.holds))):
        steps = frozenset(a.name for a in spec.actions) - claim.but
    piece = cones.of(*terms, steps=steps)
    return (
        type(claim).__name__,
        tuple(term.get_id() for term in terms),
        tuple(variable.name for variable in piece.variables),
        tuple(piece.init.items()),
        tuple(id(actions.action(action)) for action in piece.actions),
    )


def _terms(claim: Claim) -> list[Term]:
    if isinstance(claim, Always | EachStep):
        return [claim.holds]
    return [claim.pending, claim.goal] if isinstance(claim, LeadsTo) else [claim.during, claim.event]


def _breaks(term: Term) -> bool:
    solver = z3.SimpleSolver()
    solver.add(term)
    return bool(solver.check() != z3.unsat)


def reasons(profile: Profile, keys: Iterable[str]) -> str:
    """Why nothing is decided, in one line."""
    return "; ".join(f"{key} is unknown: {profile.unknown[key]}" for key in keys)
