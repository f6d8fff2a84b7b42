"""Names for what the choices and updates of one action share.

Where a part of an update is the new value of another variable, that variable primed is its name: `last_batch'` follows
`running'`. What is shared and is no new value gets a LET, named after the variable that it starts from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from checker.export.infix import Infix
from spec.terms import Term, free_names
from spec.tla import Action

# What is shorter than this is clearer where it stands than under a name.
_LONG = 32
# A range that is longer than this gets a name even where nothing else needs it.
_TOO_LONG = 60


@dataclass(frozen=True)
class Names:
    """What parts of an action are called."""

    owners: Mapping[int, str]
    """By Z3's id of a new value: the first variable that has it."""
    lets: Mapping[str, Term]
    """Definitions, those that others need first."""
    levels: Mapping[str, int]
    """How many choices must be made before a definition can be."""
    order: Sequence[str]
    """The updates, each after those that it refers to."""

    @property
    def lets_known(self) -> Mapping[int, str]:
        """The names of the definitions, by Z3's id."""
        return {term.get_id(): name for name, term in self.lets.items()}

    @property
    def known(self) -> Mapping[int, str]:
        """All names, by Z3's id."""
        return {**{key: f"{name}'" for key, name in self.owners.items()}, **self.lets_known}


def names_for(action: Action, infix: Infix) -> Names:
    """What to call the shared parts of an action; what `infix` has names for keeps them."""
    ranges = [term for c in action.choices for term in (c.low, c.high) if term is not None]
    counter = _Counter(infix.known.keys())
    for term in ranges:
        counter.count(term)
        counter.times[term.get_id()] += len(infix.text(term)) > _TOO_LONG
    owners = _owners(action, infix, counter.terms)
    for name, term in action.updates.items():
        counter.closed = {*infix.known, *(key for key, owner in owners.items() if owner != name)}
        counter.count(term)
    shared = [t for k, t in counter.terms.items() if counter.times[k] > 1 and k not in owners]
    lets: dict[str, Term] = {}
    for term in sorted(shared, key=lambda term: _level(term, action)):
        if len(infix.text(term)) >= _LONG:
            lets[_fresh(term, action, lets)] = term
    levels = {name: _level(term, action) for name, term in lets.items()}
    return Names(owners, lets, levels, list(_ordered(action, owners)))


class _Counter:
    """How often each part is written, where a part that is met again is written by name. Inner parts come first."""

    def __init__(self, closed: Collection[int]) -> None:
        self.times: Counter[int] = Counter()
        self.terms: dict[int, Term] = {}
        self.closed = closed

    def count(self, term: Term) -> None:
        key = term.get_id()
        if key in self.closed or not term.num_args():
            return
        self.times[key] += 1
        if key in self.terms:
            return
        for child in term.children():
            self.count(child)
        self.terms[key] = term


def _owners(action: Action, infix: Infix, elsewhere: Collection[int]) -> dict[int, str]:
    """New values that are worth a reference. What a range needs is none: there nothing is assigned yet."""
    owners: dict[int, str] = {}
    for name, term in action.updates.items():
        known = term.get_id() in elsewhere or term.get_id() in infix.known
        if term.num_args() and not known and len(infix.text(term)) >= _LONG // 2:
            owners.setdefault(term.get_id(), name)
    return owners


def _level(term: Term, action: Action) -> int:
    reads = free_names(term)
    return max((i for i, choice in enumerate(action.choices, 1) if choice.full_name in reads), default=0)


def _fresh(term: Term, action: Action, lets: Mapping[str, Term]) -> str:
    """A name after the variable in the term that the action changes, else the shortest name in it."""
    reads = free_names(term)
    base = min(reads, key=lambda n: (n not in action.updates, len(n), n)).rsplit(".", 1)[-1]
    kind = ("so_far" if base in action.updates else "count") if z3.is_int(term) else "holds"
    names = [f"{base}_{kind}", *(f"{base}_{kind}_{n}" for n in range(2, len(lets) + 3))]
    return next(name for name in names if name not in lets)


def _ordered(action: Action, owners: Mapping[int, str]) -> Iterator[str]:
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name not in done:
            done.add(name)
            for other in _refers(action.updates[name], name, owners):
                yield from visit(other)
            yield name

    for name in action.updates:
        yield from visit(name)


def _refers(term: Term, name: str, owners: Mapping[int, str]) -> Iterator[str]:
    """The variables whose new values a new value contains."""
    stack, seen = [term], set[int]()
    while stack:
        node = stack.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        owner = owners.get(node.get_id(), name)
        if owner != name:
            yield owner
        else:
            stack.extend(node.children())
