"""What was found out about one claim, and the hints that led there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checker.confirm import Confirmed, confirm
from checker.hints import Hints, Parts
from checker.kept.model import KeptClaim
from checker.kept.replay import Finds
from checker.proof.interpreter import Interpreter, Step
from checker.proof.obligations import Proof
from checker.proof.refute import Refutation
from checker.proof.shrink import Breaks, shrink, weight
from checker.proof.system import System
from checker.subject import Slice, Subject
from checker.verdict import Verdict
from spec.properties import Part
from spec.terms import BoolTerm

# How many known runs of a claim are tried, the latest first.
KNOWN = 3


@dataclass(frozen=True)
class Decided:
    """What was found out about one claim."""

    part: Part
    verdict: Verdict
    method: str
    system: System | None = None
    proof: Proof | None = None
    refutation: Refutation | None = None
    confirmed: Confirmed | None = None
    note: str = ""
    carried: bool = False
    """Whether it was found in the configuration before, and holds here."""
    kept: bool = False
    """Whether it was found by an earlier search, and holds here."""


@dataclass(frozen=True)
class Trail:
    """The hints for one claim."""

    key: str
    hints: Hints[Decided]
    finds: Finds | None = None

    @property
    def found(self) -> KeptClaim | None:
        """What an earlier search found."""
        return self.finds.claim(self.key) if self.finds else None

    @property
    def runs(self) -> Sequence[tuple[Step, ...]]:
        """Runs that broke the claim elsewhere."""
        return self.hints.runs.get(self.key, ())

    def shrunk(self, interpreter: Interpreter, breaks: Breaks) -> tuple[Step, ...] | None:
        """The shortest that comes of them here."""
        found = (shrink(interpreter, run, breaks) for run in self.runs[:KNOWN])
        return min((run for run in found if run), key=weight, default=None)

    @property
    def flag(self) -> BoolTerm | None:
        """The flag inside which a stuck region was found elsewhere."""
        before = self.hints.decided.get(self.key)
        return before.refutation.stuck.flag if before and before.refutation and before.refutation.stuck else None

    @property
    def rank(self) -> Sequence[Parts]:
        """The rank that proved it elsewhere."""
        return self.hints.ranks.get(self.key, ())


def refuted(subject: Subject, part: Part, piece: Slice, refutation: Refutation) -> Decided:
    """The counterexample, re-run. Raises UnconfirmedError."""
    confirmed = confirm(subject.interpreter, part.claim, refutation, piece.interpreter)
    return Decided(part, Verdict.REFUTED, refutation.method, piece.system, None, refutation, confirmed)
