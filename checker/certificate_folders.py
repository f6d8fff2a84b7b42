"""Which certificates are below the folders that a person names. Imports nothing that proves, nor cvc5."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from checker.manifest import NAME
from spec.errors import QuiesceError


class CertificateMissingError(QuiesceError):
    """A folder without a certificate, or no folder at all. Remedy: the command in the text."""


def chosen_certificates(folders: Sequence[str]) -> list[str]:
    """Each once, by name. Raises CertificateMissingError."""
    found: dict[str, str] = {}
    for folder in folders:
        if not folder:
            raise CertificateMissingError("FOLDER is '', as of a variable that is not set; the current folder is: .")
        for path in _certificates(Path(folder)):
            found.setdefault(os.path.realpath(path), str(path))
    # The same property and loop in several folders: neighbours share obligations, and each is asked once.
    return sorted(found.values(), key=lambda path: Path(path).name)


def _certificates(folder: Path) -> Iterator[Path]:
    """The folder itself where it is one, and those in it."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    itself = _has_manifest(folder)
    inside = [entry for entry in entries if _has_manifest(entry) or (not itself and _leads_nowhere(entry))]
    if not itself and not inside:
        command = f"checker verify --certificates {folder}"
        raise CertificateMissingError(f"no certificate in {folder}; write some with: {command}")
    yield from [folder, *inside] if itself else inside


def _has_manifest(folder: Path) -> bool:
    """Also where it is a link whose file is gone: then it is a certificate that cannot be read, and not none."""
    return os.path.lexists(folder / NAME)


def _leads_nowhere(entry: Path) -> bool:
    return entry.is_symlink() and not entry.exists()
