"""`checker certify`: every obligation of a certificate, asked of cvc5. Imports neither z3 nor the prover nor the spec.

It is run in a process of its own (`python -m checker.certify FOLDER…`), so that nothing of the proof's process helps.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from checker import workers
from checker.interrupts import answer_interrupts
from checker.manifest import ManifestError, read_manifest
from checker.streams import guard_streams, visible

EXIT_MISMATCH = 4
EXIT_USAGE = 2
ENOUGH = 8
"""Certificates, at least, for each worker: one that starts knows nothing of what others have asked."""
_PUSH = "(push 1)\n"
_CHECK = "\n(check-sat)\n(pop 1)\n"
_COMMAND = re.compile(r"^\((?!let )", re.MULTILINE)
"""A term that is printed over several lines has lines that begin with a `let`."""
_NEVER = ("(define", "(reset", "(set-option")
_FORM = re.compile(r"^\((?:push 1\)|pop 1\)|assert|define|reset|set-option)", re.MULTILINE)
_DECLARES = re.compile(r"^\(declare-const (\S+|\|[^|\n]*\|) (\w+)\)$", re.MULTILINE)


class CertificateError(Exception):
    """A certificate that does not hold. The message says which file and which obligation."""


class UnreadableError(Exception):
    """A file that a manifest names and that cannot be read."""


class Asked:
    """What cvc5 has found unsatisfiable: an obligation that is the same, word for word, is not asked again.

    More than half of them are: configurations differ in few actions, and each obligation speaks of one.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self._known: set[bytes] = set()
        self._sorts: dict[str, str] = {}

    def __len__(self) -> int:
        """How many different ones."""
        return len(self._known)

    def answers(self, text: str) -> Iterator[str]:
        """The answer to each `check-sat` of a script, as cvc5 gives it or gave it. Raises CertificateError."""
        head, *blocks = text.split(_PUSH)
        self._declare(head)
        marks = [_mark(block) for block in blocks]
        known = [mark in self._known for mark in marks]
        fresh = [block for block, is_known in zip(blocks, known, strict=True) if not is_known]
        asked = answers_of(_PUSH.join([head, *fresh]))
        for mark, is_known in zip(marks, known, strict=True):
            answer = "unsat" if is_known else next(asked, None)
            if answer is None:
                return
            if mark is not None and answer == "unsat":
                self._known.add(mark)
            yield answer
        yield from asked

    def _declare(self, head: str) -> None:
        """The same words over constants of other sorts are not the same: then all is asked anew."""
        sorts = dict(_DECLARES.findall(head))
        if any(self._sorts.get(name, sort) != sort for name, sort in sorts.items()):
            self._known.clear()
            self._sorts.clear()
        self._sorts |= sorts


def _mark(block: str) -> bytes | None:
    """What tells an obligation from others; None for what has not the form of one, which is always asked."""
    assertion, check, rest = block.partition(_CHECK)
    ends = all(line.startswith(";") for line in rest.splitlines())
    if not check or not ends or not assertion.startswith("(assert ") or len(_COMMAND.findall(assertion)) != 1:
        return None
    return hashlib.sha256(assertion.encode()).digest()


def check_folder(folder: Path, asked: Asked) -> int:
    """The number of obligations that cvc5 found unsatisfiable: all of them. Raises what `main` catches."""
    claims = read_manifest(folder).claims
    if not claims or not all(claim.obligations for claim in claims):
        raise CertificateError(f"{folder}: a certificate without obligations proves nothing")
    return sum(_check_claim(folder / claim.file, claim.sha256, claim.obligations, asked) for claim in claims)


def _check_claim(path: Path, digest: str, names: Sequence[str], asked: Asked) -> int:
    try:
        read = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error}") from error
    if hashlib.sha256(read).hexdigest() != digest:
        raise CertificateError(f"{path}: not the file that the manifest names (sha256 differs)")
    try:
        text = read.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path}: cannot be read: {error}") from error
    _check_form(path, text)
    try:
        answers = list(asked.answers(text))
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from error
    if len(answers) != len(names):
        raise CertificateError(f"{path}: {len(answers)} answers for {len(names)} obligations")
    for name, answer in zip(names, answers, strict=True):
        if answer != "unsat":
            raise CertificateError(f"{path}: obligation {name}: cvc5 says {answer}, not unsat")
    return len(answers)


def _check_form(path: Path, text: str) -> None:
    """A script may assert only between push and pop: what is asserted outside would speed every obligation to unsat."""
    depth, wrong = 0, ""
    for found in _FORM.finditer(text):
        word = found.group()
        depth += (word == "(push 1)") - (word == "(pop 1)")
        if word == "(assert" and depth != 1:
            wrong = "an assertion outside push and pop"
        elif word in _NEVER:
            wrong = f"a command that no certificate has: {text[found.start() :].split(maxsplit=1)[0]}"
        if wrong:
            line = text.count("\n", 0, found.start()) + 1
            raise CertificateError(f"{path}:{line}: {wrong}")


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
        sys.stderr.write("checker: no cvc5 here; install it with: in the checkout, pip install '.[certify]'\n")
        return EXIT_USAGE
    if not arguments:
        sys.stderr.write("checker: no certificate given; usage: python -m checker.certify FOLDER...\n")
        return EXIT_USAGE
    try:
        return _told(arguments)
    except workers.WorkerLostError as error:
        sys.stderr.write(f"checker: {error}\n")
        return EXIT_MISMATCH


def _told(arguments: Sequence[str]) -> int:
    total, names = 0, Counter(Path(one).name for one in arguments)
    for place, found in enumerate(_in_order(arguments)):
        if isinstance(found, Exception):
            sys.stderr.write(f"checker: {found}\n")
            return EXIT_MISMATCH if isinstance(found, CertificateError) else EXIT_USAGE
        total += found
        name = Path(arguments[place]).name
        told = name if names[name] == 1 else arguments[place]
        sys.stdout.write(f"{visible(told)}: {found} obligations, all unsat\n")
        sys.stdout.flush()  # an interrupt ends this process, and what is known by then has been said
    sys.stdout.write(f"{len(arguments)} certificates, {total} obligations re-checked by cvc5\n")
    return 0


Found = int | CertificateError | ManifestError | UnreadableError
"""The number of obligations of a certificate, or why it does not hold."""


def _in_order(folders: Sequence[str]) -> Iterator[Found]:
    """What is found of each, in the order given, whichever worker is the quicker one."""
    count = min(os.cpu_count() or 1, math.ceil(len(folders) / ENOUGH))
    if count < 2:  # noqa: PLR2004 - then there is nothing to share
        yield from _each(folders)
        return
    size = math.ceil(len(folders) / count)
    # Neighbours are of one property and one loop, whose obligations are often the same: they stay together.
    shares = [(start, folders[start : start + size]) for start in range(0, len(folders), size)]
    known, said = dict[int, Found](), 0
    for place, found in workers.results(_share, shares, count):
        known[place] = found
        while said in known:
            yield known[said]
            said += 1


def _share(share: tuple[int, Sequence[str]]) -> Iterator[tuple[int, Found]]:
    start, folders = share
    yield from enumerate(_each(folders), start)


def _each(folders: Sequence[str]) -> Iterator[Found]:
    """Until one does not hold: none after it is looked at."""
    asked = Asked()
    for folder in folders:
        try:
            yield check_folder(Path(folder), asked)
        except (CertificateError, ManifestError, UnreadableError) as error:
            yield error
            return


if __name__ == "__main__":
    workers.end_with(os.getppid())
    answer_interrupts()
    guard_streams()
    sys.exit(main(sys.argv[1:]))
