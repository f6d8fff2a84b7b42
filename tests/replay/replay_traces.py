"""The recorded traces, and traces made of steps."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec

from checker.replay.profiles import profile_name
from checker.replay.reading import traces
from checker.replay.results import ACCEPTED, Replayed
from checker.replay.run import Judges, Options, replay
from engine_hooks.trace import SCHEMA, End, Step, TraceHeader, TraceLine, TraceState, sealed, unsealed
from spec.profile import Profile, load_profile

TRACES = Path(__file__).parent / "traces"
PEERS = tuple(f"pd/{path.name.removesuffix('.trace.ndjson.gz')}" for path in sorted((TRACES / "pd").glob("*.gz")))
"""Of a prefill and a decode worker, recorded by tests/engine/test_disaggregation.py."""
STAGES = ("pp2/rank0", "pp2-repaired/rank1")
"""Of the first stage of a pipeline, and of the second of one with the remedy."""
NAMES = tuple(sorted(path.name.removesuffix(".trace.ndjson.gz") for path in TRACES.glob("*.gz")))


def path_of(name: str) -> Path:
    return TRACES / f"{name}.trace.ndjson.gz"


def load(header: TraceHeader) -> Profile:
    profile = load_profile(profile_name(header))
    return profile.with_remedies(header.remedies) if header.remedies else profile


@cache
def recorded(name: str) -> tuple[TraceHeader, tuple[Step, ...]]:
    """Header and steps of a recorded trace."""
    checksum, lines = 0, []
    for text in gzip.decompress(path_of(name).read_bytes()).splitlines():
        found = unsealed(text, checksum)
        assert found is not None
        body, checksum = found
        lines.append(msgspec.json.decode(body, type=TraceLine))
    header, *steps, end = lines
    assert isinstance(header, TraceHeader)
    assert isinstance(end, End)
    return header, tuple(step for step in steps if isinstance(step, Step))


def header_of(loop: str = "normal", storage: str = "none", **more: object) -> TraceHeader:
    plain = TraceHeader(
        SCHEMA, "sglang", "0.5.23", "test", "sglang-0.5.23", "none", {"tp": 0, "pp": 0, "dp": 0}, loop, (), storage,
        0.0, 1, 1,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **more)


def numbered(steps: Iterable[Step]) -> list[Step]:
    """The steps, counted anew."""
    found, number = [], 1
    for step in steps:
        found.append(msgspec.structs.replace(step, n=number))
        number += step.times
    return found


def text_of(header: TraceHeader, steps: Sequence[Step], reason: str = "closed") -> bytes:
    """A whole trace: sealed, and with its end."""
    end = End(sum(step.times for step in steps), reason)
    checksum, lines = 0, []
    for line in (header, *steps, end):
        text, checksum = sealed(msgspec.json.encode(line), checksum)
        lines.append(text)
    return b"".join(lines)


def evicted() -> bytes:
    """`normal-file` up to a pass that looks up a lost prefix again, as if no flush had been granted in that pause."""
    header, steps = recorded("normal-file")
    at = next(
        i + 1
        for i, (x, y) in enumerate(pairwise(steps))
        if y.do == "pass" and not x.state.paused and y.state.lookups > x.state.lookups and not x.state.prefetch_retry
    )
    flushes = [i for i in range(at) if (steps[i].do, steps[i].how) == ("flush", "granted")]
    return text_of(header, numbered(step for i, step in enumerate(steps[: at + 1]) if i not in flushes[-2:]))


def unlaunched() -> bytes:
    """`overlap-none` up to a pass that launches, which then does not, though its request runs on."""
    header, steps = recorded("overlap-none")
    at = next(
        i + 1
        for i, (x, y) in enumerate(pairwise(steps))
        if y.do == "pass" and x.state.result_pending and y.state.result_pending and y.state.running
    )
    idle = {"last_batch": False, "result_pending": False, "forwards": steps[at - 1].state.forwards}
    last = msgspec.structs.replace(steps[at], times=1, state=msgspec.structs.replace(steps[at].state, **idle))
    return text_of(header, numbered([*steps[:at], last]))


def replayed(path: Path, judges: Judges | None = None, options: Options | None = None) -> Replayed:
    (trace,) = traces([path])
    return replay(trace, judges or Judges(load), options)


def judged(header: TraceHeader, steps: Sequence[Step], tmp_path: Path) -> Replayed:
    """What a replay says of a trace of these steps."""
    path = tmp_path / "changed.trace.ndjson"
    path.write_bytes(text_of(header, numbered(steps)))
    return replayed(path)


Change = tuple[str, Callable[[TraceState, Step], bool], Callable[[TraceState, Step], Step]]
"""A recorded trace; what the line to change looks like, after which state; and the line instead."""


def assert_diverges_where_changed(change: Change, tmp_path: Path) -> None:
    """The trace is accepted up to the first line that looks so, and with that line changed diverges there."""
    name, looks, instead = change
    header, steps = recorded(name)
    at = next(i for i, (x, y) in enumerate(pairwise(steps), 1) if looks(x.state, y))
    assert judged(header, steps[: at + 1], tmp_path).verdict == ACCEPTED
    found = judged(header, [*steps[:at], instead(steps[at - 1].state, steps[at])], tmp_path)
    assert found.divergence is not None
    assert found.divergence.line == at + 2
