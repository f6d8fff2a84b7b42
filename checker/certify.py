"""`checker certify`: every obligation of a certificate, asked of cvc5. Imports neither z3 nor the prover nor the spec.

It is run in a process of its own (`python -m checker.certify FOLDER…`), so that nothing of the proof's process helps.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from checker.interrupts import answer_interrupts
from checker.manifest import ManifestError, read_manifest
from checker.streams import guard_streams, visible

EXIT_MISMATCH = 4
EXIT_USAGE = 2


class CertificateError(Exception):
    """A certificate that does not hold. The message says which file and which obligation."""


class UnreadableError(Exception):
    """A file that a manifest names and that cannot be read."""


def check_folder(folder: Path) -> int:
    """The number of obligations that cvc5 found unsatisfiable: all of them. Raises what `main` catches."""
    claims = read_manifest(folder).claims
    if not claims or not all(claim.obligations for claim in claims):
        raise CertificateError(f"{folder}: a certificate without obligations proves nothing")
    return sum(_check_claim(folder / claim.file, claim.sha256, claim.obligations) for claim in claims)


def _check_claim(path: Path, digest: str, names: Sequence[str]) -> int:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path}: cannot be read: {error}") from error
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise CertificateError(f"{path}: not the file that the manifest names (sha256 differs)")
    _check_form(path, text)
    answers = list(answers_of(text))
    if len(answers) != len(names):
        raise CertificateError(f"{path}: {len(answers)} answers for {len(names)} obligations")
    for name, answer in zip(names, answers, strict=True):
        if answer != "unsat":
            raise CertificateError(f"{path}: obligation {name}: cvc5 says {answer}, not unsat")
    return len(answers)


def _check_form(path: Path, text: str) -> None:
    """A script may assert only between push and pop: what is asserted outside would speed every obligation to unsat."""
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        depth += line.startswith("(push 1)") - line.startswith("(pop 1)")
        if line.startswith("(assert") and depth != 1:
            raise CertificateError(f"{path}:{number}: an assertion outside push and pop")
        if line.startswith(("(define", "(reset", "(set-option")):
            raise CertificateError(f"{path}:{number}: a command that no certificate has: {line.split()[0]}")


def answers_of(text: str) -> Iterator[str]:
    """What cvc5 answers to each `check-sat` of an SMT-LIB script. Raises CertificateError where it cannot parse."""
    import cvc5  # noqa: PLC0415 - an extra; the error for its absence is given by `main`

    terms = cvc5.TermManager()
    solver = cvc5.Solver(terms)
    solver.setOption("incremental", "true")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "certificate")
    symbols = parser.getSymbolManager()
    while True:
        try:
            command = parser.nextCommand()
            if command.isNull():
                return
            answer = command.invoke(solver, symbols).strip()
        except RuntimeError as error:
            raise CertificateError(f"cvc5 cannot read the script: {error}") from error
        if command.getCommandName() == "check-sat":
            yield answer


def main(arguments: Sequence[str]) -> int:
    """Check each folder; 0 all hold, 4 one does not, 2 cannot be read or no cvc5."""
    try:
        import cvc5  # noqa: F401, PLC0415
    except ImportError:
        sys.stderr.write("checker: no cvc5 here; install it with: pip install 'quiesce[certify]'\n")
        return EXIT_USAGE
    if not arguments:
        sys.stderr.write("checker: no certificate given; usage: python -m checker.certify FOLDER...\n")
        return EXIT_USAGE
    total = 0
    for folder in arguments:
        try:
            count = check_folder(Path(folder))
        except (CertificateError, ManifestError, UnreadableError) as error:
            sys.stderr.write(f"checker: {error}\n")
            return EXIT_MISMATCH if isinstance(error, CertificateError) else EXIT_USAGE
        total += count
        sys.stdout.write(f"{visible(Path(folder).name)}: {count} obligations, all unsat\n")
        sys.stdout.flush()  # an interrupt ends this process, and what is known by then has been said
    sys.stdout.write(f"{len(arguments)} certificates, {total} obligations re-checked by cvc5\n")
    return 0


if __name__ == "__main__":
    answer_interrupts()
    guard_streams()
    sys.exit(main(sys.argv[1:]))
