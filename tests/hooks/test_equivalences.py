"""Where something is computed in a clever way, it gives what the plain way gives."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from hooks_fakes import Bench, ack, operation, queue_of
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_hooks.monitor import Monitor
from engine_hooks.monitor_passes import Passes
from engine_hooks.sglang.probes_ledgers import FirstSeen, prefetch_stages, transfer_stages

NODES = st.integers(0, 9)
GROUPS = st.lists(st.lists(NODES, max_size=3), max_size=4)


@settings(deadline=None)
@given(st.sets(NODES), GROUPS, st.lists(st.tuples(st.lists(NODES, max_size=3), st.booleans()), max_size=4))
def test_the_stages_of_a_copy_ledger_add_up_to_it(
    entries: set[int], queued: list[list[int]], acks: list[tuple[list[int], bool]]
) -> None:
    stages = transfer_stages(
        dict.fromkeys(entries), [operation(*n) for n in queued], [ack(*n, done=done) for n, done in acks]
    )
    assert sum(stages) == len(entries)
    assert min(stages) >= 0


@settings(deadline=None)
@given(st.data())
def test_the_stages_of_a_copy_ledger_are_what_the_engine_would_reap(data: st.DataObject) -> None:
    """Each entry in exactly one place, as the engine keeps them: the split is exact, not only the sum."""
    waiting = data.draw(st.integers(0, 5))
    finished = data.draw(st.lists(st.booleans(), max_size=6))
    entries = dict.fromkeys(range(waiting + len(finished)))
    acks = [ack(waiting + i, done=done) for i, done in enumerate(finished)]
    ready = finished.index(False) if False in finished else len(finished)
    stages = transfer_stages(entries, [operation(n) for n in range(waiting)], acks)
    assert stages == (waiting, len(finished) - ready, ready)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3))), st.integers(0, 3))
def test_the_stages_of_prefetch_add_up_and_foreign_operations_do_not_count(
    entries: list[tuple[bool, bool, bool, int]], foreign: int
) -> None:
    ongoing: dict[int, Any] = {}
    hits, acks = [], []
    expected: Counter[str] = Counter()
    for handle, (allocated, answered, finished, progress) in enumerate(entries):
        this = SimpleNamespace()
        ongoing[handle] = SimpleNamespace(operation=this, host_indices=[0] if allocated else None)
        acks += [SimpleNamespace(operation=this, completed_req=None)] * progress
        if finished:
            acks.append(SimpleNamespace(operation=this, completed_req=True))
        if answered:
            hits.append(this)
        expected["done" if finished else "loading" if allocated else "hit" if answered else "query"] += 1
    for _ in range(foreign):
        stale = SimpleNamespace()
        hits.append(stale)
        acks.append(SimpleNamespace(operation=stale, completed_req=True))
    stages = prefetch_stages(ongoing, queue_of(*hits), queue_of(*acks))
    assert stages == tuple(expected[name] for name in ("query", "hit", "loading", "done"))
    assert sum(stages) == len(ongoing)


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.booleans(), NODES), max_size=4), max_size=20))
def test_ages_are_those_of_a_plain_table(passes: list[list[tuple[bool, int]]]) -> None:
    """A new key goes to the end of the engine's dict; entries leave from anywhere.

    A key that leaves and comes back between two reads is the one thing that the plain table cannot tell either.
    """
    engine: dict[int, None] = {}
    plain: dict[int, float] = {}
    ages = FirstSeen()
    for now, changes in enumerate(passes):
        changed = set()
        for add, key in changes:
            if key in changed:
                continue
            changed.add(key)
            if add:
                engine.setdefault(key)
            else:
                engine.pop(key, None)
        plain = {key: plain.get(key, now) for key in engine}
        assert ages.oldest(engine, now) == (min(plain.values()) if plain else None)


class Unlike(Passes):
    """Takes no pass for a repetition."""

    def repeats(self, said: Any) -> bool:
        self.forget()
        return super().repeats(said)


class EveryPass(Monitor):
    """Judges each pass, repeated or not."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._passes = Unlike(self.board)


STATES = st.fixed_dictionaries(
    {},
    optional={
        "write_through_submitted": st.integers(0, 1),
        "waiting": st.integers(0, 1),
        "deferred_pending": st.booleans(),
        "lookups": st.integers(0, 1),
        "recorded_idle": st.sampled_from([None, True, False]),
        "unmodelled": st.sampled_from([(), ("grammar",)]),
    },
)
STEPS = st.one_of(
    st.tuples(st.just("pass"), STATES, st.integers(1, 3)),
    st.tuples(st.just("paused_pass"), STATES, st.integers(1, 3)),
    st.tuples(st.just("flush"), st.sampled_from(["granted", "refused", "timed_out"]), st.just(1)),
    st.tuples(st.just("update"), st.sampled_from(["ok", "unflushed", "failed"]), st.just(1)),
    st.tuples(st.just("pause"), st.sampled_from(["retract", "in_place"]), st.just(1)),
    st.tuples(st.just("continue"), st.none(), st.just(1)),
    st.tuples(st.just("forward"), st.none(), st.just(1)),
    st.tuples(st.just("lost"), st.sampled_from(["gate", "idle", "lookups", "state"]), st.just(1)),
)


def play(bench: Bench, step: tuple[str, Any, int]) -> None:
    name, what, times = step
    monitor = bench.monitor
    for _ in range(times):
        if name == "pass":
            bench.observe(**what)
        elif name == "paused_pass":
            bench.paused_pass(**what)
        elif name == "flush":
            monitor.flush_decided("immediate", what)
        elif name == "update":
            monitor.update_answered("disk", what)
        elif name == "pause":
            monitor.paused(what, "file")
        elif name == "continue":
            monitor.continued()
        elif name == "forward":
            monitor.forward()
        else:
            monitor.lost(what, "for a test")


@settings(deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_skipping_repeated_passes_changes_no_count_and_no_gauge(steps: list[tuple[str, Any, int]]) -> None:
    clever, plain = Bench(), Bench(kind=EveryPass)
    for step in steps:
        for bench in (clever, plain):
            play(bench, step)
        assert clever.sink.violated() == plain.sink.violated()
        urgent = ("stuck", "flush_blocked", "paused")
        assert {k: v for k, v in clever.sink.gauges.items() if k[0] in urgent} == {
            k: v for k, v in plain.sink.gauges.items() if k[0] in urgent
        }
    assert clever.settle().checked() == plain.settle().checked()
