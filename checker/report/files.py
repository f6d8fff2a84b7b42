"""The files that a command writes beside its answer. Whether they can be written is known before anything is proved."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from checker.results import Report
from spec.errors import QuiesceError
from spec.profile import Profile


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


def write(path: str, text: str) -> None:
    """Raises OutputError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise _problem(path, error) from error


def _problem(path: str, error: Exception) -> OutputError:
    what = getattr(error, "strerror", None) or str(error)
    return OutputError(f"{path!r} cannot be written: {what}")


@dataclass(frozen=True)
class Formats:
    """What `checker verify` also writes, for machines that read results of scanners and of tests."""

    sarif: str | None = None
    junit: str | None = None

    def check(self) -> None:
        """Raises OutputError."""
        for path in (self.sarif, self.junit):
            if path is not None:
                check_writable(path)

    def write(self, report: Report, profile: Profile) -> None:
        """Raises OutputError."""
        from checker.report.junit import junit  # noqa: PLC0415 - most runs write neither
        from checker.report.places import source_of_engine  # noqa: PLC0415
        from checker.report.sarif import Writer  # noqa: PLC0415

        if self.sarif is not None:
            loops = {name: loop.source for name, loop in profile.loops.items()}
            write(self.sarif, Writer(source_of_engine(report.engine), loops).text(report))
        if self.junit is not None:
            write(self.junit, junit(report))
