"""The durations of the alerts, which a site may set, and how they are read, written in rules and said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from spec.errors import QuiesceError, UnknownNameError

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SHORTEST, _LONGEST = 10, 30 * 86400
_BUDGETS = (0.00002, 0.009)
"""What the buckets of `check_duration_seconds` can tell from less and from more."""


class DurationError(QuiesceError):
    """A duration that no alert can have. Remedy: NAME=VALUE, with a valid name and a value in the given range."""


@dataclass(frozen=True)
class Durations:
    """In seconds; whole ones, but for `check`."""

    recent: int = 300
    """For how long an event (a violation, a failed update) is shown."""
    settle: int = 120
    """How long a state that an update passes through may last."""
    unwatched: int = 300
    """How long something may be unwatched, which it is while an engine starts."""
    paused: int = 900
    """How long a pause may last."""
    update: int = 600
    """How long the handler of a weight update may take."""
    slack: int = 60
    """How long a pause or an update must have been over its limit: one sample does not page."""
    check: float = 0.0005
    """Budget of one check: 1 % of a decode step of 50 ms."""


NAMES = tuple(field.name for field in fields(Durations))


def durations(given: Iterable[str]) -> Durations:
    """The defaults with what is given: texts such as `paused=30m`, the last one of a name counts.

    Raises DurationError or UnknownNameError.
    """
    chosen: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in NAMES:
            raise UnknownNameError("duration", name, NAMES)
        chosen[name] = _budget(text, value) if name == "check" else _seconds(text, value)
    return replace(Durations(), **chosen)  # type: ignore[arg-type]  # only `check` is given a fraction


def written(seconds: int) -> str:
    """As Prometheus writes it: `5m`, `90s`."""
    unit = next(unit for unit in ("h", "m", "s") if seconds % _UNITS[unit] == 0)
    return f"{seconds // int(_UNITS[unit])}{unit}"


def spoken(seconds: int) -> str:
    """For a person: `15 min`, `90 s`."""
    return written(seconds).replace("h", " h").replace("m", " min").replace("s", " s")


def _seconds(text: str, value: str) -> int:
    seconds = _parsed(text, value)
    if seconds != int(seconds) or not _SHORTEST <= seconds <= _LONGEST:
        raise DurationError(f"duration {text!r} is not of whole seconds from 10s to 30d, e.g. 90s, 15m, 1h30m")
    return int(seconds)


def _budget(text: str, value: str) -> float:
    seconds = _parsed(text, value)
    if not _BUDGETS[0] <= seconds <= _BUDGETS[1]:
        raise DurationError(f"duration {text!r} is not from 0.02ms to 9ms, which is what the histogram tells apart")
    return seconds


def _parsed(text: str, value: str) -> float:
    if not _WHOLE.fullmatch(value):
        raise DurationError(f"duration {text!r} is not NAME=VALUE; values are 90s, 15m, 1h30m or, for check, 0.5ms")
    return round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value)), 9)
