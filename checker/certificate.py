"""Certificates: the obligations of a proof as SMT-LIB, with a manifest, for a second solver in another process.

A certificate is a folder: `manifest.json` and `NNN.smt2`, a file for each claim, its obligations each in push and pop.
Nothing of the prover is needed to check one: `checker certify` reads the manifest and asks cvc5.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import z3

from checker.digest import spec_digest
from checker.proof.obligations import Obligation, Proof, obligations
from checker.proof.system import System
from spec.profile import Configuration, Profile
from spec.terms import Term, constants

if TYPE_CHECKING:
    from checker.workbench import Decided

SCHEMA = 1


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


def write_certificate(
    root: str, profile: Profile, configuration: Configuration, property_id: str, decided: Sequence[Decided]
) -> str:
    """Write the certificate of one proved property below `root`; returns its folder."""
    place = [configuration.loop, configuration.mode, configuration.storage]
    name = "-".join([property_id, *place, profile.name, *profile.applied, spec_digest(profile)])
    folder = Path(root) / name
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[ClaimEntry] = []
    fairness: dict[str, str] = {}
    seed = 0
    for number, found in enumerate(decided):
        if found.proof is None or found.system is None:
            continue
        entries.append(_write_claim(folder, number, found.system, found.proof, found.part.about))
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
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / "manifest.json").write_bytes(data + b"\n")
    return str(folder)


def _write_claim(folder: Path, number: int, system: System, proof: Proof, about: str) -> ClaimEntry:
    found = obligations(system, proof)
    text = smt_lib(found)
    name = f"{number:03}.smt2"
    (folder / name).write_text(text, encoding="utf-8")
    return ClaimEntry(
        name,
        hashlib.sha256(text.encode()).hexdigest(),
        about,
        proof.method,
        [f"{o.number}: {o.about}" for o in found],
        [" ".join(str(lemma).split()) for lemma in proof.lemmas],
        [c.name for c in proof.rank],
        [f"{h.unit} where {' '.join(str(h.where).split())}" for h in proof.helpful],
    )


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
