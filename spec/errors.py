"""What can be wrong with what a person gives us. Each error says the value, the place, the valid names, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class QuiesceError(Exception):
    """Root of the tree: something that a person can put right. The command ends with exit code 2."""


def _one_line(text: str) -> str:
    """What came from a file may hold ends of lines, and bytes that steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class UnknownNameError(QuiesceError):
    """A name that does not exist: a property, profile, remedy, loop or mode. Remedy: take one of the valid names."""

    def __init__(self, kind: str, value: str, valid: Iterable[str], elsewhere: str = "") -> None:
        """Keep the parts, so that a caller can show them in its own way. `elsewhere`: where this name is valid."""
        self.kind, self.value, self.valid = kind, value, sorted(valid)
        near = difflib.get_close_matches(value, self.valid, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        names = _one_line(", ".join(self.valid)) or "(none)"
        more = f"\n  {elsewhere}" if elsewhere else ""
        super().__init__(f"unknown {kind} {value!r}{hint}\n  valid names: {names}{more}")


class ProfileError(QuiesceError):
    """A profile that cannot be read. Remedy: correct the named key on the named line."""

    def __init__(self, path: str, key: str, problem: str, line: int | None = None) -> None:
        """`key` is the dotted path of the entry, `line` counts from 1."""
        self.path, self.key, self.problem, self.line = path, key, problem, line
        place = f"{path}:{line}" if line else path
        super().__init__(_one_line(f"{place}: {key}: {problem}" if key else f"{place}: {problem}"))


class SpecError(Exception):
    """A spec that is wrong in itself (a guard after an update, an unknown variable): our mistake, exit code 4."""
