"""The mutants of a spec: one guard, update, fairness, gate term or step less, or one guard weaker.

A mutant is data: what it changes has a name by which it is found in each spec of the configuration (with a followed
request, and without). It reads specs, and knows nothing of how they are built, but for the steps of passes and pauses,
which are facts of the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import z3

from checker.export.infix import Infix, conjuncts
from checker.export.tla import SYNTAX
from spec.profile import Configuration, Profile
from spec.terms import BoolTerm, Term, conj, free_names
from spec.tla import Action, Fairness, Spec

KINDS = ("guard", "update", "fairness", "gate", "step")


@dataclass(frozen=True, order=True)
class Mutant:
    """One change. `place` is an action, a unit, a gate, or a table of the profile; `what` is what is lost there."""

    kind: str
    place: str
    what: str

    def __str__(self) -> str:
        """As in the list of equivalent mutants."""
        return f"{self.kind} {self.place}: {self.what}"


def of_spec(spec: Spec) -> Iterator[Mutant]:
    """Every mutant of a spec but those of steps, in the order of the spec."""
    for action in spec.actions:
        yield from (Mutant("guard", action.name, what) for what in _changes(_guard(spec, action)))
        yield from (Mutant("update", action.name, f"{name} unchanged") for name in action.updates)
    yield from (Mutant("fairness", unit, "none") for unit in spec.fair_units)
    for name, term in spec.definitions.items():
        yield from (Mutant("gate", name, what) for what in _changes(_parts(term)))


def of_profile(profile: Profile, configuration: Configuration) -> Iterator[Mutant]:
    """The mutants that leave out one step of a pass or of the pause handler."""
    for place, steps in _tables(profile, configuration).items():
        yield from (Mutant("step", place, f"drop {number} {step}") for number, step in enumerate(steps, 1))


def mutated(spec: Spec, mutant: Mutant) -> Spec:
    """The spec with the change; the same spec where it has nothing of that name."""
    if mutant.kind == "fairness":
        unit = {a.name for a in spec.fair_units.get(mutant.place, ())}
        return _each(spec, lambda a: replace(a, fairness=Fairness.NONE) if a.name in unit else a)
    if mutant.kind == "gate":
        return _without_term(spec, mutant) if mutant.place in spec.definitions else spec
    change = _less_guard if mutant.kind == "guard" else _less_update
    return _each(spec, lambda a: change(spec, a, mutant.what) if a.name == mutant.place else a)


def mutated_profile(profile: Profile, configuration: Configuration, mutant: Mutant) -> Profile:
    """The profile without the step."""
    number = int(mutant.what.split()[1])
    steps = list(_tables(profile, configuration)[mutant.place])
    del steps[number - 1]
    table, name, *key = mutant.place.split(".")
    if table == "pause":
        return replace(profile, pause={**profile.pause, name: replace(profile.pause[name], steps=tuple(steps))})
    old, kept = profile.loops[name], tuple(steps)
    loop = replace(old, paused=kept) if key == ["paused"] else replace(old, running=kept)
    return replace(profile, loops={**profile.loops, name: loop})


def _tables(profile: Profile, configuration: Configuration) -> Mapping[str, tuple[str, ...]]:
    loop, mode = configuration.loop, configuration.mode
    return {
        f"loops.{loop}.paused": profile.loops[loop].paused,
        f"loops.{loop}.running": profile.loops[loop].running,
        f"pause.{mode}": profile.pause[mode].steps,
    }


def _each(spec: Spec, change: Callable[[Action], Action]) -> Spec:
    actions = tuple(map(change, spec.actions))
    return spec if all(a is b for a, b in zip(actions, spec.actions, strict=True)) else replace(spec, actions=actions)


# ---- guards

_Parts = Mapping[str, Sequence[Term]]
"""What a guard waits for, by its text: one term, or all those of a gate."""


def _guard(spec: Spec, action: Action) -> _Parts:
    """The parts of a guard. A gate is one of them: its terms have mutants of their own."""
    left, gates = conjuncts(action.guard), _gates(spec)
    found: dict[str, Sequence[Term]] = {}
    for name, gate in gates.items():
        if inside := _found_in(left, gate):
            found[f"gate {name}"] = inside
            left = [part for part in left if part not in inside]
    known = {gate.get_id(): f"gate {name}" for name, gate in gates.items()}
    return {**found, **{_text(part, known): [part] for part in left}}


def _less_guard(spec: Spec, action: Action, what: str) -> Action:
    how, _, text = what.partition(" ")
    parts = _guard(spec, action).get(text)
    if parts is None:
        return action
    gone = {part.get_id() for part in parts}
    kept = [part for part in conjuncts(action.guard) if part.get_id() not in gone]
    return replace(action, guard=conj(*kept, *(_weaker(part) for part in parts if how == "weaken")))


def _less_update(_spec: Spec, action: Action, what: str) -> Action:
    name = what.removesuffix(" unchanged")
    if name not in action.updates:
        return action
    return replace(action, updates={n: t for n, t in action.updates.items() if n != name})


# ---- gates


def _gates(spec: Spec) -> Mapping[str, BoolTerm]:
    """As they stand in actions, which are simplified."""
    return {name: z3.simplify(term) for name, term in spec.definitions.items()}


def _without_term(spec: Spec, mutant: Mutant) -> Spec:
    """The gate without one of its terms, in its definition and wherever an action asks for it."""
    how, _, text = mutant.what.partition(" ")
    found = _parts(spec.definitions[mutant.place]).get(text)
    if found is None:
        return spec
    (part,) = found
    instead = [_weaker(part)] if how == "weaken" else []
    gate = _gates(spec)[mutant.place]
    without, reads = _Rebuilding(gate, z3.simplify(part), instead), free_names(gate)

    def changed(action: Action) -> Action:
        if not reads <= action.guard_reads.union(*action.update_reads.values()):
            return action
        guard, updates = without(action.guard), {n: without(t) for n, t in action.updates.items()}
        same = guard.eq(action.guard) and all(t.eq(action.updates[n]) for n, t in updates.items())
        return action if same else replace(action, guard=guard, updates=updates)

    kept = [p for p in conjuncts(spec.definitions[mutant.place]) if not p.eq(part)]
    definitions = {**spec.definitions, mutant.place: conj(*kept, *instead)}
    return replace(_each(spec, changed), definitions=definitions)


class _Rebuilding:
    """Terms with the gate's part gone, wherever all of the gate is asked for. What terms share is rebuilt once."""

    def __init__(self, gate: BoolTerm, part: Term, instead: Sequence[Term]) -> None:
        self._gate, self._part, self._instead = gate, part, instead
        # The terms are kept, so that Z3's ids stay theirs.
        self._known: dict[int, tuple[Term, Term]] = {}

    def __call__(self, term: Term) -> Term:
        key = term.get_id()
        if key not in self._known:
            self._known[key] = (term, self._fresh(term))
        return self._known[key][1]

    def _fresh(self, term: Term) -> Term:
        if z3.is_and(term) and _found_in(conjuncts(term), self._gate):
            return conj(*(p for p in conjuncts(term) if not p.eq(self._part)), *self._instead)
        children = list(map(self, term.children()))
        if all(new.eq(old) for new, old in zip(children, term.children(), strict=True)):
            return term
        return conj(*children) if z3.is_and(term) else term.decl()(*children)


def _found_in(parts: Iterable[Term], gate: BoolTerm) -> list[Term]:
    """The gate's terms among these parts, where all of them are there."""
    wanted = {p.get_id() for p in conjuncts(gate)}
    found = [p for p in parts if p.get_id() in wanted]
    return found if len(wanted) > 1 and len(found) == len(wanted) else []


# ---- terms


def _parts(term: BoolTerm) -> _Parts:
    return {_text(part, {}): [part] for part in conjuncts(term)}


def _changes(parts: _Parts) -> Iterator[str]:
    """Each part dropped; one that waits for 0 also weakened, to 1 at most."""
    for text, terms in parts.items():
        yield f"drop {text}"
        if len(terms) == 1 and _is_zero(terms[0]):
            yield f"weaken {text}"


def _is_zero(term: Term) -> bool:
    return bool(z3.is_eq(term) and z3.is_int(term.arg(0)) and any(z3.is_int_value(side) for side in term.children()))


def _weaker(term: Term) -> BoolTerm:
    left, right = term.children()
    counter, number = (right, left) if z3.is_int_value(left) else (left, right)
    return counter <= number + 1


def _text(term: Term, known: Mapping[int, str]) -> str:
    return Infix(SYNTAX, lambda name: name, known).text(term)
