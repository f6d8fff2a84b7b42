"""Certificates: the obligations of a proof as SMT-LIB, with a manifest, for a second solver in another process.

A certificate is a folder: `manifest.json` and `NNN.smt2`, a file for each claim, its obligations each in push and pop.
Nothing of the prover is needed to check one: `checker certify` reads the manifest and asks cvc5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import z3

from checker.digest import spec_digest
from checker.manifest import NAME, SCHEMA, ClaimEntry, Manifest
from checker.proof.obligations import Obligation, Proof, obligations
from checker.proof.system import System
from spec.errors import QuiesceError
from spec.profile import Configuration, Profile
from spec.terms import Term, constants

if TYPE_CHECKING:
    from checker.decide.decided import Decided


class CertificateWriteError(QuiesceError):
    """A certificate that cannot be written. Remedy: make room, or give `--certificates` another folder."""


def write_certificate(
    root: str, profile: Profile, configuration: Configuration, property_id: str, decided: Sequence[Decided]
) -> str:
    """Write the certificate of one proved property below `root`; returns its folder. Raises CertificateWriteError."""
    texts: dict[str, str] = {}
    entries: list[ClaimEntry] = []
    fairness: dict[str, str] = {}
    seed = 0
    for number, found in enumerate(decided):
        if found.proof is None or found.system is None:
            continue
        entry, text = _claim(number, found.system, found.proof, found.part.about)
        texts[entry.file] = text
        entries.append(entry)
        seed = found.system.limits.seed
        fairness |= {unit: actions[0].fairness.value for unit, actions in found.system.spec.fair_units.items()}
    manifest = Manifest(
        SCHEMA,
        property_id,
        profile.name,
        spec_digest(profile),
        list(profile.applied),
        configuration.loop,
        configuration.as_dict(),
        fairness,
        f"z3 {z3.get_version_string()}",
        seed,
        entries,
    )
    folder = Path(root) / manifest.folder_name()
    try:
        _write(folder, manifest, texts)
    except OSError as error:
        raise CertificateWriteError(f"{folder}: the certificate cannot be written: {error}") from error
    return str(folder)


def _write(folder: Path, manifest: Manifest, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    # Last, so that a folder with a manifest is whole.
    (folder / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def _claim(number: int, system: System, proof: Proof, about: str) -> tuple[ClaimEntry, str]:
    found = obligations(system, proof)
    text = smt_lib(found)
    entry = ClaimEntry(
        f"{number:03}.smt2",
        hashlib.sha256(text.encode()).hexdigest(),
        about,
        proof.method,
        [f"{o.number}: {o.about}" for o in found],
        [" ".join(str(lemma).split()) for lemma in proof.lemmas],
        [c.name for c in proof.rank],
        [f"{h.unit} where {' '.join(str(h.where).split())}" for h in proof.helpful],
    )
    return entry, text


def smt_lib(found: Sequence[Obligation]) -> str:
    """One script in QF_LIA: each obligation between push and pop, each `check-sat` to be answered unsat."""
    read: dict[str, Term] = {}
    for obligation in found:
        read |= constants(obligation.formula)
    lines = ["(set-logic QF_LIA)"]
    lines += [f"(declare-const {_quoted(n)} {c.sort().name()})" for n, c in sorted(read.items())]
    for obligation in found:
        lines += [f"; {obligation.number}: {obligation.about}", "(push 1)"]
        lines += [f"(assert {obligation.formula.sexpr()})", "(check-sat)", "(pop 1)"]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return name if all(c.isalnum() or c in "_.~" for c in name) else f"|{name}|"
