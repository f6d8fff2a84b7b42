"""Z3 terms as text the way a person writes them: `x > 0` and not `~(x <= 0)`, `a - b` and not `a + -1 * b`.

The operators' names are a parameter, since TLA+ and Promela differ in little else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import z3
from z3 import z3core

from spec.errors import SpecError
from spec.terms import Term

# How tightly what was written binds. `and` and `or` are never mixed without parentheses: TLA+ allows no mixing.
_OPEN, _OR, _AND, _COMPARED, _SUM, _PRODUCT, _ATOM = range(7)

_TURNED = {
    z3.Z3_OP_LE: z3.Z3_OP_GT,
    z3.Z3_OP_GT: z3.Z3_OP_LE,
    z3.Z3_OP_GE: z3.Z3_OP_LT,
    z3.Z3_OP_LT: z3.Z3_OP_GE,
    z3.Z3_OP_EQ: z3.Z3_OP_DISTINCT,
    z3.Z3_OP_DISTINCT: z3.Z3_OP_EQ,
}
_JOINED = (z3.Z3_OP_AND, z3.Z3_OP_OR)
_OPENED = (z3.Z3_OP_ITE, z3.Z3_OP_IMPLIES)
_SUMS = (z3.Z3_OP_ADD, z3.Z3_OP_SUB, z3.Z3_OP_MUL, z3.Z3_OP_UMINUS)


@dataclass(frozen=True)
class Syntax:
    """The operators of one language. `when` is what stands around the parts of a conditional expression."""

    conj: str
    disj: str
    neg: str
    equal: str
    unequal: str
    true: str
    false: str
    implies: str
    when: tuple[str, str, str, str]

    def relation(self, kind: int) -> str:
        """The name of a comparison."""
        same = {z3.Z3_OP_EQ: self.equal, z3.Z3_OP_DISTINCT: self.unequal}
        order = {z3.Z3_OP_LE: "<=", z3.Z3_OP_LT: "<", z3.Z3_OP_GE: ">=", z3.Z3_OP_GT: ">"}
        return (same | order)[kind]


Sum = list[tuple[int, Term]]
"""Coefficients and terms; a constant is a coefficient of the term 1."""


@dataclass(frozen=True)
class Infix:
    """Writes terms. `name` maps a constant to its text; `known` maps Z3's ids of whole terms to names for them."""

    syntax: Syntax
    name: Callable[[str], str]
    known: Mapping[int, str]
    width: int = 100

    def text(self, term: Term) -> str:
        """In one line."""
        return self._written(term, positive=True)[0]

    def lines(self, term: Term, room: int) -> list[str]:
        """In as many lines as it takes to stay in `room` columns, where that can be done."""
        return self._laid_out(term, room, positive=True)

    def within(self, term: Term) -> str:
        """In one line, in parentheses where it is more than a name or a number."""
        text, strength = self._written(term, positive=True)
        return text if strength == _ATOM else f"({text})"

    # ---- one line

    def _written(self, term: Term, *, positive: bool) -> tuple[str, int]:
        if term.get_id() in self.known:
            return self._signed(self.known[term.get_id()], positive=positive)
        kind = term.decl().kind()
        if kind == z3.Z3_OP_NOT:
            return self._written(term.arg(0), positive=not positive)
        if kind in _SUMS:
            return self._added(linear(term))
        for kinds, written in ((_JOINED, self._joined), (_TURNED, self._compared), (_OPENED, self._opened)):
            if kind in kinds:
                return written(term, positive=positive)
        return self._leaf(term, positive=positive)

    def _leaf(self, term: Term, *, positive: bool) -> tuple[str, int]:
        if z3.is_int_value(term):
            return str(number(term)), _ATOM
        if z3.is_true(term) or z3.is_false(term):
            return (self.syntax.true if z3.is_true(term) is positive else self.syntax.false), _ATOM
        if term.num_args() or term.decl().kind() != z3.Z3_OP_UNINTERPRETED:
            raise SpecError(f"no text for the operator {term.decl().name()!r}")
        return self._signed(self.name(term.decl().name()), positive=positive)

    def _signed(self, text: str, *, positive: bool) -> tuple[str, int]:
        return (text, _ATOM) if positive else (f"{self.syntax.neg}{text}", _COMPARED)

    def _joined(self, term: Term, *, positive: bool) -> tuple[str, int]:
        if not positive and not _better_turned(term):
            return f"{self.syntax.neg}({self._written(term, positive=True)[0]})", _COMPARED
        is_and = z3.is_and(term) is positive
        parts = [self._operand(part, _COMPARED, positive=positive) for part in flat(term, self.known)]
        return f" {self.syntax.conj if is_and else self.syntax.disj} ".join(parts), _AND if is_and else _OR

    def _operand(self, term: Term, least: int, *, positive: bool = True) -> str:
        text, strength = self._written(term, positive=positive)
        return text if strength >= least else f"({text})"

    def _compared(self, term: Term, *, positive: bool) -> tuple[str, int]:
        return " ".join(self._sides(term, positive=positive)), _COMPARED

    def _sides(self, term: Term, *, positive: bool) -> tuple[str, str, str]:
        """What is compared, by what, with what."""
        kind = term.decl().kind() if positive else _TURNED[term.decl().kind()]
        left, right = term.arg(0), term.arg(1)
        if z3.is_bool(left):
            sides = self._operand(left, _SUM), self._operand(right, _SUM)
        else:
            sides = self._balanced(left, right)
        return sides[0], self.syntax.relation(kind), sides[1]

    def _balanced(self, left: Term, right: Term) -> tuple[str, str]:
        """What is subtracted on one side is added on the other."""
        sums = linear(left), linear(right)
        if all(factor >= 0 for side in sums for factor, _ in side):
            return self._operand(left, _SUM), self._operand(right, _SUM)
        ours, theirs = ([p for p in side if p[0] > 0] for side in sums)
        ours += [(-factor, part) for factor, part in sums[1] if factor < 0]
        theirs += [(-factor, part) for factor, part in sums[0] if factor < 0]
        return self._added(ours)[0], self._added(theirs)[0]

    def _added(self, parts: Sum) -> tuple[str, int]:
        ordered = sorted(parts, key=lambda p: (p[0] < 0, z3.is_int_value(p[1])))
        text = ""
        for factor, part in ordered:
            sign = ("-" if factor < 0 else "+") if text or factor < 0 else ""
            text += f" {sign} {self._product(abs(factor), part)}" if sign else self._product(factor, part)
        if text.startswith(" - "):
            text = f"0{text}"
        return text or "0", _SUM if len(parts) > 1 or text.startswith("0 -") else _PRODUCT

    def _product(self, factor: int, part: Term) -> str:
        if z3.is_int_value(part):
            return str(factor)
        return self._operand(part, _ATOM) if factor == 1 else f"{factor} * {self._operand(part, _ATOM)}"

    def _opened(self, term: Term, *, positive: bool) -> tuple[str, int]:
        if z3.is_implies(term):
            left, right = (self._operand(term.arg(i), _COMPARED) for i in (0, 1))
            text = f"{left} {self.syntax.implies} {right}"
        else:
            before, then, otherwise, after = self.syntax.when
            parts = [self._operand(part, _OR) for part in term.children()]
            text = f"{before}{parts[0]}{then}{parts[1]}{otherwise}{parts[2]}{after}"
        return (text, _OPEN) if positive else (f"{self.syntax.neg}({text})", _COMPARED)

    # ---- several lines

    def _laid_out(self, term: Term, room: int, *, positive: bool) -> list[str]:
        text, _ = self._written(term, positive=positive)
        if len(text) <= room or term.get_id() in self.known:
            return [text]
        kind = term.decl().kind()
        if kind == z3.Z3_OP_NOT:
            return self._laid_out(term.arg(0), room, positive=not positive)
        if kind in _JOINED and (positive or _better_turned(term)):
            return self._bullets(term, room, positive=positive)
        if kind == z3.Z3_OP_ADD:
            return self._terms_of_sum(term, room)
        if kind in _TURNED:
            left, relation, right = self._sides(term, positive=positive)
            return [*_broken(left, room), *hung(f"{relation} ", _broken(right, room - 3))]
        return self._cases(term, room) if kind in _OPENED and positive else [text]

    def _cases(self, term: Term, room: int) -> list[str]:
        if z3.is_implies(term):
            left, right = (self._closed(term.arg(i), room - 3) for i in (0, 1))
            return [*left, *hung("=> ", right)]
        parts = [self._laid_out(part, room - 5, positive=True) for part in term.children()]
        return [line for word, part in zip(("IF ", "THEN ", "ELSE "), parts, strict=True) for line in hung(word, part)]

    def _terms_of_sum(self, term: Term, room: int) -> list[str]:
        """Each on its line, what is long after what is short."""
        ordered = sorted(linear(term), key=lambda p: (p[0] < 0, len(self.text(p[1]))))
        if ordered[0][0] < 0 or any(abs(factor) > 1 for factor, _ in ordered):
            return [self.text(term)]
        found: list[str] = []
        for factor, part in ordered:
            lines = self._laid_out(part, room - 3, positive=True)
            whole = self._written(part, positive=True)[1] == _ATOM
            closed = lines if whole else hung("(", [*lines[:-1], f"{lines[-1]})"])
            found += hung("- " if factor < 0 else "+ ", closed) if found else closed
        return found

    def _closed(self, term: Term, room: int) -> list[str]:
        """Laid out; in parentheses where an implication would take in too much of it."""
        lines = self._laid_out(term, room, positive=True)
        if len(lines) == 1:
            return [self._operand(term, _COMPARED)]
        if z3.is_and(term) or z3.is_or(term):
            return lines
        return [*hung("(", lines[:-1]), f" {lines[-1]})"]

    def _bullets(self, term: Term, room: int, *, positive: bool) -> list[str]:
        word = self.syntax.conj if z3.is_and(term) is positive else self.syntax.disj
        found: list[str] = []
        for part in flat(term, self.known):
            found += hung(f"{word} ", self._laid_out(part, room - 3, positive=positive))
        return found


def hung(word: str, lines: list[str]) -> list[str]:
    """`lines` after a word, those below the first indented as far."""
    return [word + lines[0], *(" " * len(word) + line for line in lines[1:])]


def flat(term: Term, whole: Container[int] = ()) -> list[Term]:
    """The parts of a conjunction or disjunction, those of nested ones of its kind too, but for those in `whole`."""
    kind = term.decl().kind()
    if kind not in _JOINED:
        return [term]
    found: list[Term] = []
    for part in term.children():
        found += flat(part, whole) if part.decl().kind() == kind and part.get_id() not in whole else [part]
    return found


def conjuncts(term: Term) -> list[Term]:
    """The parts of a conjunction; what is none is its own only part, and `true` has none."""
    if z3.is_true(term):
        return []
    return flat(term) if z3.is_and(term) else [term]


def number(term: Term) -> int:
    """The integer that a numeral stands for."""
    return int(z3core.Z3_get_numeral_string(term.ctx.ref(), term.as_ast()))


def linear(term: Term) -> Sum:
    """A term as a sum of products with integers."""
    kind = term.decl().kind()
    if z3.is_int_value(term):
        value = number(term)
        return [(value, z3.IntVal(1))] if value else []
    if kind == z3.Z3_OP_ADD:
        return [part for child in term.children() for part in linear(child)]
    if kind == z3.Z3_OP_SUB:
        first, *rest = term.children()
        return linear(first) + [(-factor, part) for child in rest for factor, part in linear(child)]
    if kind == z3.Z3_OP_UMINUS:
        return [(-factor, part) for factor, part in linear(term.arg(0))]
    if kind == z3.Z3_OP_MUL and term.num_args() == 2 and z3.is_int_value(term.arg(0)):  # noqa: PLR2004 - Z3's normal form
        return [(number(term.arg(0)) * factor, part) for factor, part in linear(term.arg(1))]
    return [(1, term)]


def _better_turned(term: Term) -> bool:
    """Whether `not (a or b)` reads better as `not a and not b`: where most of the parts lose a negation."""
    parts = flat(term)
    losing = sum(z3.is_not(p) or p.decl().kind() in _TURNED for p in parts)
    return bool(z3.is_or(term)) or losing * 2 > len(parts)


def _broken(side: str, room: int) -> list[str]:
    """A side of a comparison; one that is too long has each of its summands on a line."""
    if len(side) <= room:
        return [side]
    lines, depth = [""], 0
    for word in side.split(" "):
        if word in ("+", "-") and not depth:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
        depth += word.count("(") - word.count(")")
    return lines
