"""Three ways to read one spec agree on random states: Z3's terms, the Python made of them, and slices of the spec."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import pytest
import z3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checker.proof.interpreter import Interpreter, Value
from checker.proof.obligations import Proof, obligations
from checker.proof.system import System, check_naturals
from spec.cone import Cones
from spec.profile import Configuration, bundled_profiles, load_profile
from spec.properties import catalogue
from spec.protocol import Protocol
from spec.terms import Term
from spec.tla import Action, Always, EachStep, LeadsTo, Sort, Spec

PLACES = ["normal retract file", "overlap retract file", "normal abort file", "overlap in_place none"]
SLOW = settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@cache
def _protocol(profile: str, place: str, *, follow: bool) -> Protocol:
    loop, mode, storage = place.split()
    return Protocol(load_profile(profile), Configuration(loop, mode, storage), follow_request=follow)


@cache
def _interpreter(profile: str, place: str, *, follow: bool) -> Interpreter:
    return Interpreter(_protocol(profile, place, follow=follow).spec())


def _literal(value: Value) -> Term:
    return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)


def _reads(
    spec: Spec, state: Mapping[str, Value], action: Action, picked: Mapping[str, int]
) -> list[tuple[Term, Term]]:
    pairs = [(v.now, _literal(state[v.name])) for v in spec.variables]
    return pairs + [(c.term, z3.IntVal(picked[c.term.decl().name()])) for c in action.choices]


def _value(term: Term) -> Value:
    term = z3.simplify(term)
    return term.as_long() if z3.is_int_value(term) else z3.is_true(term)


def _random_state(spec: Spec, rng: random.Random) -> dict[str, Value]:
    return {v.name: rng.random() < 0.5 if v.sort is Sort.BOOL else rng.choice((0, 0, 1, 2, 5)) for v in spec.variables}


@pytest.mark.parametrize("place", PLACES)
@given(seed=st.integers(0, 2**32))
@SLOW
def test_python_of_each_action_is_what_z3_says(place: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    runner = _interpreter("sglang-0.5.23", place, follow=True)
    spec = runner.spec
    state = _random_state(spec, rng)
    for action in spec.actions:
        picked = runner.witness(state, action.name)
        picked = {name: value + rng.choice((0, 0, 1)) for name, value in picked.items()}
        pairs = _reads(spec, state, action, picked)
        where = z3.simplify(z3.substitute(z3.And(action.guard, action.where), *pairs))
        assert runner.legal(state, action.name, picked) == z3.is_true(where), action.name
        after = runner.apply(state, action.name, picked)
        told = {name: _value(z3.substitute(update, *pairs)) for name, update in action.updates.items()}
        assert after == {**state, **told}, action.name


@pytest.mark.parametrize("place", PLACES)
@given(seed=st.integers(0, 2**32))
@SLOW
def test_witness_changes_the_state_exactly_where_z3_says_enabled(place: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    runner = _interpreter("sglang-0.5.23", place, follow=False)
    state = _random_state(runner.spec, rng)
    pairs = [(v.now, _literal(state[v.name])) for v in runner.spec.variables]
    for action in runner.spec.actions:
        enabled = z3.is_true(z3.simplify(z3.substitute(action.enabled, *pairs)))
        assert runner.changes(state, action.name) == enabled, action.name


def _terms(protocol: Protocol, spec: Spec) -> list[list[Term]]:
    found: list[list[Term]] = []
    for prop in catalogue().values():
        if prop.needs_request or prop.applies(protocol) is not None:
            continue
        for part in prop.claims(protocol, spec):
            claim = part.claim
            if isinstance(claim, Always | EachStep):
                found.append([claim.holds])
            else:
                found.append([claim.pending, claim.goal] if isinstance(claim, LeadsTo) else [claim.during, claim.event])
    return found


@cache
def _slices(place: str) -> list[Interpreter]:
    protocol = _protocol("sglang-0.5.23", place, follow=False)
    spec = _interpreter("sglang-0.5.23", place, follow=False).spec
    by_names = {}
    for terms in _terms(protocol, spec):
        piece = Cones(spec).of(*terms)
        by_names[frozenset(v.name for v in piece.variables)] = piece
    return [Interpreter(piece) for piece in by_names.values()]


def _choose(runner: Interpreter, state: Mapping[str, Value], name: str, rng: random.Random) -> dict[str, int]:
    return runner._pick(state, name, rng)


@pytest.mark.parametrize("place", ["normal retract file", "overlap abort none"])
@given(seed=st.integers(0, 2**32))
@SLOW
def test_run_of_the_whole_is_a_run_of_each_slice(place: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    whole = _interpreter("sglang-0.5.23", place, follow=False)
    state = whole.initial()
    for _ in range(25):
        name = rng.choice([n for n in whole.actions if whole.enabled(state, n)])
        picked = _choose(whole, state, name, rng)
        assert whole.legal(state, name, picked)
        after = whole.apply(state, name, picked)
        for piece in _slices(place):
            here, there = ({n: s[n] for n in piece.spec.init} for s in (state, after))
            if name in piece.actions:
                assert piece.legal(here, name, picked), name
                assert piece.apply(here, name, picked) == there, name
            else:
                assert name in piece.spec.dropped
                assert here == there, name
        state = after


@pytest.mark.parametrize("place", ["normal retract file", "overlap abort none"])
@given(seed=st.integers(0, 2**32))
@SLOW
def test_run_of_a_slice_is_a_run_of_the_whole(place: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    whole = _interpreter("sglang-0.5.23", place, follow=False)
    piece = rng.choice(_slices(place))
    state, mirror = whole.initial(), piece.initial()
    for _ in range(25):
        able = [n for n in piece.actions if piece.enabled(mirror, n)]
        if not able:
            break
        name = rng.choice(able)
        picked = _choose(piece, mirror, name, rng)
        mirror = piece.apply(mirror, name, picked)
        full: dict[str, int] = {}
        for choice in whole.actions[name].choices:
            full[choice.name] = picked[choice.name] if choice.name in picked else int(choice.witness(state, full))
        assert whole.legal(state, name, full), name
        state = whole.apply(state, name, full)
        assert {n: state[n] for n in mirror} == mirror, name


@pytest.mark.parametrize("profile", bundled_profiles())
def test_choices_have_values_and_counters_are_natural_everywhere(profile: str) -> None:
    for configuration in load_profile(profile).configurations():
        spec = Protocol(load_profile(profile), configuration).spec()
        system = System(spec)
        check_naturals(system, [])
        ranges = [o for o in obligations(system, Proof(Always(z3.BoolVal(val=True)), ())) if o.number == 0]
        assert len(ranges) == sum(len(a.choices) for a in spec.actions)
        empty = [o.about for o in ranges if not system.impossible(system.solver(), o.formula)]
        assert empty == [], (profile, configuration)
