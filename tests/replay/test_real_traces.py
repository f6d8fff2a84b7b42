"""Traces that the real engine left on the testbed (tests/replay/record_traces.py), judged by the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from replay_traces import NAMES, TRACES, header_of, load, numbered, path_of, recorded, replayed, text_of

from checker.replay.align import alignments
from checker.replay.differences import DIFFERENCES
from checker.replay.reading import traces
from checker.replay.results import ACCEPTED, DIVERGES
from checker.replay.run import Judges, Options, replay

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED = {
    "normal-file": {LOST: 1, WAITS: 34},
    "normal-file-repaired": {LOST: 1, WAITS: 29},
    "normal-none": {},
    "normal-none-repaired": {},
    "overlap-file": {LOST: 1, SKIPS: 22, WAITS: 32},
    "overlap-file-repaired": {LOST: 2, SKIPS: 22, WAITS: 34},
    "overlap-none": {SKIPS: 19},
    "overlap-none-repaired": {SKIPS: 17},
}
"""Trace to the lines that the spec does not allow, by the known difference that explains each."""
STEPS = {
    "normal-file": 27288,
    "normal-file-repaired": 14433,
    "normal-none": 6868,
    "normal-none-repaired": 5844,
    "overlap-file": 9407,
    "overlap-file-repaired": 16969,
    "overlap-none": 13938,
    "overlap-none-repaired": 11027,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_accepts_what_the_engine_did_but_for_known_differences(name: str) -> None:
    found = replayed(path_of(name), Judges(load, frozenset(DIFFERENCES)))
    assert (found.verdict, found.reason, found.ended) == (ACCEPTED, "", True)
    assert found.steps == STEPS[name]
    assert found.differences == ALLOWED[name]


@pytest.mark.parametrize(
    ("name", "line"),
    [("normal-none", None), ("normal-none-repaired", None), ("normal-file", 5), ("overlap-none", 9)],
)
def test_without_leave_a_known_difference_is_a_divergence(name: str, line: int | None) -> None:
    found = replayed(path_of(name))
    assert found.verdict == (ACCEPTED if line is None else DIVERGES)
    assert (found.divergence.line if found.divergence else None) == line


def test_every_action_of_these_loops_was_seen_but_a_late_arrival() -> None:
    """`ArriveLate` is a race in the tokenizer that no test can force; each other action was needed by some line."""
    for name in ("normal-file", "overlap-file"):
        found = replayed(path_of(name), Judges(load, frozenset(DIFFERENCES)), Options(coverage=True))
        assert found.coverage is not None
        assert found.coverage.missing == ("ArriveLate",)
        assert (found.coverage.unreachable, found.coverage.states_whole) == (0, True)


def test_the_trace_of_an_engine_without_the_remedy_is_none_of_one_with_it(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    path = tmp_path / "bare.trace.ndjson"
    path.write_bytes(text_of(header_of(remedies=("reap-while-paused",), spec_digest=header.spec_digest), steps))
    found = replayed(path)
    assert found.verdict == DIVERGES
    assert found.divergence is not None
    # Paused, a copy that has landed stays: with the remedy a paused pass retires it.
    assert found.divergence.did == "pass"
    assert found.divergence.after["write_through_ready"] == 1
    assert [way.action for way in found.divergence.ways] == ["PausedPass"]


def test_the_trace_of_one_loop_is_none_of_another(tmp_path: Path) -> None:
    _, steps = recorded("overlap-none")
    path = tmp_path / "other.trace.ndjson"
    path.write_bytes(text_of(header_of("normal"), steps))
    found = replayed(path)
    assert (found.verdict, found.lines) == (DIVERGES, len(steps) + 2)
    assert found.divergence is not None
    assert [wrong.variable for wrong in found.divergence.ways[0].wrong] == ["result_pending"]


def test_a_flush_that_is_granted_while_a_copy_is_under_way_is_explained(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    at = next(i for i, step in enumerate(steps) if (step.do, step.how) == ("flush", "refused"))
    lied = [*steps[:at], type(steps[at])(1, "flush", steps[at - 1].state, "granted")]
    path = tmp_path / "lied.trace.ndjson"
    path.write_bytes(text_of(header, numbered(lied)))
    divergence = replayed(path).divergence
    assert divergence is not None
    assert (divergence.line, divergence.did) == (at + 2, "flush granted")
    (way,) = divergence.ways
    assert (way.action, way.engine) == ("FlushGranted", "srt/managers/scheduler.py:flush_cache")
    # What is submitted may land, but an entry that has landed is still one.
    assert (way.needs, way.wrong) == (("write_through_submitted == 0", "write_through_ready == 0"), ())


@pytest.mark.parametrize(("name", "ranks", "controls"), [
    ("tp2", ("tp0 pp0 dp0", "tp1 pp0 dp0"), 25), ("dp2", ("tp0 pp0 dp1", "tp0 pp0 dp0"), 11),
])  # fmt: skip
def test_two_ranks_do_what_the_spec_says_and_are_aligned(name: str, ranks: tuple[str, ...], controls: int) -> None:
    found = traces([TRACES / name])
    judges = Judges(load)
    for trace in found:
        one = replay(trace, judges)
        assert (one.verdict, one.differences, one.ended) == (ACCEPTED, {}, True)
    (alignment,) = alignments(found)
    assert (alignment.verdict, alignment.ranks, alignment.controls) == (ACCEPTED, ranks, controls)
