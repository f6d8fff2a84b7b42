"""Lemmas of a proof as a person reads them: `paused or not gate_closed`."""

from __future__ import annotations

from collections.abc import Iterable

from checker.export.infix import Infix, Syntax
from spec.errors import SpecError
from spec.terms import Term

SYNTAX = Syntax("and", "or", "not ", "=", "/=", "true", "false", "implies", ("if ", " then ", " else ", ""))


class Spoken:
    """Writes lemmas, each once: the proofs of one configuration share most of theirs."""

    def __init__(self) -> None:
        """The terms are kept, so that Z3 gives no other the same id."""
        self._infix = Infix(SYNTAX, lambda name: name, {})
        self._known: dict[int, tuple[Term, str]] = {}

    def text(self, term: Term) -> str:
        """One lemma."""
        known = self._known.get(term.get_id())
        if known is None:
            known = self._known[term.get_id()] = (term, self._written(term))
        return known[1]

    def _written(self, term: Term) -> str:
        try:
            return self._infix.text(term)
        except SpecError:  # Spacer finds lemmas with operators that no spec has
            return " ".join(str(term).split())

    def invariant(self, lemmas: Iterable[Term]) -> list[str]:
        """Each lemma once, in the order in which it was found."""
        return list(dict.fromkeys(map(self.text, lemmas)))
