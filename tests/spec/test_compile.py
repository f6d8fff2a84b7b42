"""What the engine gets of the spec: up to date, and equal to the Z3 terms on every state."""

from types import SimpleNamespace

import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from checker import compile as compiler
from checker.workbench import Workbench
from engine_hooks.compiled import StuckKey, compiled_profile
from spec.profile import Configuration, load_profile
from spec.properties import chosen
from spec.terms import NEXT, conj, implies

PROFILE = compiled_profile("sglang", "0.5.23")
SUBJECT = Workbench(load_profile("sglang-0.5.23"), Configuration("overlap", "retract", "file")).subject(
    follow_request=False
)
FLAGS = {"paused", "flush_wanted", "deferred_pending", "last_batch", "result_pending"}


def states():
    def one(name):
        return st.booleans() if name in FLAGS else st.integers(0, 3)

    return st.fixed_dictionaries({name: one(name) for name in PROFILE.variables})


def value(term, state, after=None):
    pairs = []
    for suffix, values in (("", state), (NEXT, after or {})):
        for name, v in values.items():
            constant = z3.Bool(name + suffix) if isinstance(v, bool) else z3.Int(name + suffix)
            pairs.append((constant, z3.BoolVal(v) if isinstance(v, bool) else z3.IntVal(v)))
    return z3.is_true(z3.simplify(z3.substitute(term, *pairs)))


def test_the_generated_files_are_up_to_date():
    assert compiler.main(["--check"]) == 0


def test_an_engine_without_a_profile_has_none():
    assert compiled_profile("sglang", "0.5.22") is None


@settings(max_examples=200, deadline=None)
@given(states())
def test_gates_are_the_terms_of_the_spec(state):
    for name, gate in PROFILE.gates.items():
        assert gate(SimpleNamespace(**state)) == value(SUBJECT.spec.definitions[name], state)


@settings(max_examples=200, deadline=None)
@given(states())
def test_a_gate_is_closed_exactly_where_something_blocks_it(state):
    seen = SimpleNamespace(**state)
    for name, gate in PROFILE.gates.items():
        assert gate(seen) == (not any(blocks(seen) for blocks in PROFILE.blockers[name].values()))


@settings(max_examples=200, deadline=None)
@given(states())
def test_a_stuck_state_is_pending_and_its_gate_is_closed(state):
    seen = SimpleNamespace(**state)
    worker = any(number for name, number in state.items() if name.startswith("pd_"))
    for key, regions in PROFILE.stuck.items():
        for stuck in regions.values():
            # The gate of a worker waits for its queues too; compiled is the one of an engine that is both.
            closed = (worker and key.loop not in ("normal", "overlap")) or not PROFILE.gates["flush"](seen)
            assert not stuck(seen) or (seen.paused and seen.flush_wanted and closed)


@settings(max_examples=200, deadline=None)
@given(states())
def test_a_worker_is_stuck_by_its_queues_too_unless_they_are_drained(state):
    seen = SimpleNamespace(**{**state, "paused": True, "flush_wanted": True})
    mine = {"prefill": ("pd_bootstrap", "pd_inflight"), "decode": ("pd_prealloc", "pd_transfer", "pd_release")}
    for kind, ledgers in mine.items():
        entries = sum(number for name, number in state.items() if name.rpartition("_")[0] in ledgers)
        for loop in (f"{kind}-normal", f"{kind}-overlap"):
            reaped = PROFILE.stuck[StuckKey(loop, "retract", "none", ("reap-while-paused",))]["paused-flush-succeeds"]
            assert reaped(seen) == (entries + seen.load_back_queued > 0)
            both = ("pd-drains-while-paused", "reap-while-paused")
            assert PROFILE.stuck[StuckKey(loop, "retract", "none", both)] == {}


@settings(max_examples=200, deadline=None)
@given(states())
def test_without_a_remedy_paused_wanted_and_an_entry_is_stuck(state):
    seen = SimpleNamespace(**{**state, "paused": True, "flush_wanted": True})
    stuck = PROFILE.stuck[StuckKey("overlap", "retract", "file")]["paused-flush-succeeds"]
    entries = sum(getattr(seen, n) for ledger in PROFILE.ledgers.values() for s in ledger.stages.values() for n in s)
    assert stuck(seen) == (entries > 0)


def test_the_remedy_leaves_no_stuck_region():
    own = [key for key in PROFILE.stuck if key.loop in ("normal", "overlap")]
    plain = [key for key in own if not key.remedies]
    repaired = [key for key in own if key.remedies == ("reap-while-paused",)]
    assert len(plain) == len(repaired) == 4
    assert all(PROFILE.stuck[key] for key in plain)
    assert not any(PROFILE.stuck[key] for key in repaired)


@settings(max_examples=200, deadline=None)
@given(states(), states())
def test_the_step_predicate_is_the_claim(before, after):
    claim = next(iter(chosen(["no-new-lookup-while-paused"])[0].claims(SUBJECT.protocol, SUBJECT.spec))).claim
    check = PROFILE.steps["no-new-lookup-while-paused"]
    assert check(SimpleNamespace(**before), SimpleNamespace(**after)) == value(claim.holds, before, after)


@settings(max_examples=200, deadline=None)
@given(states())
def test_the_state_predicate_is_the_claim_where_a_deferred_flush_waits(state):
    gates, now = SUBJECT.spec.definitions, SUBJECT.protocol.now
    claim = implies(conj(now.deferred_pending, gates["flush"]), gates["deferred_flush"])
    assert PROFILE.always["deferred-flush-agrees"](SimpleNamespace(**state)) == value(claim, state)


def test_every_stage_of_every_ledger_is_read():
    protocol = SUBJECT.protocol
    for name, ledger in protocol.ledgers.items():
        stages = PROFILE.ledgers[name].stages
        assert set(stages) == {"queued", "submitted", "ready"}
        assert sorted(n for s in stages.values() for n in s) == sorted(map(ledger.counter, ledger.facts.stages))
