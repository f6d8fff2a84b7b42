"""Where in the engine's source something is. A profile names file and function; the installed engine gives the line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from checker.results import EngineInfo

_REFERENCE = re.compile(r"(?P<file>[A-Za-z_][\w./-]*\.py)(?::(?P<name>\w+))?")


@dataclass(frozen=True)
class Place:
    """A file below the engine's package, what is meant in it, and on which line that stands, if known."""

    file: str
    name: str | None
    line: int | None

    @property
    def text(self) -> str:
        """As a person writes it."""
        return self.file + (f":{self.line}" if self.line else "") + (f" {self.name}" if self.name else "")


@dataclass(frozen=True)
class Source:
    """An engine's source: the folder of its package where the version in question is installed, else nothing."""

    root: Path | None = None

    def place(self, reference: str) -> Place | None:
        """The place that a profile or a step names; None for what is no place in the source."""
        found = _REFERENCE.fullmatch(reference)
        if found is None or ".." in found["file"].split("/"):
            return None
        line = _lines(self.root / found["file"]).get(found["name"]) if self.root and found["name"] else None
        return Place(found["file"], found["name"], line)


def source_of_engine(engine: EngineInfo) -> Source:
    """The source of the engine that results speak of. Another version's lines would be wrong, so they are not given."""
    try:
        found = distribution(engine.name)
    except (PackageNotFoundError, ValueError):
        return Source()
    folder = Path(str(found.locate_file(engine.name)))
    return Source(folder) if found.version == engine.version and folder.is_dir() else Source()


@cache
def _lines(path: Path) -> dict[str | None, int]:
    """Name to line: functions and classes, else where an attribute or variable is first assigned."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    lines: dict[str | None, int] = {}
    for kind in (_definitions, _assignments):
        for name, line in kind(tree):
            lines.setdefault(name, line)
    return lines


def _definitions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def _assignments(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            yield (node.attr if isinstance(node, ast.Attribute) else node.id), node.lineno
