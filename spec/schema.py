"""From a TOML table to a frozen dataclass, with errors that name line and key. Knows the field types profiles use."""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from spec.errors import ProfileError

# A bare or quoted key of TOML, or several with dots between.
_PART = r"""(?:[\w-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_NOT_DATA = {"raw", "path", "applied"}


def build(kind: type[Any], data: object, path: str, text: str, keys: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
    """An instance of the dataclass `kind` from `data`; `keys` is where in the file it stands. Raises ProfileError."""

    def fail(key: tuple[str, ...], problem: str) -> ProfileError:
        return ProfileError(path, ".".join(key), problem, line_of(text, key))

    if not isinstance(data, Mapping):
        raise fail(keys, f"must be a table, is {data!r}")
    hints = typing.get_type_hints(kind)
    wanted = {f.name.rstrip("_"): f for f in fields(kind) if f.name not in _NOT_DATA}
    for key in data:
        if key not in wanted:
            raise fail((*keys, key), f"unknown key; valid names: {', '.join(sorted(wanted))}")
    values = {}
    for key, spec in wanted.items():
        if key in data:
            values[spec.name] = _value(hints[spec.name], data[key], path, text, (*keys, key))
        elif spec.default is MISSING and spec.default_factory is MISSING:
            raise fail((*keys, key), "missing")
    return kind(**values)


def _value(kind: Any, data: object, path: str, text: str, keys: tuple[str, ...]) -> object:  # noqa: ANN401
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _value(arguments[0], data, path, text, keys)
    if is_dataclass(kind):
        return build(typing.cast("type[Any]", kind), data, path, text, keys)
    if origin is tuple:
        if not isinstance(data, Sequence) or isinstance(data, str):
            raise ProfileError(path, ".".join(keys), f"must be a list, is {data!r}", line_of(text, keys))
        return tuple(_value(arguments[0], item, path, text, keys) for item in data)
    if origin is not None:  # a mapping
        if not isinstance(data, Mapping):
            raise ProfileError(path, ".".join(keys), f"must be a table, is {data!r}", line_of(text, keys))
        if arguments[1] is Any:
            return dict(data)
        return {key: _value(arguments[1], item, path, text, (*keys, key)) for key, item in data.items()}
    # bool is an int in Python, but not in a profile
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ProfileError(path, ".".join(keys), f"must be {kind.__name__}, is {data!r}", line_of(text, keys))
    return data


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line (from 1) on which the entry `keys` stands, or its table, or None where the file has neither."""
    return place_of(text, keys)[1]


def place_of(text: str, keys: Sequence[str]) -> tuple[int, int | None]:
    """How much of `keys` (the first so many) stands somewhere in the file, and on which line."""
    table: tuple[str, ...] = ()
    best: tuple[int, int | None] = (0, None)
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(rf"\s*\[+\s*({_KEY})\s*\]", line):
            here = table = _parts(header[1])
        elif assignment := re.match(rf"\s*({_KEY})\s*=", line):
            here = (*table, *_parts(assignment[1]))
        else:
            continue
        for entry in (here, here[1:] if here[:1] == ("set",) else here):
            if entry == tuple(keys[: len(entry)]) and len(entry) > best[0]:
                best = (len(entry), number)
    return best


def _parts(key: str) -> tuple[str, ...]:
    """A key of TOML, dotted and quoted as it may be, in its parts."""
    parts: list[str] = []
    try:
        found: Any = tomllib.loads(f"{key} = 0")
    except ValueError:
        return ()  # it looks like a key in the middle of a text of several lines
    while isinstance(found, dict):
        ((part, found),) = found.items()
        parts.append(part)
    return tuple(parts)
