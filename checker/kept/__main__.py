"""Writes what a search finds for the bundled profiles that have a file here, or for those named: `make generate`.

A name is that of a file without its ending: a profile, and after each `+` a remedy.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import msgspec

from checker.kept.model import file_name
from checker.kept.record import search
from checker.verify import Request
from spec.profile import load_profile

FOLDER = Path(str(files("checker") / "kept"))


def main(names: list[str]) -> None:
    """One file for each profile; by default for each that has one."""
    for name in names or sorted(path.stem for path in FOLDER.glob("*.json")):
        profile, *remedies = name.split("+")
        request = Request(load_profile(profile).with_remedies(remedies))
        kept = search(request)
        file = FOLDER / file_name(request.profile)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=0) + b"\n")
        claims = sum(len(c.claims) for c in kept.configurations)
        sys.stdout.write(f"{file}: {claims} claims of {len(kept.configurations)} configurations\n")


if __name__ == "__main__":
    main(sys.argv[1:])
