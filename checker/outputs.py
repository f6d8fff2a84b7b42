"""The files that commands write. Whether one can be written, and takes no other's place, is known before any work."""

from __future__ import annotations

import os
import tempfile
from itertools import combinations
from pathlib import Path

from spec.errors import QuiesceError

Named = tuple[str, str | None]
"""What the command calls a file, and its path; None where it was not given."""


class OutputError(QuiesceError):
    """A file that cannot be written. Remedy: name one in a folder that exists and may be written to."""


def check_writable(path: str) -> None:
    """Raises OutputError. What is no regular file (a pipe, a terminal) is found out when it is written."""
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        if target.is_file():
            target.open("ab").close()
        elif not target.exists():
            tempfile.TemporaryFile(dir=target.parent).close()
    except (OSError, ValueError) as error:
        raise _problem(path, error) from error


def check_apart(*files: Named) -> None:
    """No two of these are one file: none is written over another, or over what is read. Raises OutputError.

    What is no regular file (a terminal, /dev/null) may be named twice.
    """
    given = [(name, Path(path)) for name, path in files if path is not None and not _is_special(Path(path))]
    for (name, path), (other, there) in combinations(given, 2):
        if os.path.realpath(path) == os.path.realpath(there) or (
            path.exists() and there.exists() and path.samefile(there)
        ):
            raise OutputError(f"{name} and {other} are one file, {str(path)!r}; give another for one of them")


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def write(path: str, text: str) -> None:
    """Raises OutputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _problem(path, error) from error


def _problem(path: str, error: Exception) -> OutputError:
    what = getattr(error, "strerror", None) or str(error)
    return OutputError(f"{path!r} cannot be written: {what}")
