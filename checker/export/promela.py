"""`checker export --promela`: a small instance of one configuration, for spin.

Each fair unit is a process of its own, since spin's weak fairness is one of processes. It takes a step only where the
unit is enabled in the spec's sense, and then always one that changes the state. What nothing obliges to happen is one
more process, which may always skip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import z3

from checker.export.chosen import Model, NamedClaim, breakable
from checker.export.infix import Infix, Syntax
from checker.export.instance import Instance, branches
from spec.terms import NEXT, BoolTerm, Term
from spec.tla import Action, Always, Choice, EachStep, Fairness, FinitelyOften, LeadsTo, Sort, Variable

SYNTAX = Syntax("&&", "||", "!", "==", "!=", "true", "false", "->", ("(", " -> ", " : ", ")"))
_BYTE = 255


@dataclass(frozen=True)
class Bounds:
    """How far the counters go."""

    bound: int = 2


def promela(model: Model, bounds: Bounds) -> str:
    """The text of the model, with how to run spin on it in its head."""
    return "\n\n".join(_Writer(model, Instance(model.spec, model.claims, bounds.bound)).blocks()) + "\n"


def identifier(name: str) -> str:
    """`DeviceDone(write_through.submitted)` as an identifier."""
    return re.sub(r"\W+", "_", name).strip("_")


def formula(claim: NamedClaim) -> str:
    """The name of the claim's formula, for `pan -N`."""
    tail = claim.name.partition("_")[2]
    return identifier(f"{claim.of.id}_{tail}" if tail else claim.of.id)


def compile_flags(model: Model) -> tuple[str, ...]:
    """What the verifier must be compiled with: room for the fairness of so many processes."""
    return (f"-DNFAIR={(len(model.spec.fair_units) + 11) // 8 + 1}",)


def run_flags(claim: NamedClaim) -> tuple[str, ...]:
    """How the verifier is asked about a claim; the steps of FinitelyOften are finite in number without fairness."""
    fair = () if isinstance(claim.claim, FinitelyOften) else ("-f",)
    return ("-a", *fair, "-N", formula(claim))


def unsaid(model: Model) -> list[str]:
    """What the model cannot say."""
    units = [unit for unit, actions in model.spec.fair_units.items() if actions[0].fairness is Fairness.STRONG]
    return [f"STRONG FAIRNESS of {u} is taken as weak, spin has no other: claims that need it may fail" for u in units]


class _Writer:
    def __init__(self, model: Model, instance: Instance) -> None:
        self._model, self._instance = model, instance
        self._claims = [(n, c) for n, c in enumerate(model.claims, 1)]
        self._every_step = any(isinstance(c.claim, EachStep) and breakable(model.spec, c.claim) for c in model.claims)
        self._infix = Infix(SYNTAX, _current, {})

    def blocks(self) -> Iterator[str]:
        yield self._head()
        yield "\n".join(self._state())
        yield _CHOOSE
        for action in self._model.spec.actions:
            yield "\n".join(self._action(action))
        for unit, actions in self._model.spec.fair_units.items():
            yield "\n".join(self._process(unit, actions))
        yield "\n".join(self._outside())
        yield "\n".join(line for n, c in self._claims for line in self._formula(n, c))

    # ---- what it is

    def _head(self) -> str:
        found, n = self._instance, self._instance.bound
        lines = [f"{self._model.title}.", "", "Written by `checker export --promela`. A small instance: bounded are"]
        lines += [f"  - together by {n}: {', '.join(v.name for v in found.counted)}"] if found.counted else []
        lines += [f"  - {name} by {cap}" for name, cap in found.caps.items()]
        lines += [
            "A step that would raise them further is disabled. So what holds here is not proved, and a claim about"
        ]
        lines += ["what happens in the end may fail at the bound alone: look at the trail."]
        if found.forgotten:
            lines += ["", f"Not kept in a state, since only rises count: {', '.join(v.name for v in found.forgotten)}."]
        told = [f"{line}." for line in unsaid(self._model)]
        told += [f"{p.id} has no meaning here: {reason}." for p, reason in self._model.silent]
        lines += ["", *told] if told else []
        lines += ["", "    spin -a FILE && gcc -O2 " + " ".join(compile_flags(self._model)) + " -o pan pan.c"]
        lines += [f"    ./pan {' '.join(run_flags(c))}" for c in self._model.claims]
        return "/* " + "\n * ".join(lines).replace(" * \n", " *\n") + "\n */"

    def _state(self) -> Iterator[str]:
        for v in self._instance.kept:
            init = self._model.spec.init[v.name]
            yield f"{self._type(v)} {v.name} = {str(init).lower() if isinstance(init, bool) else init};"
        for action in self._model.spec.actions:
            yield from (f"short {_current(c.full_name)}; /* {c.meaning or c.name} */" for c in action.choices)
        for v in self._model.spec.variables:
            if any(v.name in a.updates for a in self._model.spec.actions):
                yield f"hidden int {_next(v.name)};"
        for number, claim in self._claims:
            if isinstance(claim.claim, EachStep | FinitelyOften):
                yield f"bool {_seen(number, claim)}; /* {formula(claim)} */"

    def _type(self, variable: Variable) -> str:
        if variable.sort is Sort.BOOL:
            return "bool"
        return "byte" if self._instance.caps.get(variable.name, self._instance.bound) <= _BYTE else "short"

    # ---- actions

    def _action(self, action: Action) -> Iterator[str]:
        name = identifier(action.name)
        yield f"/* {action.actor}: {action.engine} */"
        yield f"#define {name}_guard ({self._infix.text(action.guard)})"
        yield f"#define {name}_fits ({self._text(self._instance.fits(action), action)})"
        if action.choices:
            yield from _inline(f"{name}_choose", [line for c in action.choices for line in self._choose(c)])
            witness = [f"{_current(c.full_name)} = {self._infix.text(c.witness)}" for c in action.choices]
            yield from _inline(f"{name}_witness", witness)
        yield from _inline(f"{name}_new", self._new(action))
        yield from _inline(f"{name}_set", [*self._watched(action), *self._set(action)])

    def _text(self, term: Term, action: Action) -> str:
        """A term over now and next; what the action does not update is next what it is now."""

        def name(full: str) -> str:
            plain = full.removesuffix(NEXT)
            return _next(plain) if full.endswith(NEXT) and plain in action.updates else self._held(full)

        return replace(self._infix, name=name).text(z3.simplify(term))

    def _held(self, name: str) -> str:
        plain = name.removesuffix(NEXT)
        return "0" if any(v.name == plain for v in self._instance.forgotten) else _current(plain)

    def _choose(self, choice: Choice) -> list[str]:
        name, low = _current(choice.full_name), self._infix.text(choice.low)
        if choice.high is not None:
            return [f"CHOOSE({name}, {low}, {self._infix.text(choice.high)})"]
        few = f"CHOOSE({name}, {low}, {self._infix.text(choice.low)} + {self._instance.bound})"
        if choice.witness.eq(choice.low):
            return [few]
        # What is high enough to matter, where that is more than a few: the witness is.
        return [f"if :: {few} :: {name} = {self._infix.text(choice.witness)} fi"]

    def _new(self, action: Action) -> list[str]:
        return [f"{_next(n)} = {self._infix.text(self._instance.update(action, n))}" for n in action.updates] or [
            "skip"
        ]

    def _set(self, action: Action) -> list[str]:
        kept = {v.name for v in self._instance.kept}
        return [f"{n} = {_next(n)}" for n in action.updates if n in kept] or ["skip"]

    def _watched(self, action: Action) -> Iterator[str]:
        """What the claims about steps say of this step, before it is taken."""
        for number, named in self._claims:
            claim, seen = named.claim, _seen(number, named)
            if isinstance(claim, EachStep) and action.name not in claim.but:
                yield f"{seen} = ({seen} || !({self._text(self._instance.said(claim.holds), action)}))"
            if isinstance(claim, FinitelyOften):
                yield f"{seen} = ({self._text(self._instance.said(claim.event), action)})"

    # ---- processes

    def _process(self, unit: str, actions: Sequence[Action]) -> Iterator[str]:
        yield f"active proctype {identifier(unit)}_fair() {{"
        yield "    do"
        for action in actions:
            name, ready = identifier(action.name), self._infix.text(self._instance.ready(action))
            yield f"    :: atomic {{ ({ready}) ->"
            if action.choices:
                changes = self._text(self._instance.changes(action), action)
                yield f"        {name}_choose();"
                yield f"        d_step {{ {name}_new();"
                yield f"            if :: {name}_fits && ({changes}) -> skip"
                yield f"            :: else -> {name}_witness(); {name}_new() fi;"
                yield f"            {name}_set(); {_forget(action)} }} }}"
            else:
                yield f"        d_step {{ {name}_new(); {name}_set() }} }}"
        yield "    od"
        yield "}"

    def _outside(self) -> Iterator[str]:
        """Whatever may happen and need not; a fair action too, where it need not be the one that its process takes."""
        yield "active proctype Outside() {"
        yield "    do"
        rest = "; ".join(f"{_seen(n, c)} = false" for n, c in self._claims if isinstance(c.claim, FinitelyOften))
        for action in self._model.spec.actions:
            if action.fairness is Fairness.NONE or action.choices or self._every_step:
                name = identifier(action.name)
                choose = f"{name}_choose(); " if action.choices else ""
                yield f"    :: atomic {{ {name}_guard -> {choose}d_step {{ {name}_new();"
                yield f"        if :: {name}_fits -> {name}_set() :: else -> {rest or 'skip'} fi;"
                yield f"        {_forget(action)} }} }}"
        always = _ALWAYS.format(any=self._instance.kept[0].name)
        yield f"    :: atomic {{ {always} -> {rest} }}" if rest else f"    :: {always}"
        yield "    od"
        yield "}"

    # ---- claims

    def _formula(self, number: int, named: NamedClaim) -> Iterator[str]:
        name, claim = formula(named), named.claim
        if isinstance(claim, Always):
            yield from self._defined(name, f"[] {name}_holds", holds=claim.holds)
        elif isinstance(claim, LeadsTo):
            body = f"[] ({name}_pending -> <> {name}_goal)"
            yield from self._defined(name, body, pending=claim.pending, goal=claim.goal)
        elif isinstance(claim, EachStep):
            yield f"ltl {name} {{ [] !{_seen(number, named)} }}"
        else:
            body = f"([] <> {_seen(number, named)}) -> ([] <> !{name}_during)"
            yield from self._defined(name, body, during=claim.during)

    def _defined(self, name: str, body: str, **parts: BoolTerm) -> Iterator[str]:
        for word, term in parts.items():
            # In a formula `->` is an implication, so no conditional expression may stand in it.
            plain = z3.simplify(branches(z3.simplify(term)))
            yield f"#define {name}_{word} ({self._infix.text(plain)})"
        yield f"ltl {name} {{ {body} }}"


_CHOOSE = """/* The environment picks a number. */
#define CHOOSE(k, low, high) k = low; do :: k < (high) -> k++ :: break od"""
# Spin rejects a plain `true` beside other options.
_ALWAYS = "({any} || !{any})"


def _inline(name: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"inline {name}() {{"
    yield ";\n".join(f"    {line}" for line in lines)
    yield "}"


def _current(name: str) -> str:
    return identifier(name) if "." in name else name


def _next(name: str) -> str:
    return f"next_{name}"


def _seen(number: int, claim: NamedClaim) -> str:
    return f"{'broken' if isinstance(claim.claim, EachStep) else 'happened'}_{number}"


def _forget(action: Action) -> str:
    """Choices are no part of the state between two steps."""
    return "; ".join(f"{_current(c.full_name)} = 0" for c in action.choices) or "skip"
