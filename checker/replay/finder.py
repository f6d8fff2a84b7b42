"""Cubes as one Python function over the state before, the state after and the attempts left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from checker.replay.cubes import Cube, Linear
from engine_hooks.trace import STATE_FIELDS, TraceState

Find = Callable[[TraceState, TraceState, int], int | None]


def in_shown(cube: Cube, left: Linear) -> Cube:
    """The cube without what is carried on: `left`, which is 0, gives the attempts left in the end by the rest."""
    conditions = []
    for one in cube.conditions:
        factor = one.parts.get("y:prefetch_budget", 0)
        plain = one.plus(left, factor, zero=one.zero) if factor else one
        if plain.parts:
            conditions.append(plain)
    return Cube(cube.flags, tuple(conditions))


def compiled(cubes: Sequence[Cube], absent: Sequence[str]) -> Find:
    """Cubes as a function of the state before, the state after and the attempts left: the place of the first, or None.

    One function for all, which reads each variable once: to call one for each costs more than what it does.
    """
    tests = [f"    if {' or '.join(f'b_{name}' for name in absent)}: return None"] if absent else []
    tests += [f"    if {_tests(cube)}: return {place}" for place, cube in enumerate(cubes)]
    text = "\n".join(tests)
    read = [f"    {side}_{name} = {side}.{name}" for side in "ab" for name in STATE_FIELDS if f"{side}_{name}" in text]
    scope: dict[str, Any] = {}
    exec("\n".join(["def find(a, b, p):", *read, text or "    pass", "    return None"]), scope)  # noqa: S102 - our own terms, not input
    function: Find = scope["find"]
    return function


def _tests(cube: Cube) -> str:
    tests = [f"{'' if value else 'not '}{_reader(name)}" for name, value in cube.flags.items() if not _implied(name)]
    # Equations first: they fail most often.
    tests += [_condition(one) for one in sorted(cube.conditions, key=lambda c: (not c.zero, len(c.parts)))]
    return " and ".join(tests) or "True"


def _implied(name: str) -> bool:
    """A kind of line has cubes of its own for what is carried and no number; what is carried on follows from it."""
    return name.partition(":")[2] in {"has_host", "prefix_lost"}


def _condition(one: Linear) -> str:
    plus = [_term(name, factor) for name, factor in one.parts.items() if factor > 0]
    minus = [_term(name, -factor) for name, factor in one.parts.items() if factor < 0]
    (minus if one.constant < 0 else plus).append(str(abs(one.constant)))
    left, right = (" + ".join(t for t in side if t != "0") or "0" for side in (plus, minus))
    return f"{left} {'==' if one.zero else '>='} {right}"


def _term(name: str, factor: int) -> str:
    return _reader(name) if factor == 1 else f"{factor} * {_reader(name)}"


def _reader(name: str) -> str:
    side, variable = name.split(":")
    if name == "y:prefetch_budget":  # pragma: no cover - replaced by what it is a function of
        raise KeyError(name)
    return "p" if variable == "prefetch_budget" else f"{'a' if side == 'x' else 'b'}_{variable}"
