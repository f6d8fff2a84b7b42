"""What the spec allows between two lines of a trace, as a formula over the state before and the state after.

A line names what was done (`pass`, `pause`, …), so that between two lines there is one action of the spec, and before
and after it any number of moves of the device and the storage, of which no line tells:

    before -- moves* --> . -- the action, for some choices --> . -- moves* --> after

A repeated move is one step with a count: `x - n >= 0`, `x' = x - n`, `y' = y + n`. That this is what so many single
moves do holds for actions of the shape that `_moves` checks, and it refuses others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import z3

from checker.replay.differences import ARRIVES, CHUNKS, IDLES, LANDS, LOST, WAITS
from checker.replay.variants import protocol_with
from checker.translate import to_python
from engine_hooks.trace import STATE_FIELDS
from spec.errors import QuiesceError
from spec.facts import ACTORS, Configuration
from spec.profile import Profile
from spec.protocol import Protocol
from spec.split import split
from spec.terms import BoolTerm, NatTerm, Term, conj, constants, disj, implies, nat, neg, same, total
from spec.tla import Action, Sort, Spec, Variable

CARRIED = ("has_host", "prefetch_budget", "prefix_lost")
"""State variables that no line shows and that replay works out from line to line."""
_FREE = frozenset((
    "gate_closed", "late", "update_waiting", "mine_waiting", "mine_parked", "mine_running", "mine_abort",
))  # fmt: skip
"""State variables that no line shows and that may have any value at each line: the tokenizer's, and which request is
followed. `late` is chosen at each pause without a bound, so that it never holds back what a line says."""

NOTHING = ""
"""Stands for an action that changes no variable of a trace."""
_ACTIONS: Mapping[tuple[str, str], Sequence[str]] = {
    ("pass", ""): ("RunningPass", "PausedPass", "OthersPass", "WaitingPass"),
    ("arrive", ""): ("Arrive", "ArriveLate"),
    # Work that runs is only marked: it ends with its next result.
    ("abort", ""): (NOTHING, "AbortMine", "AbortAgain"),
    ("continue", ""): ("Continue",),
    ("flush", "granted"): ("FlushGranted",),
    ("flush", "refused"): ("FlushRefused",),
    ("defer", ""): ("DeferFlush",),
    ("deferred", "granted"): ("DeferredFlushGranted",),
    ("deferred", "timed_out"): ("DeferredFlushTimesOut",),
    ("update", "ok"): ("UpdateFlushed",),
    ("update", "unflushed"): ("UpdateRefused",),
    ("update", "kept"): ("UpdateUnflushed",),
}
"""What a line says was done, to the actions that this can be. A pause is that of its mode."""


class UnsupportedError(QuiesceError):
    """A trace of an engine, or a profile, that replay cannot judge. Remedy: in the text."""


@dataclass(frozen=True)
class Alternative:
    """One way in which a line can come about."""

    action: str
    engine: str
    """The engine's own function."""
    formula: BoolTerm
    """Over `x:NAME` before, `y:NAME` after, and names that begin with `e:`, which may have any value."""
    conditions: Sequence[BoolTerm]
    """What of the formula says nothing about the state after."""
    guard: Sequence[BoolTerm]
    """The parts of the action's guard, over the same names."""
    guard_texts: Sequence[str]
    """The same as a person reads them."""
    moves: Mapping[str, NatTerm]
    """Action outside the loop to how often it happens here."""
    differences: frozenset[str] = frozenset()
    """Known differences from the spec that this takes for granted."""


def before(name: str, sort: Sort) -> Term:
    """The variable in the state of the line before."""
    return z3.Bool(f"x:{name}") if sort is Sort.BOOL else z3.Int(f"x:{name}")


def after(name: str, sort: Sort) -> Term:
    """The variable in the state of this line."""
    return z3.Bool(f"y:{name}") if sort is Sort.BOOL else z3.Int(f"y:{name}")


@dataclass
class _Acted:
    """What an action demands: of what came before, its guard, and of its choices and results."""

    known: list[BoolTerm] = field(default_factory=list)
    guard: list[BoolTerm] = field(default_factory=list)
    results: list[BoolTerm] = field(default_factory=list)


class Relations:
    """Those of one profile, loop and storage, for every pause mode at once: an engine may use one after the other."""

    def __init__(self, profile: Profile, loop: str, storage: str, allowed: frozenset[str] = frozenset()) -> None:
        """`allowed`: the known differences from the spec that are let pass. Raises UnsupportedError."""
        self.profile, self.loop, self.storage = profile, loop, storage
        self.allowed = allowed
        self._specs: dict[str, Spec] = {}
        for mode in profile.configuration.mode:
            self._specs[mode] = self._spec(mode)
        first = self._specs[profile.configuration.mode[0]]
        if any(action.name == "UpdateAsked" for action in first.actions):
            raise UnsupportedError(
                f"profile {profile.name}: an update waits here (flush-waits): two steps, and one line of a trace"
            )
        self.variables = {v.name: v for v in first.variables if v.name in STATE_FIELDS or v.name in CARRIED}
        self.absent = tuple(name for name in STATE_FIELDS if name not in self.variables)
        """Fields of a line that this loop and storage have no variable for: 0 in every line."""
        self.initial = {name: first.init[name] for name in self.variables}
        self.honours_pause = profile.loops[loop].honours_pause

    @cached_property
    def _followed(self) -> Spec:
        configuration = Configuration(self.loop, self.profile.configuration.mode[0], self.storage)
        return Protocol(self.profile, configuration, follow_request=True).spec()

    def _spec(self, mode: str, differences: frozenset[str] = frozenset()) -> Spec:
        return protocol_with(differences)(self.profile, Configuration(self.loop, mode, self.storage)).spec()

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of the spec that a trace can show, each as coverage names it."""
        found: dict[str, None] = {}
        for mode, spec in self._specs.items():
            for action in spec.actions:
                shown = action.name != "Pause" or self.profile.pause[mode].sets_flag
                if shown and action.updates.keys() & self.variables.keys():
                    found[_named(action.name, mode)] = None
        return tuple(found)

    def of(self, do: str, how: str) -> tuple[Alternative, ...]:
        """The ways in which such a line can come about; none where the spec has no such step."""
        if do == "pause":
            spec = self._specs.get(how)
            if spec is None or not self.profile.pause[how].sets_flag:
                return ()
            return (self._alternative(spec, how, "Pause"),)
        return tuple(found for name in _ACTIONS.get((do, how), ()) for found in self._ways(name))

    def _ways(self, name: str) -> Iterator[Alternative]:
        """An action in each mode; once where it is the same in several, as most are."""
        known = set()
        for mode in sorted(self._specs, key=lambda m: not self.profile.pause[m].sets_flag):
            home = self._followed if name == "AbortMine" else self._specs[mode]
            action = next((a for a in home.actions if a.name == name), None)
            if action is None and name != NOTHING:
                continue
            kept = sorted(self.variables.keys() & action.updates.keys()) if action else []
            key = (action.guard.get_id(), *(action.updates[v].get_id() for v in kept)) if action else ()
            if key not in known:
                known.add(key)
                yield self._alternative(home, mode, name)
                for found in self._differing(name):
                    differing = self._spec(mode, found) if found & {WAITS, CHUNKS} else home
                    yield self._alternative(differing, mode, name, found)

    def _differing(self, name: str) -> Iterator[frozenset[str]]:
        """The known differences that are let pass and that an action can show, each alone, or two that go together."""
        loop = self.profile.loops[self.loop]
        runs = name in {"RunningPass", "OthersPass"}
        if runs and LOST in self.allowed and "prefix_lost" in self.variables:
            yield frozenset((LOST,))
        if runs and IDLES in self.allowed:
            yield frozenset((IDLES,))
        steps = loop.running if runs else loop.paused if name == "PausedPass" else ()
        if any(split(step)[0] == "reap" for step in steps):
            yield from (frozenset((one,)) for one in (WAITS, LANDS) if one in self.allowed)
        if "decode_queue" in steps and ARRIVES in self.allowed:
            yield frozenset((ARRIVES,))
            if LANDS in self.allowed:
                yield frozenset((ARRIVES, LANDS))
        if runs and CHUNKS in self.allowed and loop.micro_batches:
            yield frozenset((CHUNKS,))
            if WAITS in self.allowed:
                yield frozenset((CHUNKS, WAITS))

    def _alternative(self, spec: Spec, mode: str, name: str, differences: frozenset[str] = frozenset()) -> Alternative:
        moves = self._moves(spec)
        counts_before, counts_after = ({m.name: z3.Int(f"e:{m.name}{when}") for m in moves} for when in ("<", ">"))
        state: dict[str, Term] = {v: before(v, variable.sort) for v, variable in self.variables.items()}
        conditions: list[BoolTerm] = [count >= 0 for count in (*counts_before.values(), *counts_after.values())]
        self._move(state, moves, counts_before, conditions)
        if LANDS in differences:
            _go_on(state, "write_through_queued", "write_through_ready", conditions)
        if ARRIVES in differences:
            for source, target in _handed_over(self.profile):
                _go_on(state, source, target, conditions)
        acted = _Acted()
        if name != NOTHING and not self.profile.pause[mode].sets_flag and "paused" in state:
            conditions.append(neg(before("paused", Sort.BOOL)))
        if name != NOTHING:
            acted = self._act(spec.action(name), self._hidden(spec, spec.action(name)), state, differences)
        known = (*conditions, *acted.known)
        later: list[BoolTerm] = []
        self._move(state, moves, counts_after, later)
        ends = [same(after(v, self.variables[v].sort), state[v]) for v in self.variables]
        named = _named(name, mode)
        engine = "" if name == NOTHING else spec.action(name).engine
        times = {m.name: counts_before[m.name] + counts_after[m.name] for m in moves}
        texts = [] if name == NOTHING else [_text(part) for part in _parts(spec.action(name).guard)]
        formula = conj(*known, *later, *acted.guard, *acted.results, *ends)
        return Alternative(named, engine, formula, known, acted.guard, texts, times, differences)

    def _act(
        self, action: Action, hidden: Sequence[Variable], state: dict[str, Term], differences: frozenset[str]
    ) -> _Acted:
        """Take the action in `state`."""
        kept = frozenset(self.variables)
        choices = action.choices_for(kept)
        acted = _Acted()
        # An eviction takes a prefix as a flush does; only a flush is remembered.
        evicted = {"prefix_lost": z3.BoolVal(val=True)} if LOST in differences else {}
        pairs: list[tuple[Term, Term]] = [(self.variables[v].now, evicted.get(v, term)) for v, term in state.items()]
        pairs += [(c.term, z3.Int(f"e:{c.full_name}")) for c in choices]
        for variable in hidden:
            free = z3.Bool(f"e:{variable.name}") if variable.sort is Sort.BOOL else z3.Int(f"e:{variable.name}")
            pairs.append((variable.now, free))
            if variable.sort is Sort.NAT:
                acted.known.append(free >= 0)
            if variable.name == "gate_closed":
                acted.known.append(implies(state["paused"], free))

        def renamed(term: Term) -> Term:
            return z3.substitute(term, *pairs)

        acted.guard += [renamed(part) for part in _parts(action.guard)]
        results = {v: renamed(action.updates[v]) for v in kept & action.updates.keys()}
        acted.results += [renamed(choice.within) for choice in choices]
        if LOST in differences:
            results["prefix_lost"] = conj(before("prefix_lost", Sort.BOOL), results["waiting"] > 0)
        if IDLES in differences:
            idle = z3.Int("e:idle")
            acted.results += [idle >= 0, idle <= 1, disj(idle == 0, neg(results["last_batch"]))]
            results["forwards"] = total(results["forwards"], idle)
        state.update(results)
        acted.results += [results[v] >= 0 for v in results if self.variables[v].sort is Sort.NAT]
        return acted

    def _hidden(self, spec: Spec, action: Action) -> list[Variable]:
        """What the action reads besides the variables of a trace."""
        kept = frozenset(self.variables)
        reads = set(action.guard_reads).union(*(action.update_reads[v] for v in kept & action.updates.keys()))
        reads |= {n for c in action.choices_for(kept) for n in action.choice_reads[c.full_name]}
        hidden = [v for v in spec.variables if v.name in reads and v.name not in kept]
        unknown = sorted(v.name for v in hidden if v.name not in _FREE)
        if unknown:
            raise UnsupportedError(
                f"profile {self.profile.name}, action {action.name}: it depends on {', '.join(unknown)}, "
                "which a trace does not show"
            )
        return hidden

    def _moves(self, spec: Spec) -> list[Action]:
        """The actions outside the loop of which no line tells. Raises UnsupportedError where one cannot be counted."""
        found = []
        for action in spec.actions:
            if action.actor in ACTORS and (touched := self.variables.keys() & action.updates.keys()):
                steps = {v: z3.simplify(action.updates[v] - spec.variable(v).now) for v in touched}
                falls = [spec.variable(v).now > 0 for v, by in steps.items() if by.eq(nat(-1))]
                counted = all(by.eq(nat(1)) or by.eq(nat(-1)) for by in steps.values())
                if not counted or len(falls) != 1 or not _equal(action.guard, falls[0]):
                    raise UnsupportedError(f"profile {self.profile.name}: {action.name} is no plain move of an entry")
                found.append(action)
        return found

    def _move(
        self,
        state: dict[str, Term],
        moves: Iterable[Action],
        counts: Mapping[str, NatTerm],
        conditions: list[BoolTerm],
    ) -> None:
        """Every move so often as its count says, in the order of the ledgers' stages."""
        for move in moves:
            for v in self.variables.keys() & move.updates.keys():
                rises = z3.simplify(move.updates[v] - self.variables[v].now).eq(nat(1))
                state[v] = total(state[v], counts[move.name]) if rises else state[v] - counts[move.name]
                if not rises:
                    conditions.append(state[v] >= 0)


def _go_on(state: dict[str, Term], source: str, target: str, conditions: list[BoolTerm]) -> None:
    """Any number of entries goes on within the pass: from where it takes them to where it takes them again."""
    gone = z3.Int(f"e:gone:{source}")
    conditions += [gone >= 0, state[source] >= gone]
    state[source] -= gone
    state[target] = total(state[target], gone)


def _handed_over(profile: Profile) -> Iterator[tuple[str, str]]:
    """Counters of what the queue of a decode worker moves on, and of what it takes again later in the same call."""
    for name, ledger in profile.ledgers.items():
        for move in ledger.moves:
            if move.by == "decode_queue" and move.starts is not None and move.starts in profile.ledgers:
                for then in profile.ledgers[move.starts].moves:
                    if then.by == move.by:
                        yield f"{name}_{move.from_}", f"{move.starts}_{then.from_}"


def _named(action: str, mode: str) -> str:
    return f"{action}({mode})" if action == "Pause" else action


def _text(term: BoolTerm) -> str:
    text = to_python(term, lambda name: name)
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _parts(guard: BoolTerm) -> list[BoolTerm]:
    return list(guard.children()) if z3.is_and(guard) else [guard]


def _equal(left: BoolTerm, right: BoolTerm) -> bool:
    solver = z3.Solver()
    solver.add(disj(conj(left, neg(right)), conj(right, neg(left))))
    # Of counters: naturals.
    solver.add(*(c >= 0 for c in _integers(left)))
    return bool(solver.check() == z3.unsat)


def _integers(term: BoolTerm) -> list[NatTerm]:
    return [c for c in constants(term).values() if z3.is_int(c)]
