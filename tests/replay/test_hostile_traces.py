"""Files that are no traces, or not as they were written: an error with the line, never `accepted`, never a crash."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import header_of, load, numbered, path_of, recorded, replayed, text_of

from checker.replay.reading import TraceError, traces
from checker.replay.results import ACCEPTED, DIVERGES, UNKNOWN
from checker.replay.run import Judges, Options
from engine_hooks.trace import SCHEMA, Step, TraceState, sealed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LENGTH = 40
"""Steps of the trace that is spoilt."""
JUDGES = Judges(load)


@cache
def whole() -> bytes:
    """A short trace that is accepted."""
    header, steps = recorded("normal-none")
    return text_of(header, numbered(steps[:LENGTH]))


def verdict(path: Path, text: bytes, options: Options | None = None) -> str:
    path.write_bytes(text)
    return replayed(path, JUDGES, options).verdict


def test_the_trace_that_is_spoilt_below_is_accepted(tmp_path: Path) -> None:
    assert verdict(tmp_path / "a.trace.ndjson", whole()) == ACCEPTED


def said(path: Path) -> str:
    """The error about a file, or the verdict."""
    try:
        return replayed(path, JUDGES).verdict
    except TraceError as error:
        return str(error)


def lines() -> list[bytes]:
    return whole().splitlines(keepends=True)


SPOILT: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "a line is missing": (lambda: b"".join(lines()[:9] + lines()[10:]), 10, "changed, or others are missing"),
    "a line is there twice": (lambda: b"".join(lines()[:9] + lines()[8:]), 10, "changed, or others are missing"),
    "two lines have changed places": (
        lambda: b"".join([*lines()[:9], lines()[10], lines()[9], *lines()[11:]]), 10, "changed, or others are missing"
    ),
    "a number is another": (lambda: whole().replace(b'"forwards":1}', b'"forwards":2}', 1), 5, "changed"),
    "the last line is cut off": (lambda: whole()[:-7], 42, "cut off"),
    "a line is not JSON": (lambda: resealed(b'{"kind":"step",!}'), 2, "JSON is malformed"),
    "a field is unknown": (lambda: resealed(b'{"kind":"end","steps":0,"reason":"","x":1}'), 2, "unknown field"),
    "a step is unknown": (lambda: resealed(b'{"kind":"step","n":1,"do":"dance","state":{}}'), 2, "Invalid enum value"),
    "a count is negative": (
        lambda: resealed(b'{"kind":"step","n":1,"do":"start","state":{"running":-1}}'), 2, "Expected `int` >= 0"
    ),
    "a count is huge": (
        lambda: resealed(b'{"kind":"step","n":1,"do":"start","state":{"running":9e99}}'), 2, "Expected `int`"
    ),
    "a step is out of number": (lambda: resealed(b'{"kind":"step","n":7,"do":"start","state":{}}'), 2, "step 7, whe"),
    "a pause is there many times": (
        lambda: resealed(b'{"kind":"step","n":1,"do":"pause","how":"retract","times":9,"state":{}}'), 2, "9 times"
    ),
    "the first step is none": (lambda: resealed(b'{"kind":"step","n":1,"do":"pass","state":{}}'), 2, "is a pass, not"),
    "the end counts others": (lambda: resealed(b'{"kind":"end","steps":9,"reason":"closed"}'), 2, "the end of 9 steps"),
    "more comes after the end": (
        lambda: resealed(b'{"kind":"end","steps":0,"reason":"closed"}', b'{"kind":"end","steps":0,"reason":"closed"}'),
        3,
        "after the end",
    ),
    "a line is without end": (lambda: lines()[0] + b"x" * 100_000, 2, "longer than"),
    "there is no header": (lambda: b"".join(lines()[1:]), 1, "no header"),
    "the schema is a later one": (
        lambda: text_of(header_of(schema=SCHEMA + 1), []), 1, f"schema {SCHEMA + 1} is not known"
    ),
    "there is nothing": (lambda: b"", 1, "no trace"),
    "it is something else": (lambda: b"%PDF-1.7\n\x00\xff\n", 1, "no trace"),
}  # fmt: skip


def resealed(*bodies: bytes) -> bytes:
    """A header, and these lines with right checksums."""
    checksum, texts = 0, []
    for body in (msgspec.json.encode(header_of()), *bodies):
        text, checksum = sealed(body, checksum)
        texts.append(text)
    return b"".join(texts)


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_not_as_it_was_written_is_an_error_with_its_line(what: str, tmp_path: Path) -> None:
    make, line, problem = SPOILT[what]
    with pytest.raises(TraceError) as error:
        verdict(tmp_path / "a.trace.ndjson", make())
    assert f"a.trace.ndjson, line {line}: " in str(error.value)
    assert problem in str(error.value)


def test_a_trace_that_ends_at_a_line_is_not_accepted_unless_asked(tmp_path: Path) -> None:
    path, cut = tmp_path / "a.trace.ndjson", b"".join(lines()[:20])
    path.write_bytes(cut)
    found = replayed(path, JUDGES)
    assert (found.verdict, found.steps > 0) == (UNKNOWN, True)
    assert "no end: what came after line 20" in found.reason
    assert verdict(path, cut, Options(open=True)) == ACCEPTED
    # Killed while it wrote a line: only the last one may be cut off, and only where that was asked for.
    assert verdict(path, cut + lines()[20][:30], Options(open=True)) == ACCEPTED
    with pytest.raises(TraceError, match="line 21: cut off"):
        verdict(path, cut + lines()[20][:30])
    with pytest.raises(TraceError, match="line 21: not the line"):
        verdict(path, cut + lines()[20][:30] + b"\n", Options(open=True))


def test_a_trace_that_lost_steps_is_not_accepted(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    text = text_of(header, numbered(steps[:LENGTH]), "dropped")
    assert verdict(tmp_path / "a.trace.ndjson", text) == UNKNOWN
    assert verdict(tmp_path / "a.trace.ndjson", text, Options(open=True)) == UNKNOWN


def test_a_loop_or_storage_that_the_profile_does_not_have_cannot_be_judged(tmp_path: Path) -> None:
    for header in (header_of("dance"), header_of(storage="mooncake")):
        path = tmp_path / "a.trace.ndjson"
        path.write_bytes(text_of(header, [Step(1, "start", TraceState())]))
        found = replayed(path, JUDGES)
        assert found.verdict == UNKNOWN
        assert "it has" in found.reason


def test_a_variable_that_the_engine_could_not_be_asked_for_is_not_taken_for_zero(tmp_path: Path) -> None:
    steps = [Step(1, "start", TraceState()), Step(2, "pass", TraceState())]
    for storage, said_of_it in (("file", UNKNOWN), ("none", ACCEPTED)):
        header = header_of(storage=storage, unobserved=("prefetch_retry",))
        assert verdict(tmp_path / "a.trace.ndjson", text_of(header, steps)) == said_of_it


def test_what_gzip_cannot_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.trace.ndjson.gz"
    packed = path_of("normal-none").read_bytes()
    for text in (packed[:200], b"\x1f\x8b" + b"\x00" * 40, packed[:4000] + b"\x00" * 20 + packed[4020:]):
        path.write_bytes(text)
        with pytest.raises(TraceError, match=r"a\.trace\.ndjson\.gz"):
            replayed(path, JUDGES)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_bytes_is_accepted(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any bytes in place of any others, at one place or several: an error, and no other."""
    text = bytearray(whole())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
    if bytes(text) == whole():
        return
    path = tmp_path_factory.mktemp("fuzz") / "a.trace.ndjson"
    path.write_bytes(bytes(text))
    problem = said(path)
    # Whole lines may be gone from the end, which no checksum tells.
    assert "line" in problem or (problem == UNKNOWN and whole().startswith(bytes(text)))


VALUES = st.integers(0, 3) | st.integers(0, 1 << 53)
STATES = st.builds(
    TraceState,
    **{
        name: st.booleans() if isinstance(getattr(TraceState(), name), bool) else VALUES
        for name in TraceState.__struct_fields__
    },
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["pass", "arrive", "pause", "flush", "update", "abort"]), STATES), max_size=3)
)
def test_made_up_steps_with_right_checksums_are_judged(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[str, TraceState]]
) -> None:
    """Whoever can write checksums is no liar by that: the spec decides, whatever the numbers."""
    steps = [Step(1, "start", TraceState()), *(Step(0, do, state) for do, state in made)]  # type: ignore[arg-type]
    path = tmp_path_factory.mktemp("fuzz") / "a.trace.ndjson"
    path.write_bytes(text_of(header_of("overlap", "file"), numbered(steps)))
    found = replayed(path, JUDGES)
    assert found.verdict in {ACCEPTED, DIVERGES}
    if found.verdict == ACCEPTED:
        # From an idle engine nothing but arrivals and idle passes comes in so few steps without a name for how.
        assert {do for do, _ in made} <= {"pass", "arrive", "abort"}


def test_parts_are_put_together_and_a_missing_one_is_named(tmp_path: Path) -> None:
    header, steps = recorded("normal-none")
    first, second = text_of(header, numbered(steps[:LENGTH])).splitlines(keepends=True)[:-1], None
    checksum = int(first[-1][8:16], 16)
    number = sum(step.times for step in steps[:LENGTH]) + 1
    rest = numbered(steps)[LENGTH : LENGTH + 10]
    texts = []
    for line in (
        msgspec.structs.replace(header, part=2, first=number, before=f"{checksum:08x}"),
        *rest,
        {"kind": "end", "steps": rest[-1].n + rest[-1].times - 1, "reason": "closed"},
    ):
        text, checksum = sealed(msgspec.json.encode(line), checksum)
        texts.append(text)
    one, other, second = tmp_path / "1.trace.ndjson", tmp_path / "2.trace.ndjson", b"".join(texts)
    one.write_bytes(b"".join(first))
    other.write_bytes(second)
    (trace,) = traces([tmp_path])
    assert [part.header.part for part in trace.parts] == [1, 2]
    found = replayed(tmp_path, JUDGES)
    assert (found.verdict, found.from_start, found.lines) == (ACCEPTED, True, LENGTH + 13)
    # Without its beginning the first state is taken as it is, which is said.
    alone = replayed(other, JUDGES)
    assert (alone.verdict, alone.from_start) == (ACCEPTED, False)
    (tmp_path / "3.trace.ndjson").write_bytes(
        sealed(msgspec.json.encode(msgspec.structs.replace(header, part=4)), 0)[0]
    )
    with pytest.raises(TraceError, match="part 3 is not there"):
        traces([tmp_path])
