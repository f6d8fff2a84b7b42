"""Results that say the same, together: one property, one verdict, one reason, in several configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from checker.explain import where
from checker.results import Result


@dataclass(frozen=True)
class Case:
    """Results with the same property, verdict and reason, in the order of the report."""

    results: Sequence[Result]

    @property
    def telling(self) -> Result:
        """The one with the shortest counterexample."""
        return min(self.results, key=lambda r: len(r.trace.steps) if r.trace else 0)

    @property
    def places(self) -> list[str]:
        """The configurations, in words."""
        return [where(r.configuration, r.loop) for r in self.results]


def cases(results: Iterable[Result], *verdicts: str) -> list[Case]:
    """The cases with one of these verdicts."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        if result.verdict in verdicts:
            found.setdefault((result.property, result.verdict, result.reason), []).append(result)
    return [Case(same) for same in found.values()]
