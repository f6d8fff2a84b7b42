"""The source of an engine as syntax trees: modules, classes with their bases, methods, each with its place."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from spec.errors import QuiesceError

Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceError(QuiesceError):
    """A source that is none, or lacks what every engine has. Remedy: name the folder of the package `sglang`."""


@dataclass(frozen=True)
class Place:
    """Where something stands: a file below the package, the function, the line from 1."""

    file: str
    function: str
    line: int

    @property
    def source(self) -> str:
        """As profiles name it."""
        return f"{self.file}:{self.function}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True)
class Method:
    """A function with the class that it is of (empty for none) and its file."""

    node: Function
    owner: str
    file: str
    within: str = ""
    """For a function inside another: the name of that one."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def place(self) -> Place:
        """Where it is defined."""
        return Place(self.file, self.name, self.node.lineno)

    def at(self, node: ast.AST) -> Place:
        """A place inside it."""
        return Place(self.file, self.name, getattr(node, "lineno", self.node.lineno))


@dataclass
class Source:
    """The files below the folder of a package. Each is read and parsed when it is first wanted, and once."""

    folder: Path
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _classes: dict[tuple[str, str], dict[str, Function]] = field(default_factory=dict)

    def tree(self, file: str) -> ast.Module | None:
        """The syntax tree of a file, or None where there is none. Raises SourceError where it is not Python."""
        if file not in self._trees:
            path = self.folder / file
            try:
                text = path.read_text(encoding="utf-8") if path.is_file() else None
                self._trees[file] = None if text is None else ast.parse(text, file)
                self._lines[file] = (text or "").splitlines()
            except (OSError, SyntaxError, ValueError) as error:
                raise SourceError(f"{path}: cannot be read as Python: {error}") from error
        return self._trees[file]

    @cached_property
    def version(self) -> str:
        """What the package says it is, or an empty string."""
        tree = self.tree("_version.py") or ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                if names & {"__version__", "version"} and isinstance(node.value.value, str):
                    return node.value.value
        metadata = sorted(self.folder.parent.glob(f"{self.folder.name}-*.dist-info"))
        return metadata[0].name.removesuffix(".dist-info").partition("-")[2] if metadata else ""

    def module_function(self, file: str, name: str) -> Method | None:
        """A function of a module."""
        tree = self.tree(file)
        for node in tree.body if tree else ():
            if isinstance(node, Function) and node.name == name:
                return Method(node, "", file)
        return None

    def class_(self, file: str, name: str) -> ast.ClassDef | None:
        """A class of a module."""
        tree = self.tree(file)
        found = (n for n in (tree.body if tree else ()) if isinstance(n, ast.ClassDef) and n.name == name)
        return next(found, None)

    def method(self, file: str, owner: str, name: str, *, above: bool = False) -> Method | None:
        """A method by its name, looked up in the class and then in its bases; `above`: in the bases alone."""
        node = self.class_(file, owner)
        if node is None:
            return None
        if not above and (found_here := self._own(file, node).get(name)):
            return Method(found_here, owner, file)
        for base in node.bases:
            if isinstance(base, ast.Name) and (where := self._imported(file, base.id)):
                found = self.method(*where, name)
                if found:
                    return found
        return None

    def methods(self, file: str, owner: str) -> list[Method]:
        """Every method that the class itself defines."""
        node = self.class_(file, owner)
        return [Method(n, owner, file) for n in self._own(file, node).values()] if node else []

    def mentioning(self, file: str, owner: str, word: str) -> list[Method]:
        """The methods of a class in whose text a word stands: those that are worth a closer look."""
        lines = self._lines.get(file, [])
        return [
            m
            for m in self.methods(file, owner)
            if any(word in line for line in lines[m.node.lineno - 1 : m.node.end_lineno])
        ]

    def _own(self, file: str, node: ast.ClassDef) -> dict[str, Function]:
        """The functions of a class by name; of two of one name the last counts, as in Python."""
        key = (file, node.name)
        if key not in self._classes:
            self._classes[key] = {n.name: n for n in node.body if isinstance(n, Function)}
        return self._classes[key]

    def _imported(self, file: str, name: str) -> tuple[str, str] | None:
        """The file and name of what a module knows as `name`."""
        if self.class_(file, name):
            return file, name
        for node in (self.tree(file) or ast.Module([], [])).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return _file(node.module), alias.name
        return None


def _file(module: str) -> str:
    return "/".join(module.split(".")[1:]) + ".py"
