"""Facts as they are found: an entry of the profile, what it is, where that was read; and what is not decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from checker.extract.source import Method, Place, Source
from checker.extract.walk import Event, Guard
from checker.extract.words import OBJECTS, PRIMITIVES, SCOPE, irrelevant

_LINE = 160
"""How much of a condition a person reads."""


@dataclass(frozen=True)
class Fact:
    """One entry of the profile, and where it was read."""

    key: tuple[str, ...]
    value: Any
    place: Place

    @property
    def name(self) -> str:
        """The key as it is written."""
        return ".".join(self.key)


@dataclass(frozen=True)
class Unknown:
    """One entry that the source does not decide for us."""

    key: tuple[str, ...]
    reason: str
    place: Place | None

    @property
    def name(self) -> str:
        """The key as it is written."""
        return ".".join(self.key)


def told(unknown: Unknown) -> str:
    """Why it is unknown, and where."""
    shown = unknown.place is None or str(unknown.place) in unknown.reason
    return unknown.reason if shown else f"{unknown.reason} ({unknown.place})"


@dataclass
class Findings:
    """What one source says."""

    source: Source
    facts: dict[tuple[str, ...], Fact] = field(default_factory=dict)
    unknowns: list[Unknown] = field(default_factory=list)

    def say(self, key: Iterable[str], value: Any, place: Place) -> None:  # noqa: ANN401 - what a profile holds there
        """A fact."""
        self.facts[tuple(key)] = Fact(tuple(key), value, place)

    def doubt(self, key: Iterable[str], reason: str, where: Place | Method | None = None) -> None:
        """What cannot be decided. What was said of it so far stands for it, and no verdict may rest on that.

        A key of one entry says that the entry has one of its values, and which is not known. The key of its table says
        that what happens there may be nothing that the table can say: then everything rests on it (spec.unknowns).
        """
        place = where.place if isinstance(where, Method) else where
        if not any(u.key == tuple(key) and u.reason == reason for u in self.unknowns):
            self.unknowns.append(Unknown(tuple(key), reason, place))

    def value(self, *key: str) -> Any:  # noqa: ANN401 - as above
        """What was said of a key, or None."""
        fact = self.facts.get(key)
        return fact.value if fact else None

    def method(self, of: tuple[str, str], name: str) -> Method | None:
        """A method of one of the engine's classes."""
        return self.source.method(*of, name)

    def called(self, name: str, caller: Method) -> Method | None:
        """The function that a call of this name leads to, seen from `caller`; None where that is not known."""
        receiver, _, last = name.rpartition(".")
        if not receiver:
            return self.source.module_function(caller.file, name)
        if receiver == "self" and caller.owner:
            return self.source.method(caller.file, caller.owner, last)
        if receiver == "super()" and caller.owner:
            return self.source.method(caller.file, caller.owner, last, above=True)
        for known, where in OBJECTS.items():
            if receiver == known or receiver.endswith(f".{known.removeprefix('self.')}"):
                return self.source.method(*where, last)
        return None

    def follow_or_note(self, name: str, caller: Method) -> Method | str:
        """What a strict reading does at a call: a primitive is noted, what is irrelevant skipped, the rest followed."""
        if primitive(name):
            return "note"
        if irrelevant(name):
            return "skip"
        return self.called(name, caller) or "note"


def primitive(name: str) -> str | None:
    """The primitive that a call of this name is, or None."""
    parts = name.split(".")
    return PRIMITIVES.get(parts[-1]) or PRIMITIVES.get(".".join(parts[-2:]))


def scope(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of settings
    """The scope of the profile with some more settings."""
    return {**SCOPE, **more}


def said(guards: Iterable[Guard]) -> str:
    """Conditions as one line; of many, how many, and the last."""
    texts = [text if wanted else f"not ({text})" for text, wanted in guards]
    line = " and ".join(texts)
    if len(line) <= _LINE:
        return line or "always"
    last = texts[-1] if len(texts[-1]) <= _LINE else f"{texts[-1][:_LINE]} …"
    return last if len(texts) == 1 else f"{len(texts)} conditions hold, the last: {last}"


def named(event: Event) -> str:
    """An event in a message."""
    return f"{event.text or event.name} ({event.place})"
