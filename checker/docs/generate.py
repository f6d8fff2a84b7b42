"""Every file with generated blocks, made anew, and the comparison with what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from checker.docs import commands, engine, profiles, properties
from checker.docs.blocks import Maker, filled
from checker.docs.errors import DocsError
from checker.docs.verdicts import Record

DOCS = "docs"
README = "README.md"


def makers(record: Record) -> Mapping[str, Maker]:
    """Everything that a mark can name."""
    return {**properties.makers(record), **engine.makers(), **commands.makers(), **profiles.makers()}


def sources(root: Path) -> Iterator[Path]:
    """The Markdown files in which marks are looked for. Raises DocsError where there are none."""
    if not (root / DOCS).is_dir() or not (root / README).is_file():
        raise DocsError(f"no {DOCS}/ and {README} in {str(root)!r}; run it at the top of a checkout")
    yield root / README
    yield from sorted((root / DOCS).rglob("*.md"))


def generated(root: Path, record: Record) -> Mapping[Path, str]:
    """Each file to what it should hold. Raises DocsError, also where a property has no page."""
    properties.check_pages(root / DOCS)
    every = makers(record)
    return {
        path: filled(path.read_text(encoding="utf-8"), every, path.relative_to(root).as_posix())
        for path in sources(root)
    }


def out_of_date(files: Mapping[Path, str]) -> list[Path]:
    """Those that differ from what is there."""
    return [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
