"""The manifest of a certificate: what it claims, as data, and how it is read. Needs neither z3 nor the spec."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

SCHEMA = 1
NAME = "manifest.json"


class ManifestError(Exception):
    """A folder that holds no certificate that could be read. The message says which, and what is wrong with it."""


class ClaimEntry(msgspec.Struct, frozen=True):
    """One claim of the property: its file, and what the file holds."""

    file: str
    sha256: str
    about: str
    method: str
    obligations: Sequence[str]
    """One line each, `number: what it says`, in the order of the file."""
    lemmas: Sequence[str]
    rank: Sequence[str]
    helpful: Sequence[str]


class Manifest(msgspec.Struct, frozen=True):
    """What a certificate claims."""

    schema: int
    property: str
    profile: str
    spec_digest: str
    remedies: Sequence[str]
    loop: str
    configuration: dict[str, str | int]
    fairness: dict[str, str]
    prover: str
    seed: int
    claims: Sequence[ClaimEntry]

    def folder_name(self) -> str:
        """What the certificate's folder is called."""
        place = [self.loop, *(str(self.configuration.get(key)) for key in ("mode", "storage"))]
        return "-".join([self.property, *place, self.profile, *self.remedies, self.spec_digest])


def read_manifest(folder: Path) -> Manifest:
    """The manifest in `folder`, well-formed, its files in the folder itself. Raises ManifestError."""
    try:
        manifest = msgspec.json.decode((folder / NAME).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ManifestError(f"{folder}: not a certificate: {error}") from error
    if manifest.schema != SCHEMA:
        raise ManifestError(f"{folder}: not a certificate: schema must be {SCHEMA}, is {manifest.schema}")
    for number, claim in enumerate(manifest.claims):
        # What is read, or removed, is never outside the folder.
        if claim.file in {"", ".", ".."} or any(c in claim.file for c in "/\\\0"):
            problem = f"claims[{number}].file must be the name of a file in the folder, is {claim.file!r}"
            raise ManifestError(f"{folder}: not a certificate: {problem}")
    return manifest
