"""A small TLA-style vocabulary over Z3.

A spec has typed variables, an initial state, actions and claims. An action is written guard first, updates next; what
it does not assign is unchanged. Counters are unbounded naturals: nothing here bounds how much is in flight.


    def DeviceDone(self, s: Draft) -> None:
        s.when(s.submitted > 0)
        s.submitted -= 1
        s.ready += 1

A choice (`s.choose`) is a number that the environment picks. The guard may not read one, and each choice has a witness,
so that ENABLED needs no quantifier: the guard implies that the witness lies in its range (obligation 0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

import z3

from spec.errors import SpecError
from spec.terms import NEXT, BoolTerm, NatTerm, Renaming, Term, conj, disj, free_names, neg, same


class Sort(Enum):
    """What a variable ranges over."""

    BOOL = "bool"
    NAT = "nat"


class Fairness(Enum):
    """What an action is assumed to do if it stays enabled (WEAK), or is enabled again and again (STRONG)."""

    NONE = "none"
    WEAK = "weak"
    STRONG = "strong"


@dataclass(frozen=True)
class Variable:
    """One state variable; `ghost` says that the engine has no such field and only claims read it."""

    name: str
    sort: Sort
    ghost: bool = False

    @cached_property
    def now(self) -> Term:
        """The variable in this state."""
        return z3.Bool(self.name) if self.sort is Sort.BOOL else z3.Int(self.name)

    @cached_property
    def next(self) -> Term:
        """The variable in the next state."""
        name = self.name + NEXT
        return z3.Bool(name) if self.sort is Sort.BOOL else z3.Int(name)


@dataclass(frozen=True)
class Choice:
    """A number that the environment picks: `low <= term <= high` (no upper bound where `high` is None)."""

    name: str
    term: NatTerm
    low: NatTerm
    high: NatTerm | None
    witness: NatTerm
    meaning: str

    @cached_property
    def full_name(self) -> str:
        """The name of the term: the action's and its own."""
        return str(self.term.decl().name())

    @property
    def within(self) -> BoolTerm:
        """The choice lies in its range."""
        return self.term >= self.low if self.high is None else conj(self.term >= self.low, self.term <= self.high)


@dataclass(frozen=True)
class Action:
    """One atomic step. `updates` holds only what changes; all else is unchanged."""

    name: str
    actor: str
    engine: str
    """The engine's own function that this models, as `file:function`."""
    guard: BoolTerm
    choices: tuple[Choice, ...]
    updates: Mapping[str, Term]
    fairness: Fairness = Fairness.NONE
    unit: str = ""
    """Fairness is assumed of the unit, WF(A or B), where several actions are what one actor does next: the two passes
    of one event loop. Empty: of the action alone."""
    help: bool = False
    """Whether it is help from outside (continue, abort, another request): what a stuck region may leave by."""
    whole: Action | None = field(default=None, repr=False, compare=False)
    """In a slice: the action that this is a part of."""

    @property
    def where(self) -> BoolTerm:
        """All choices lie in their ranges."""
        return conj(*(choice.within for choice in self.choices))

    def at_witness(self, term: Term) -> Term:
        """`term` with each choice replaced by its witness."""
        return _at_witness(term, self.choices)

    @cached_property
    def enabled(self) -> BoolTerm:
        """The guard holds and the witness changes the state: a lower bound of TLA's ENABLED <<A>>_vars."""
        return conj(self.guard, disj(*self.changes.values()))

    @cached_property
    def changes(self) -> Mapping[str, BoolTerm]:
        """For each updated variable, that it changes where each choice is its witness."""
        whole = self.whole
        return {
            name: whole.changes[name]
            if whole and whole.updates.get(name) is term
            else neg(same(_at_witness(term, self.choices_for({name})), now))
            for (name, now, _), term in zip(self._updated, self.updates.values(), strict=True)
        }

    @cached_property
    def relation(self) -> BoolTerm:
        """The action over now and next: what it does not update is not mentioned."""
        return conj(self.guard, self.where, *(same(after, self.updates[name]) for name, _, after in self._updated))

    @cached_property
    def renaming(self) -> Renaming:
        """Each variable that it updates, from now to next."""
        return Renaming((now, after) for _, now, after in self._updated)

    @property
    def _updated(self) -> Iterable[tuple[str, Term, Term]]:
        for name, term in self.updates.items():
            variable = Variable(name, Sort.BOOL if z3.is_bool(term) else Sort.NAT)
            yield name, variable.now, variable.next

    @cached_property
    def guard_reads(self) -> frozenset[str]:
        """Names that the guard reads."""
        if self.whole and self.whole.guard is self.guard:
            return self.whole.guard_reads
        return free_names(self.guard)

    @cached_property
    def update_reads(self) -> Mapping[str, frozenset[str]]:
        """For each updated variable, the names (choices included) that its new value reads."""
        whole = self.whole
        return {
            name: whole.update_reads[name] if whole and whole.updates.get(name) is term else free_names(term)
            for name, term in self.updates.items()
        }

    @cached_property
    def influences(self) -> Mapping[str, frozenset[str]]:
        """For each updated variable, the names that its new value and the ranges of its choices read."""
        reads = self.choice_reads
        return {
            name: found.union(*(reads[c.full_name] for c in self.choices_for({name})))
            for name, found in self.update_reads.items()
        }

    def choices_for(self, names: AbstractSet[str]) -> tuple[Choice, ...]:
        """The choices that the new values of these variables depend on, through the ranges of others too.

        A range is never empty (obligation 0), so that a choice which is not used restricts nothing.
        """
        reads = set[str]().union(*(self.update_reads[n] for n in names & self.updates.keys()))
        used: list[Choice] = []
        for choice in reversed(self.choices):
            if choice.full_name in reads:
                used.append(choice)
                reads |= self.choice_reads[choice.full_name]
        return tuple(reversed(used))

    @cached_property
    def choice_reads(self) -> Mapping[str, frozenset[str]]:
        """For each choice, the names that its range and witness read."""
        reads = {c.full_name: c for c in self.choices}
        whole = {id(c) for c in self.whole.choices} if self.whole else set()
        return {
            name: self.whole.choice_reads[name]
            if self.whole and id(c) in whole
            else free_names(c.within) | free_names(c.witness)
            for name, c in reads.items()
        }


def _at_witness(term: Term, choices: Sequence[Choice]) -> Term:
    for choice in reversed(choices):
        term = z3.substitute(term, (choice.term, choice.witness))
    return term


@dataclass(frozen=True)
class Always:
    """A predicate of every reachable state."""

    holds: BoolTerm


@dataclass(frozen=True)
class EachStep:
    """A predicate of every reachable step, over now and next; `but` names actions that it does not speak of."""

    holds: BoolTerm
    but: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LeadsTo:
    """`pending ~> goal` under the fairness of the actions."""

    pending: BoolTerm
    goal: BoolTerm


@dataclass(frozen=True)
class FinitelyOften:
    """While `during` holds, the steps with `event` (over now and next) are finite in number; needs no fairness."""

    during: BoolTerm
    event: BoolTerm


Claim = Always | EachStep | LeadsTo | FinitelyOften


@dataclass(frozen=True)
class Spec:
    """A state machine: variables, one initial state, actions."""

    name: str
    variables: tuple[Variable, ...]
    init: Mapping[str, int | bool]
    actions: tuple[Action, ...]
    definitions: Mapping[str, BoolTerm] = field(default_factory=dict)
    """Named state predicates, e.g. the gates."""
    dropped: frozenset[str] = frozenset()
    """In a slice: the actions that change nothing in it. They are stuttering steps here."""

    def __post_init__(self) -> None:
        """Raises SpecError where two actions have one name: one would stand for both in each proof."""
        names = Counter(action.name for action in self.actions)
        twice = [name for name, times in names.items() if times > 1]
        if twice:
            raise SpecError(f"{self.name}: two actions are named {twice[0]!r}; each needs a name of its own")

    def variable(self, name: str) -> Variable:
        """The variable of this name. Raises SpecError where there is none."""
        for variable in self.variables:
            if variable.name == name:
                return variable
        raise SpecError(f"{self.name}: no variable {name!r}")

    def action(self, name: str) -> Action:
        """The action of this name. Raises SpecError where there is none."""
        for action in self.actions:
            if action.name == name:
                return action
        raise SpecError(f"{self.name}: no action {name!r}")

    @cached_property
    def initial(self) -> BoolTerm:
        """Init, as a term."""
        return conj(
            *(
                v.now == z3.BoolVal(x) if isinstance(x := self.init[v.name], bool) else v.now == x
                for v in self.variables
            )
        )

    @cached_property
    def naturals(self) -> BoolTerm:
        """TypeOK: every counter is a natural number."""
        return conj(*(v.now >= 0 for v in self.variables if v.sort is Sort.NAT))

    def primed(self, term: Term) -> Term:
        """`term` in the next state."""
        return z3.substitute(term, *((v.now, v.next) for v in self.variables))

    def step(self, action: Action) -> BoolTerm:
        """The action as a relation between now and next, its choices free."""
        frame = [v.next == action.updates.get(v.name, v.now) for v in self.variables]
        return conj(action.guard, action.where, *frame)

    @cached_property
    def fair_units(self) -> Mapping[str, tuple[Action, ...]]:
        """The actions that fairness is assumed of, by unit; all actions of a unit have the same fairness."""
        units: dict[str, tuple[Action, ...]] = {}
        for action in self.actions:
            if action.fairness is not Fairness.NONE:
                name = action.unit or action.name
                units[name] = (*units.get(name, ()), action)
                if units[name][0].fairness is not action.fairness:
                    raise SpecError(f"{self.name}: the actions of unit {name} differ in fairness")
        return units

    @cached_property
    def _enabled(self) -> dict[str, BoolTerm]:
        return {unit: disj(*(action.enabled for action in actions)) for unit, actions in self.fair_units.items()}

    def enabled(self, unit: str) -> BoolTerm:
        """Some action of the unit is enabled."""
        return self._enabled[unit]

    def without_fairness(self, name: str) -> Spec:
        """The same spec with one action no longer fair."""
        actions = tuple(replace(a, fairness=Fairness.NONE) if a.name == name else a for a in self.actions)
        return replace(self, actions=actions)


def stuttering(spec: Spec, term: Term) -> Term:
    """A term over now and next, read for a step that changes nothing."""
    return z3.substitute(term, *((v.next, v.now) for v in spec.variables))
