"""The text of a generated module: Python for terms, tuples and tables."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import z3

from checker.translate import to_python
from spec.facts import Configuration
from spec.terms import NEXT, BoolTerm

_COMPARISONS = (z3.Z3_OP_EQ, z3.Z3_OP_LE, z3.Z3_OP_GE, z3.Z3_OP_LT, z3.Z3_OP_GT)
_WIDTH = 110


@dataclass(frozen=True)
class StuckRegion:
    """That of one loop, storage and set of remedies: its function, None where nothing is stuck, and its ledgers."""

    configuration: Configuration
    remedies: tuple[str, ...]
    function: str | None
    ledgers: tuple[str, ...]


def clauses(term: BoolTerm) -> Iterator[str]:
    """The conjuncts, one a line."""
    parts = term.children() if z3.is_and(term) else [term]
    for i, part in enumerate(parts):
        yield f"        {'and ' if i else ''}{_expression(part)}"


def _expression(term: BoolTerm) -> str:
    text = to_python(term, lambda n: f"t.{n.removesuffix(NEXT)}" if n.endswith(NEXT) else f"s.{n}")
    # Only a comparison may lose its parentheses: `and` binds tighter than `or`.
    return text[1:-1] if z3.is_app(term) and term.decl().kind() in _COMPARISONS else text


def formatted(text: str) -> str:
    """The text as `ruff format` leaves it. Raises FileNotFoundError where the lint tools are not installed."""
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--line-length", "120", "--stdin-filename", "generated.py", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603 - our own tool
    return done.stdout


def constants(variables: Sequence[str], regions: Sequence[StuckRegion]) -> Iterator[str]:
    """`_VARIABLES`; and `_STUCK`, a row for all loops that have the same region with the same storage and remedies."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for r in regions:
        row = (f'"{r.configuration.storage}"', in_tuple(r.remedies), r.function, in_tuple(r.ledgers))
        alike.setdefault(row, []).append(r.configuration.loop)
    yield ""
    yield "# fmt: off"
    yield "_VARIABLES = ("
    yield textwrap.indent(textwrap.fill(", ".join(f'"{name}"' for name in variables) + ",", _WIDTH), "    ")
    yield ")"
    yield "_STUCK: tuple[Region, ...] = ("
    yield from (f"    ({in_tuple(loops)}, {', '.join(map(str, row))})," for row, loops in alike.items())
    yield ")"
    yield "# fmt: on"
    yield ""


def table(name: str, rows: Mapping[str, str]) -> Iterator[str]:
    """A dict at the top of the module."""
    yield ""
    yield f"{name} = {{"
    yield from (f'    "{key}": {value},' for key, value in rows.items())
    yield "}"
    yield ""


def in_tuple(names: Sequence[str]) -> str:
    """Texts as a tuple of them."""
    return "(" + ", ".join(f'"{n}"' for n in names) + ("," if len(names) == 1 else "") + ")"


def in_dict(found: Mapping[str, str]) -> str:
    """Texts to names, as a dict."""
    return "{" + ", ".join(f'"{key}": {value}' for key, value in found.items()) + "}"
