"""How fast traces are replayed, and in how much memory: `python bench/replay.py [--bytes N]`.

The trace is generated: random runs of the spec on plain numbers (the interpreter), with many requests, lookups, pauses,
flushes and updates, repeated until the file is as large as asked (1 GB), and deleted afterwards. Ends with 1 where a
goal is missed: GOAL steps a second of processor time, PEAK MiB of memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from measure import facts

from checker.digest import spec_digest
from checker.replay.reading import traces
from checker.replay.results import ACCEPTED
from checker.replay.run import Judges, replay
from checker.replay.sample import Sampler, repeated
from engine_hooks.trace import SCHEMA, End, Step, TraceHeader, TraceState, sealed
from spec.profile import load_profile

GOAL = 100_000
PEAK = 200
_PROFILE, _LOOP, _STORAGE = "sglang-0.5.23", "overlap", "file"


def write(path: Path, size: int, segment: list[Step]) -> int:
    """A trace of at least `size` bytes; returns its lines."""
    profile = load_profile(_PROFILE)
    header = TraceHeader(
        SCHEMA, "sglang", "0.5.23", "bench", _PROFILE, spec_digest(profile), {"tp": 0, "pp": 0, "dp": 0}, _LOOP, (),
        _STORAGE, 0.0, 1, 1,
    )  # fmt: skip
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as stream:
        written, checksum = 0, 0
        for body in _bodies(header, segment, encode):
            if written >= size:
                break
            text, checksum = sealed(body, checksum)
            written += stream.write(text)
            count = _number(body)
        text, _ = sealed(encode(End(count, "closed")), checksum)
        stream.write(text)
    return count


def _bodies(header: TraceHeader, segment: list[Step], encode: Callable[[object], bytes]) -> Iterator[bytes]:
    yield encode(header)
    yield encode(Step(1, "start", TraceState()))
    for step in repeated(segment):
        yield encode(msgspec.structs.replace(step, n=step.n + 1))


def _number(body: bytes) -> int:
    return int(body.split(b'"n":', 1)[1].split(b",", 1)[0]) if b'"n":' in body else 0


def main() -> int:
    """Generate, replay, print, delete. Returns 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--segment", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(*facts(), sep="\n", flush=True)
    segment = Sampler(load_profile(_PROFILE), _LOOP, _STORAGE, arguments.seed).segment(arguments.segment)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "generated.trace.ndjson"
        began = time.perf_counter()
        count = write(path, int(arguments.bytes), segment)
        sys.stdout.write(
            f"generated {path.stat().st_size:,} bytes, {count:,} steps, {time.perf_counter() - began:.1f} s\n"
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        judges = Judges(lambda header: load_profile(header.profile))
        began, cpu = time.perf_counter(), time.process_time()
        (trace,) = traces([path])
        found = replay(trace, judges)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        cubes = sum(j.statistics.learned for j in judges.all)
        sys.stdout.write(
            f"{found.verdict}: {found.steps:,} steps in {took:.1f} s ({cpu:.1f} s of processor): "
            f"{found.steps / cpu:,.0f} a second; questions {found.questions:,}, cubes {cubes:,}; "
            f"peak memory {peak} MiB ({before} before)\n"
        )
    return int(found.verdict != ACCEPTED or found.steps / cpu < GOAL or peak > PEAK)


if __name__ == "__main__":
    sys.exit(main())
