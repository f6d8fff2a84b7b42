"""What the flight recorder adds to a pass, against the same monitor without it; no engine, no GPU.

Blocks of passes with and without the recorder alternate, so that both see the same machine. Printed are the fastest
blocks' CPU time a pass, for passes that repeat the one before (almost all of a paused loop) and for passes that differ.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

from engine_hooks.compiled import compiled_profile
from engine_hooks.monitor import Monitor, MonitorOptions
from engine_hooks.monitor_board import Board
from engine_hooks.observation import NOWHERE, Observation
from engine_hooks.recorder import FlightRecorder, Identity
from engine_hooks.recorder_writer import RecordWriter

_ROUNDS = 40
_PASSES = 5000
_GOAL_US = 2.0


def monitor(folder: Path | None) -> Monitor:
    """A paused monitor, with a recorder that writes into the folder where one is given."""
    profile = compiled_profile("sglang", "0.5.23")
    if profile is None:
        raise SystemExit("no compiled profile")
    made = Monitor(profile, Board([]), MonitorOptions())
    if folder is not None:
        identity = Identity("sglang", "0.5.23", "0", profile.profile, profile.spec_digest, NOWHERE, "normal")
        made.record_with(FlightRecorder(identity, RecordWriter(folder, "bench")))
    made.paused("retract", "file")
    return made


def passes(*, repeated: bool) -> list[Observation]:
    """Paused passes in which nothing moves, or in which each differs from the one before."""
    common = {"paused": True, "step": "paused", "loop": "normal", "recorded_idle": False, "waiting": 1}
    return [Observation(write_through_submitted=0 if repeated else n, **common) for n in range(2)]


def seconds(watch: Monitor, *, repeated: bool) -> float:
    """CPU time of one pass."""
    every = cycle(passes(repeated=repeated))
    before = Observation(paused=True, step="paused", loop="normal", waiting=1)
    began = time.thread_time()
    for _, seen in zip(range(_PASSES), every, strict=False):
        watch.observe(seen, before)
    return (time.thread_time() - began) / _PASSES


def main() -> int:
    """Print a line for each kind of pass; 1 where a repeated pass costs more than the goal."""
    met = True
    with tempfile.TemporaryDirectory() as folder:
        bare, recording = monitor(None), monitor(Path(folder))
        for repeated in (True, False):
            rounds = [[seconds(m, repeated=repeated) for m in (bare, recording)] for _ in range(_ROUNDS)]
            without, with_it = (min(column) * 1e6 for column in zip(*rounds, strict=True))
            added = statistics.median((b - a) * 1e6 for a, b in rounds)
            kind = "repeated" if repeated else "different"
            print(
                f"{kind:>9} pass: {without:.2f} us without, {with_it:.2f} us with the recorder, ratio"
                f" {with_it / without:.2f}; added {with_it - without:.2f} us (median of rounds {added:.2f})"
            )
            met = met and (not repeated or with_it - without < _GOAL_US)
    print(f"goal: less than {_GOAL_US:g} us added to a repeated pass: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
