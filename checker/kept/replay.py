"""Kept finds on the spec as it is now: each is checked in full here, and is None where it does not hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import z3

from checker.kept.model import KeptClaim, KeptConfiguration, KeptProof, KeptStep, KeptStuck
from checker.proof.carry import closed, holds
from checker.proof.interpreter import Interpreter, State, Step
from checker.proof.obligations import Helpful, MalformedProofError, Proof
from checker.proof.rank import Component, component_of
from checker.proof.refute import Refutation, Stuck, stuck_of
from checker.proof.system import System
from checker.proof.unroll import Run
from spec.errors import SpecError
from spec.terms import BoolTerm, conj, free_names, neg, read_terms
from spec.tla import Claim, FinitelyOften, LeadsTo, Sort

_BINDS = re.compile(r"\(\s*(?:forall|exists|lambda)\b")


class _StaleError(Exception):
    """A kept find that speaks of what is no longer there."""


@dataclass(frozen=True)
class Finds:
    """What is kept of one configuration."""

    kept: KeptConfiguration

    def claim(self, key: str) -> KeptClaim | None:
        """How this claim was decided."""
        return next((c for c in self.kept.claims if c.key == key), None)

    def proof(self, found: KeptClaim, claim: Claim, system: System, walker: Interpreter) -> Proof | None:
        """The proof, if it is one of this claim here. Raises UndecidedError."""
        if found.proof is None or not _speaks(found.pending, claim, walker):
            return None
        try:
            proof = self._outer(found.proof, claim, system)
            return proof if holds(system, proof) else None
        except (_StaleError, MalformedProofError):
            return None

    def _outer(self, kept: KeptProof, claim: Claim, system: System) -> Proof:
        proof = Proof(claim, tuple(self._terms(system, kept.lemmas)), _rank(kept, system), _helpful(kept, system))
        nested = tuple((unit, _nested(inner, unit, proof, system)) for unit, inner in kept.recurrent)
        return Proof(claim, proof.lemmas, proof.rank, proof.helpful, nested)

    def _terms(self, system: System, places: Sequence[int]) -> list[BoolTerm]:
        if any(place not in range(len(self.kept.terms)) for place in places):
            raise _StaleError
        return _read(system, [self.kept.terms[place] for place in places])

    def refutation(self, found: KeptClaim, claim: Claim, system: System, interpreter: Interpreter) -> Refutation | None:
        """The counterexample; that its steps break the claim is left to `confirm`. Raises UndecidedError.

        The interpreter is of the whole spec.
        """
        states = None if found.run is None else _states(interpreter, found.run.steps)
        if found.run is None or states is None:
            return None
        steps = (Step(a, c, s) for (a, c), s in zip(found.run.steps, states, strict=True))
        # A counter of the event may have to come back: whether it has to, the search alone asks.
        counted = free_names(claim.event) if isinstance(claim, FinitelyOften) else frozenset[str]()
        run = Run(tuple(steps), found.run.loop_from, frozenset(found.run.ignored) - counted)
        if found.run.stuck is None:
            return Refutation(run, found.method)
        try:
            stuck = self._stuck(found.run.stuck, claim, system)
            interpreter.holds(stuck.region)
        # The last two are Python's, of a term that is nested too deeply.
        except (_StaleError, SpecError, RecursionError, SyntaxError):
            return None
        return Refutation(run, found.method, stuck) if closed(system, stuck, claim) else None

    def _stuck(self, kept: KeptStuck, claim: Claim, system: System) -> Stuck:
        flags = {f"~{v.name}" for v in system.spec.variables if v.sort is Sort.BOOL}
        if not isinstance(claim, LeadsTo) or not kept.atoms or not set(kept.atoms) <= system.spec.init.keys() | flags:
            raise _StaleError
        flag = None if kept.flag is None else _read(system, [kept.flag])[0]
        return stuck_of(system, claim, self._terms(system, kept.lemmas), kept.atoms, flag)


def _nested(kept: KeptProof, unit: str, outer: Proof, system: System) -> Proof:
    if not isinstance(outer.claim, LeadsTo) or unit not in system.spec.fair_units:
        raise _StaleError
    within = (conj(outer.claim.pending, neg(outer.claim.goal)), outer.rank)
    claim = LeadsTo(z3.BoolVal(val=True), system.spec.enabled(unit))
    return Proof(claim, outer.lemmas, _rank(kept, system), _helpful(kept, system), within=within)


def _rank(kept: KeptProof, system: System) -> tuple[Component, ...]:
    if not all(kept.rank):
        raise _StaleError
    try:
        return tuple(component_of(system.spec, parts) for parts in kept.rank)
    except SpecError:
        raise _StaleError from None


def _helpful(kept: KeptProof, system: System) -> tuple[Helpful, ...]:
    if any(h.unit not in system.spec.fair_units for h in kept.helpful):
        raise _StaleError
    return tuple(map(Helpful, (h.unit for h in kept.helpful), _read(system, [h.where for h in kept.helpful])))


def _read(system: System, texts: Sequence[str]) -> list[BoolTerm]:
    if not all(map(_is_one_term, texts)):
        raise _StaleError
    try:
        return read_terms(texts, (v.now for v in system.spec.variables))
    except z3.Z3Exception:
        raise _StaleError from None


def _is_one_term(text: str) -> bool:
    """Nothing that ends the assertion around it, and no quantifier, which the interpreter has not.

    What came after the end could declare constants: by the name of what is next, so that a lemma speaks of the step.
    """
    if _BINDS.search(text):
        return False
    depth = 0
    for mark in text:
        depth += (mark == "(") - (mark == ")")
        if depth < 0 or mark in '|";\\\0':
            return False
    return depth == 0


def _speaks(pending: Sequence[KeptStep] | None, claim: Claim, walker: Interpreter) -> bool:
    """A claim that something follows speaks of a state that some run reaches; any other claim, of every state."""
    if not isinstance(claim, LeadsTo):
        return True
    states = None if pending is None else _states(walker, pending)
    return states is not None and walker.holds(claim.pending)(states[-1] if states else walker.initial())


def _states(interpreter: Interpreter, steps: Iterable[KeptStep]) -> list[State] | None:
    """The state after each step; None where one of them cannot be taken."""
    state, states = interpreter.initial(), list[State]()
    for action, choices in steps:
        if action not in interpreter.actions or not interpreter.legal(state, action, choices):
            return None
        state = interpreter.apply(state, action, choices)
        states.append(state)
    return states
