"""The founding case as our own checker decides it: one property in one configuration, in a process of its own.

Run as a script it decides once and prints JSON, so that no run profits from the one before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from spec.profile import Configuration, Profile, load_profile

PROFILE = "sglang-0.5.23"
PROPERTY = "paused-flush-succeeds"
REMEDY = "reap-while-paused"


@dataclass(frozen=True)
class Ours:
    """One decision: from the loaded profile to the verdict, and the whole process around it."""

    verdict: str
    methods: str
    seconds: float
    process_seconds: float = 0.0


def profile(*, remedy: bool) -> Profile:
    """The bundled profile, with the remedy laid over it or not."""
    return load_profile(PROFILE).with_remedies([REMEDY] if remedy else [])


def configuration(engine: Profile) -> Configuration:
    """Loop normal, mode retract, file storage."""
    return next(c for c in engine.configurations(["normal"], ["retract"]) if c.storage == "file")


def decide(*, remedy: bool) -> Ours:
    """Decide it here and now."""
    from checker.verdict import worst  # noqa: PLC0415 - the parent process needs no solver
    from checker.workbench import Workbench  # noqa: PLC0415
    from spec.properties import chosen  # noqa: PLC0415

    engine = profile(remedy=remedy)
    start = time.perf_counter()
    decided = Workbench(engine, configuration(engine)).decide(chosen([PROPERTY])[0])
    seconds = time.perf_counter() - start
    return Ours(worst(d.verdict for d in decided).value, ", ".join(d.method for d in decided), seconds)


def decide_in_process(*, remedy: bool) -> Ours:
    """Decide it in a fresh process."""
    start = time.perf_counter()
    command = [sys.executable, str(Path(__file__)), *(["remedy"] if remedy else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - this very file
    answer = json.loads(done.stdout)
    return Ours(answer["verdict"], answer["methods"], answer["seconds"], time.perf_counter() - start)


if __name__ == "__main__":
    print(json.dumps(asdict(decide(remedy="remedy" in sys.argv[1:]))))
