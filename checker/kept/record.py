"""Searches everything of a bundled profile and keeps what is found. `python -m checker.kept` writes the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import z3

from checker import workers
from checker.decide.decided import Decided
from checker.hints import Hints
from checker.kept.model import (
    SCHEMA,
    Kept,
    KeptClaim,
    KeptConfiguration,
    KeptHelp,
    KeptProof,
    KeptRun,
    KeptStep,
    KeptStuck,
)
from checker.proof.carry import closed, holds
from checker.proof.interpreter import Step
from checker.proof.obligations import Proof, obligations
from checker.proof.refute import Stuck, stuck_of
from checker.proof.shrink import shortest
from checker.proof.system import Limits, System
from checker.subject import Slice, Subject
from checker.verify import Request, chains, in_worker, results_of
from checker.workbench import Workbench
from spec.profile import Configuration
from spec.terms import BoolTerm, disj, implies
from spec.tla import LeadsTo


def search(request: Request) -> Kept:
    """Everything that a search finds, each lemma needed."""
    configurations = request.profile.configurations(request.loops, request.modes)
    # In processes of their own, as `verify` has them: what is found depends on what Z3 was asked before.
    found = workers.results(partial(in_worker, chain_of, request), chains(request, configurations), request.workers)
    places = {(c.loop, *c.as_dict().values()): i for i, c in enumerate(configurations)}
    ordered = sorted(found, key=lambda c: places[c.loop, *c.configuration.values()])
    profile = request.profile
    return Kept(SCHEMA, profile.name, profile.applied, f"z3 {z3.get_version_string()}", request.seed, ordered)


def chain_of(request: Request, configurations: Sequence[Configuration]) -> Iterator[KeptConfiguration]:
    """The same for configurations of one loop, one after the other."""
    hints: Hints[Decided] = Hints()
    # All is decided before anything is made smaller: a search must not depend on its being recorded.
    for one in [_decided(request, configuration, hints) for configuration in configurations]:
        table = _Table()
        claims = [c for key, d in one.decided.items() for c in _claim(key, d, one.subjects, table)]
        yield KeptConfiguration(one.configuration.loop, one.configuration.as_dict(), table.texts, claims)


@dataclass(frozen=True)
class _Decisions:
    """How the claims of one configuration were decided."""

    configuration: Configuration
    decided: Mapping[str, Decided]
    subjects: Sequence[Subject]


def _decided(request: Request, configuration: Configuration, hints: Hints[Decided]) -> _Decisions:
    bench, before = Workbench(request.profile, configuration, Limits(seed=request.seed), hints), dict(hints.decided)
    results_of(request, bench)
    subjects = [bench.subject(follow_request=follow) for follow in (False, True)]
    fresh = {key: found for key, found in hints.decided.items() if before.get(key) is not found}
    return _Decisions(configuration, fresh, subjects)


@dataclass
class _Table:
    """The terms of one configuration, each once."""

    places: dict[str, int] = field(default_factory=dict)

    def __call__(self, terms: Iterable[BoolTerm]) -> list[int]:
        return [self.places.setdefault(_text(term), len(self.places)) for term in terms]

    @property
    def texts(self) -> list[str]:
        return list(self.places)


def _text(term: BoolTerm) -> str:
    return " ".join(term.sexpr().split())


def _claim(key: str, decided: Decided, subjects: Iterable[Subject], table: _Table) -> Iterator[KeptClaim]:
    piece = next((s for one in subjects for s in one.slices.values() if s.system is decided.system), None)
    if piece is None:
        return
    if decided.proof is not None:
        pending = _pending(decided.proof, piece)
        if pending is not None or not isinstance(decided.proof.claim, LeadsTo):
            proof = _proof(_needed_by_proof(piece.system, decided.proof), table)
            yield KeptClaim(key, decided.method, decided.carried, proof=proof, pending=pending)
    elif decided.refutation is not None and decided.confirmed is not None:
        run, stuck = decided.refutation.run, decided.refutation.stuck
        kept = None
        if stuck is not None and isinstance(decided.part.claim, LeadsTo):
            kept = _stuck(piece.system, decided.part.claim, stuck, table)
        steps = _steps(decided.confirmed.steps)
        yield KeptClaim(
            key, decided.method, decided.carried, run=KeptRun(steps, run.loop_from, sorted(run.ignored), kept)
        )


def _steps(steps: Iterable[Step]) -> list[KeptStep]:
    return [(step.action, dict(step.choices)) for step in steps]


def _pending(proof: Proof, piece: Slice) -> list[KeptStep] | None:
    """A short run into a pending state; None where no random run meets one."""
    if not isinstance(proof.claim, LeadsTo):
        return None
    pending = piece.walker.holds(proof.claim.pending)
    if pending(piece.walker.initial()):
        return []
    runs = chain(piece.samples.runs, piece.more_runs)
    run = shortest(piece.walker, runs, lambda step, _before: pending(step.state), enough=1)
    return None if run is None else _steps(run)


def _proof(proof: Proof, table: _Table) -> KeptProof:
    rank = [[(factor, name) for factor, name in c.parts] for c in proof.rank]
    helpful = [KeptHelp(h.unit, _text(h.where)) for h in proof.helpful]
    nested = [(unit, _proof(inner, table)) for unit, inner in proof.recurrent]
    return KeptProof(table(proof.lemmas), rank, helpful, nested)


def _needed_by_proof(system: System, proof: Proof) -> Proof:
    """The same proof with no lemma that it does without, and no rank where what helps reaches the goal at once."""
    if proof.rank and not proof.recurrent and holds(system, replace(proof, rank=())):
        proof = replace(proof, rank=())
    marks = _marks(proof.lemmas)
    guarded = _over(proof, tuple(map(implies, marks, proof.lemmas)))
    solver = system.solver(disj(*(o.formula for o in obligations(system, guarded))))
    return _over(proof, _fewest(solver, marks, proof.lemmas))


def _over(proof: Proof, lemmas: tuple[BoolTerm, ...]) -> Proof:
    nested = tuple((unit, _over(inner, lemmas)) for unit, inner in proof.recurrent)
    return replace(proof, lemmas=lemmas, recurrent=nested)


def _stuck(system: System, claim: LeadsTo, stuck: Stuck, table: _Table) -> KeptStuck:
    """The region with no lemma that it does without."""
    lemmas = stuck.lemmas
    for lemma in stuck.lemmas:
        fewer = tuple(one for one in lemmas if one is not lemma)
        if closed(system, stuck_of(system, claim, fewer, stuck.atoms, stuck.flag), claim):
            lemmas = fewer
    return KeptStuck(table(lemmas), list(stuck.atoms), None if stuck.flag is None else _text(stuck.flag))


def _marks(lemmas: Sequence[BoolTerm]) -> list[BoolTerm]:
    return [z3.Bool(f"lemma:{place}") for place in range(len(lemmas))]


def _fewest(solver: z3.Solver, marks: Sequence[BoolTerm], lemmas: Sequence[BoolTerm]) -> tuple[BoolTerm, ...]:
    """Lemmas go by halves, then by smaller parts, then one by one, while all obligations hold without them."""
    needed, size = list(range(len(marks))), max(1, len(marks) // 2)
    while size:
        for start in range(0, len(needed), size):
            fewer = needed[:start] + needed[start + size :]
            if _hold(solver, marks, fewer):
                needed = fewer
                break
        else:
            size //= 2
    return tuple(lemmas[place] for place in needed)


def _hold(solver: z3.Solver, marks: Sequence[BoolTerm], needed: Sequence[int]) -> bool:
    # A lemma whose mark is off says nothing, neither before a step nor after it.
    chosen_marks = set(needed)
    answers = (mark if place in chosen_marks else z3.Not(mark) for place, mark in enumerate(marks))
    return bool(solver.check(*answers) == z3.unsat)
