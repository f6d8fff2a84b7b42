"""Everything that `checker rules` writes, and the comparison with what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from checker.alerts.dashboard import dashboard
from checker.alerts.model import Settings
from checker.alerts.plan import plan
from checker.alerts.rules import RULES, TESTS, rules, tests
from checker.alerts.runbooks import runbooks
from spec.errors import QuiesceError

DASHBOARD = "grafana/quiesce.json"
RUNBOOKS = "runbooks"
_OURS = (("prometheus", "*.yaml"), (TESTS, "*.yaml"), ("grafana", "*.json"), (RUNBOOKS, "*.md"))
"""Where only generated files live."""


class FolderError(QuiesceError):
    """A folder that cannot be written or read. Remedy: another `--into`, or its permissions."""


def generated(settings: Settings | None = None) -> Mapping[str, str]:
    """File, relative to the folder, to its text."""
    made = plan(settings)
    return {
        RULES: rules(made),
        **{f"{TESTS}/{name}.yaml": text for name, text in tests(made).items()},
        DASHBOARD: dashboard(),
        **{f"{RUNBOOKS}/{name}": text for name, text in runbooks(made).items()},
    }


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files and take away what an earlier version generated. Raises FolderError."""
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in _left_over(files, folder):
            (folder / name).unlink()
    except OSError as error:
        raise FolderError(f"cannot write into {str(folder)!r}: {error}; give another folder with --into") from error


def out_of_date(files: Mapping[str, str], folder: Path) -> list[str]:
    """The files that differ from what would be generated, are missing, or are there and should not be.

    Raises FolderError where there is no such folder.
    """
    if not folder.is_dir():
        raise FolderError(f"no folder {str(folder)!r} to check; run it where `deploy/` is, or give one with --into")
    try:
        stale = [name for name, text in files.items() if _read(folder / name) != text]
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(f"cannot read in {str(folder)!r}: {error}") from error
    return [*stale, *_left_over(files, folder)]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _left_over(files: Mapping[str, str], folder: Path) -> Iterator[str]:
    for inside, pattern in _OURS:
        for path in sorted((folder / inside).glob(pattern)):
            name = path.relative_to(folder).as_posix()
            if name not in files:
                yield name
