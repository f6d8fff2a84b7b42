"""Generated blocks in Markdown: what stands between two marks is replaced, all else is left alone.

A block begins with the line `<!-- generated: NAME ARGUMENT -->` and ends with the line `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from checker.docs.errors import DocsError

Maker = Callable[[str], str]
"""From the argument of a mark to Markdown."""

_MARK = re.compile(r"^<!-- (?:generated: (?P<name>[a-z-]+)(?: (?P<argument>[^ ]+))?|(?P<end>end)) -->$", re.MULTILINE)


def filled(text: str, makers: Mapping[str, Maker], place: str) -> str:
    """The text with each block made anew. `place` is where it is from. Raises DocsError."""
    parts: list[str] = []
    kept, opened = 0, None
    for mark in _MARK.finditer(text):
        if (opened is None) == bool(mark["end"]):
            problem = "an end without a beginning" if opened is None else "a block inside a block"
            raise DocsError(f"{place}:{_line(text, mark.start())}: {problem}")
        if opened is None:
            opened = mark
            continue
        made = _made(opened, makers, f"{place}:{_line(text, opened.start())}")
        parts += [text[kept : opened.end()], "\n\n", made.strip("\n"), "\n\n", mark[0]]
        kept, opened = mark.end(), None
    if opened is not None:
        raise DocsError(f"{place}:{_line(text, opened.start())}: a block without an end")
    return "".join([*parts, text[kept:]])


def used(text: str) -> list[tuple[str, str]]:
    """Name and argument of each block."""
    return [(mark["name"], mark["argument"] or "") for mark in _MARK.finditer(text) if mark["name"]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A cell is Markdown; what would end it is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(names: Iterable[str]) -> str:
    """Names as code, separated by commas; a dash where there is none."""
    return ", ".join(f"`{name}`" for name in names) or "-"


def _made(mark: re.Match[str], makers: Mapping[str, Maker], place: str) -> str:
    if mark["name"] not in makers:
        raise DocsError(f"{place}: nothing generates {mark['name']!r}; valid names: {', '.join(sorted(makers))}")
    try:
        return makers[mark["name"]](mark["argument"] or "")
    except DocsError as error:
        raise DocsError(f"{place}: {error}") from error


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
