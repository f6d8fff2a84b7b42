"""The verdict: five values, their exit codes and JUnit mapping, in one place. Only `proved` passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum


class Verdict(Enum):
    """What is known of a property in one configuration."""

    PROVED = "proved"
    REFUTED = "refuted"
    BOUNDED = "bounded"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"

    @property
    def passes(self) -> bool:
        """Only a proof passes."""
        return self is Verdict.PROVED

    @property
    def junit(self) -> str | None:
        """The JUnit element: a refutation fails, what is not known is an error, never skipped in silence."""
        return {
            Verdict.PROVED: None,
            Verdict.REFUTED: "failure",
            Verdict.BOUNDED: "error",
            Verdict.UNKNOWN: "error",
            Verdict.NOT_APPLICABLE: "skipped",
        }[self]


EXIT_PROVED = 0
EXIT_REFUTED = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
EXIT_INTERNAL = 4
EXIT_CODES: Mapping[int, str] = {
    EXIT_PROVED: "everything asked for is proved",
    EXIT_REFUTED: "something is refuted",
    EXIT_USAGE: "bad input; the message names the value, the place, the valid names. Or an output that cannot be"
    " written",
    EXIT_UNKNOWN: "something is unknown or only bounded, nothing applies, or it was interrupted",
    EXIT_INTERNAL: "an internal error, or a certificate that does not hold",
}
"""What each means, as the documentation says it."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of the whole: refuted before unknown before bounded; nothing applicable is not-applicable."""
    found = set(verdicts)
    for verdict in (Verdict.REFUTED, Verdict.UNKNOWN, Verdict.BOUNDED, Verdict.PROVED):
        if verdict in found:
            return verdict
    return Verdict.NOT_APPLICABLE


def exit_code(verdict: Verdict) -> int:
    """0 all proved, 1 refuted, 3 unknown, bounded or nothing applicable."""
    if verdict is Verdict.PROVED:
        return EXIT_PROVED
    return EXIT_REFUTED if verdict is Verdict.REFUTED else EXIT_UNKNOWN
