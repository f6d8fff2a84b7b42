"""Certificates of earlier runs: what is decided anew has none until it is proved again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from checker.manifest import NAME, Manifest, ManifestError, read_manifest
from checker.verify import Request
from spec.errors import QuiesceError


class StaleCertificateError(QuiesceError):
    """A certificate of what is to be decided anew that cannot be removed. Remedy: move it, or take another folder."""


def withdraw(request: Request) -> None:
    """Remove the certificates of everything that `request` decides, whatever version of the profile they speak of.

    Before the run, not after it: one that is interrupted or fails must not leave behind what it was about to refute.
    Raises QuiesceError.
    """
    from spec.properties import chosen  # noqa: PLC0415 - z3 is loaded only when something is to be proved

    properties = {p.id for p in chosen(request.properties)}
    configurations = request.profile.configurations(request.loops, request.modes)
    if request.certificates is None:
        return
    places = [(c.loop, c.as_dict()) for c in configurations]
    profile = (request.profile.name, list(request.profile.applied))
    for path in sorted(Path(request.certificates).glob(f"*/{NAME}")):
        try:
            manifest = read_manifest(path.parent)
        except ManifestError:
            continue  # `checker certify` does not take it either
        same = (manifest.profile, manifest.remedies) == profile and manifest.property in properties
        if same and (manifest.loop, manifest.configuration) in places:
            _remove(path.parent, manifest)


def _remove(folder: Path, manifest: Manifest) -> None:
    """Remove what the checker wrote, by the manifest; what else lies in the folder stays, and the folder with it."""
    remedy = "move it away, or give --certificates another folder"
    if folder.name != manifest.folder_name() or any(p.is_symlink() for p in (folder, folder / NAME)):
        raise StaleCertificateError(f"{folder}: a certificate of what is decided anew, and not as written; {remedy}")
    try:
        (folder / NAME).unlink()
        for claim in manifest.claims:
            path = folder / claim.file
            if path.is_symlink() or not path.is_file():
                continue
            if hashlib.sha256(path.read_bytes()).hexdigest() == claim.sha256:
                path.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    except OSError as error:
        raise StaleCertificateError(f"{folder}: the certificate cannot be removed: {error}; {remedy}") from error
