"""What the properties of a report say, from the catalogue. A report may name one that this version does not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from checker.results import Result

UNKNOWN = "(not in this version's catalogue)"


def statement(property_id: str) -> str:
    """What one property says."""
    from spec.properties import catalogue  # noqa: PLC0415 - it loads z3

    known = catalogue()
    return known[property_id].statement if property_id in known else UNKNOWN


def statements(results: Iterable[Result]) -> Mapping[str, str]:
    """Property to statement, in the order of the report."""
    from spec.properties import catalogue  # noqa: PLC0415 - it loads z3

    known = catalogue()
    names = dict.fromkeys(r.property for r in results)
    return {name: known[name].statement if name in known else UNKNOWN for name in names}
