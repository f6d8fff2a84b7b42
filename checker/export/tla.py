"""`checker export --tla`: one configuration as a TLA+ module, laid out as a person would write it.

A guard first, then the choices, then primed updates. What several updates need is named once: by the primed variable
that has this value, else by a LET.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import z3

from checker.export.chosen import Model, NamedClaim, camel
from checker.export.infix import Infix, Syntax, conjuncts, hung
from checker.export.sharing import Names, names_for
from spec.terms import NEXT, BoolTerm, Term, free_names
from spec.tla import Action, Always, Choice, Claim, EachStep, Fairness, LeadsTo, Sort

_WIDTH = 100
SYNTAX = Syntax("/\\", "\\/", "~", "=", "/=", "TRUE", "FALSE", "=>", ("IF ", " THEN ", " ELSE ", ""))


def module(model: Model) -> str:
    """The text of the module."""
    writer = _Writer(model)
    name = re.sub(r"\W+", "_", model.title.replace("loop ", "").replace("mode ", "").replace("storage ", ""))
    head = f" MODULE {name} "
    parts = [head.center(_WIDTH, "-"), *writer.paragraphs(), "=" * _WIDTH]
    return "\n\n".join(parts) + "\n"


def operator(name: str) -> str:
    """`DeviceDone(write_through.submitted)` as an identifier."""
    return re.sub(r"\W+", "_", name).strip("_")


def bound_name(choice: str, variables: Container[str]) -> str:
    """What a choice is called: not like a variable, which TLA+ forbids."""
    plain = choice.rsplit(".", 1)[-1]
    return f"some_{plain}" if plain in variables else plain


class _Writer:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._spec = replace(model.spec, actions=tuple(map(_simplified, model.spec.actions)))
        self._variables = {v.name for v in self._spec.variables}
        # As in the actions, whose guards and updates are simplified.
        gates = {name: z3.simplify(term) for name, term in self._spec.definitions.items()}
        self._gates: Mapping[str, BoolTerm] = {f"{camel(name)}Gate": term for name, term in gates.items()}
        # A gate now and next, as it was defined and simplified. Z3's ids are unique while the terms live.
        now = [(f"{camel(n)}Gate", t) for n, t in (*self._spec.definitions.items(), *gates.items())]
        self._alive = [*now, *((f"{name}'", self._spec.primed(term)) for name, term in now)]
        self._infix = Infix(SYNTAX, self._name, {term.get_id(): name for name, term in self._alive})
        self._groups = _groups([v.name for v in self._spec.variables])

    def _name(self, name: str) -> str:
        if name.endswith(NEXT):
            return f"{name.removesuffix(NEXT)}'"
        return bound_name(name, self._variables) if "." in name else name

    def paragraphs(self) -> Iterator[str]:
        yield _comment(
            f"{self._model.title}.\n\nWritten by `checker export --tla`. Counters are natural numbers without a bound:"
            " nothing here limits how much is in flight."
        )
        yield "EXTENDS Integers"
        yield from self._declarations()
        yield from self._initial()
        yield from self._definitions()
        for _, group in groupby(self._spec.actions, key=lambda a: a.actor):
            for action in group:
                yield "\n".join(self._action(action))
        yield from self._behaviour()
        yield from self._claims()

    # ---- state

    def _declarations(self) -> Iterator[str]:
        ghosts = [v.name for v in self._spec.variables if v.ghost]
        names = [v.name for v in self._spec.variables if not v.ghost]
        blocks = [_listed(names, "VARIABLES ", "")] if names else []
        if ghosts:
            blocks.append(
                _comment("The engine has no such fields; claims speak of them.")
                + "\n"
                + _listed(ghosts, "VARIABLES ", "")
            )
        yield from blocks
        yield from (_listed(members, f"{group} == <<", ">>") for group, members in self._groups.items())
        yield _listed([v.name for v in self._spec.variables], "vars == <<", ">>")

    def _initial(self) -> Iterator[str]:
        kinds = {Sort.BOOL: "BOOLEAN", Sort.NAT: "Nat"}
        typed = [f"/\\ {v.name} \\in {kinds[v.sort]}" for v in self._spec.variables]
        yield "\n".join(["TypeOK ==", *_indented(typed)])
        values = {v.name: self._spec.init[v.name] for v in self._spec.variables}
        init = [f"/\\ {name} = {str(x).upper() if isinstance(x, bool) else x}" for name, x in values.items()]
        yield "\n".join(["Init ==", *_indented(init)])

    def _definitions(self) -> Iterator[str]:
        plain = replace(self._infix, known={})
        for name, term in self._gates.items():
            if free_names(term) <= self._variables:
                yield "\n".join(
                    [
                        f"{name} ==",
                        *_indented(plain.lines(term, _WIDTH - 4) if not z3.is_and(term) else _each(plain, term)),
                    ]
                )

    # ---- actions

    def _action(self, action: Action) -> Iterator[str]:
        yield f"\\* {action.actor}: {action.engine}"
        yield f"{operator(action.name)} =="
        yield from _indented([*self._guard(action), *self._updates(action)])

    def _guard(self, action: Action) -> Iterator[str]:
        for part in self._conjuncts(action.guard):
            if isinstance(part, str):
                yield f"/\\ {part}"
            else:
                yield from hung("/\\ ", self._infix.lines(part, _WIDTH - 8))

    def _conjuncts(self, guard: BoolTerm) -> list[Term | str]:
        """The parts of a guard, a gate by its name."""
        parts: list[Term | str] = list(conjuncts(guard))
        for name, gate in self._gates.items():
            inside = {p.get_id() for p in conjuncts(gate)}
            here = {p.get_id() for p in parts if not isinstance(p, str)}
            if len(inside) > 1 and inside <= here:
                parts = [p for p in parts if isinstance(p, str) or p.get_id() not in inside]
                parts.append(name)
        return parts

    def _updates(self, action: Action) -> list[str]:
        names = names_for(action, self._infix)
        body = [line for name in names.order for line in self._update(name, action.updates[name], names)]
        for level in range(len(action.choices), -1, -1):
            inside = body if level == len(action.choices) else [*self._choice(action.choices[level], names), *body]
            body = [*self._let(names, level), *(inside if level < len(action.choices) else _indented(inside))]
        if not action.choices and not names.lets:
            body = [line.removeprefix("    ") for line in body]
        lines = hung("/\\ ", body) if action.choices or names.lets else body
        kept = [v.name for v in self._spec.variables if v.name not in action.updates]
        return [*lines, *self._unchanged(kept)]

    def _unchanged(self, kept: Sequence[str]) -> list[str]:
        """UNCHANGED, a group of variables by its name where all of it is unchanged."""
        shown: list[str] = []
        for name in kept:
            group = next((g for g, members in self._groups.items() if name in members), None)
            if group is None or not set(self._groups[group]) <= set(kept):
                shown.append(name)
            elif group not in shown:
                shown.append(group)
        return _listed(shown, "/\\ UNCHANGED <<", ">>").splitlines() if shown else []

    def _update(self, name: str, term: Term, names: Names) -> list[str]:
        known = {**self._infix.known, **names.known}
        known = {i: n for i, n in known.items() if n != f"{name}'"}
        infix = replace(self._infix, known=known)
        prefix = f"/\\ {name}' = "
        if not z3.is_bool(term) or z3.is_const(term):
            return hung(prefix, infix.lines(term, _WIDTH - len(prefix) - 12))
        text = infix.within(term)
        if len(text) + len(prefix) < _WIDTH - 12:
            return [prefix + text]
        lines = infix.lines(term, _WIDTH - 20)
        # In one line it needs its parentheses: `=` binds more tightly than what is in them.
        return [f"/\\ {name}' =", *(f"     {line}" for line in (lines if len(lines) > 1 else [text]))]

    def _choice(self, choice: Choice, names: Names) -> list[str]:
        infix = replace(self._infix, known={**self._infix.known, **names.lets_known})
        low, name = infix.within(choice.low), self._name(choice.full_name)
        if choice.high is None:
            values = "Nat" if low == "0" else f"{{n \\in Nat : n >= {low}}}"
        else:
            values = f"{low}..{infix.within(choice.high)}"
        meant = [f"\\* {choice.meaning}"] if choice.meaning else []
        return [*meant, f"\\E {name} \\in {values} :"]

    def _let(self, names: Names, level: int) -> list[str]:
        """The definitions that can be made once so many choices are made."""
        lines: list[str] = []
        for name, term in names.lets.items():
            if names.levels[name] == level:
                known = {i: n for i, n in names.lets_known.items() if i != term.get_id()}
                infix = replace(self._infix, known={**self._infix.known, **known})
                lines += hung(f"{name} == ", infix.lines(term, _WIDTH - 20 - len(name)))
        return [*hung("LET ", lines), "IN"] if lines else []

    # ---- behaviour

    def _behaviour(self) -> Iterator[str]:
        yield "\n".join(["Next ==", *_indented([f"\\/ {operator(a.name)}" for a in self._spec.actions])])
        fair = [f"/\\ {_fairness(actions)}" for actions in self._spec.fair_units.values()]
        yield "\n".join(["Fairness ==", *_indented(fair or ["TRUE"])])
        yield "Spec == Init /\\ [][Next]_vars /\\ Fairness"

    def _claims(self) -> Iterator[str]:
        for prop, claims in groupby(self._model.claims, key=lambda c: c.of):
            found = list(claims)
            yield "\n".join([_comment(f"{prop.id}: {prop.statement}."), *self._named(found[0])])
            for claim in found[1:]:
                yield "\n".join(self._named(claim))
            if len(found) > 1:
                yield "\n".join([f"{camel(prop.id)} ==", *_indented([f"/\\ {c.name}" for c in found])])
        for prop, reason in self._model.silent:
            yield _comment(f"{prop.id} has no meaning here: {reason}.")

    def _named(self, claim: NamedClaim) -> list[str]:
        return [f"{claim.name} ==", *_indented(self._claim(claim.claim))]

    def _claim(self, claim: Claim) -> list[str]:
        if isinstance(claim, Always):
            return _boxed("[]", self._infix.lines(claim.holds, _WIDTH - 8), "")
        if isinstance(claim, LeadsTo):
            pending, goal = (self._infix.lines(t, _WIDTH - 10) for t in (claim.pending, claim.goal))
            parts = [*_boxed("", pending, ""), *hung("~> ", _boxed("", goal, ""))]
            return [" ".join(parts)] if sum(map(len, parts)) < _WIDTH - 8 and len(parts) == 2 else parts  # noqa: PLR2004
        if isinstance(claim, EachStep):
            return self._each_step(claim)
        event, during = self._infix.text(claim.event), self._infix.within(claim.during)
        return [f"[]<><<{event}>>_vars => []<>~{during}"]

    def _each_step(self, claim: EachStep) -> list[str]:
        lines = self._infix.lines(claim.holds, _WIDTH - 12)
        if claim.but:
            spoken = [operator(a.name) for a in self._spec.actions if a.name not in claim.but]
            steps = textwrap.wrap(" \\/ ".join(spoken), _WIDTH - 12, break_long_words=False)
            lines = [*_boxed("", steps, ""), *hung("=> ", _boxed("", lines, ""))]
        return _boxed("[][", lines, "]_vars")


def _simplified(action: Action) -> Action:
    """Its ranges simplified too, so that what they share with the updates looks alike."""
    choices = [
        replace(c, low=z3.simplify(c.low), high=None if c.high is None else z3.simplify(c.high)) for c in action.choices
    ]
    return replace(action, choices=tuple(choices))


def _fairness(actions: Sequence[Action]) -> str:
    word = "SF" if actions[0].fairness is Fairness.STRONG else "WF"
    unit = " \\/ ".join(operator(a.name) for a in actions)
    return f"{word}_vars({unit})"


def _boxed(before: str, lines: list[str], after: str) -> list[str]:
    """A formula in the parentheses of its operator, in as many lines as it has."""
    if not before.endswith("["):
        simple = len(lines) == 1 and re.fullmatch(r"~?\w+", lines[0])
        before, after = (before, after) if simple else (f"{before}(", f"){after}")
    return hung(before, [*lines[:-1], f"{lines[-1]}{after}"])


def _each(infix: Infix, term: Term) -> list[str]:
    return [line for part in term.children() for line in hung("/\\ ", infix.lines(part, _WIDTH - 8))]


def _groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Variables whose names differ in the last word, three or more of them: the stages of a ledger, the tiers."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if "_" in name:
            groups.setdefault(f"{name.rsplit('_', 1)[0]}_vars", []).append(name)
    return {group: members for group, members in groups.items() if len(members) > 2}  # noqa: PLR2004 - a pair is short


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _listed(names: Sequence[str], before: str, after: str) -> str:
    room = _WIDTH - len(before) - len(after) - 8
    return "\n".join(hung(before, textwrap.wrap(", ".join(names), room))) + after


def _comment(text: str) -> str:
    return "\n".join(
        f"\\* {line}".rstrip() for part in text.split("\n") for line in (textwrap.wrap(part, _WIDTH - 3) or [""])
    )
