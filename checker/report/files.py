"""The files that `checker verify` writes beside its answer."""

from __future__ import annotations

from dataclasses import dataclass

from checker.outputs import check_apart, check_writable, write
from checker.results import Report
from spec.profile import Profile


@dataclass(frozen=True)
class Formats:
    """What `checker verify` also writes, for machines that read results of scanners and of tests."""

    sarif: str | None = None
    junit: str | None = None

    def check(self, profile: str | None) -> None:
        """`profile` is the file that is read. Raises OutputError."""
        check_apart(("--sarif", self.sarif), ("--junit", self.junit), ("--profile", profile))
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
