"""Runs spin on promela/founding.pml under limits of time and memory, and reads what it says.

An answer is never better than what was searched: a search that was cut off by a limit, also by the depth of its stack,
is `out of …`, and a search that came to its end speaks of its bound alone.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

MODEL = Path(__file__).resolve().parent / "promela" / "founding.pml"

_GRACE_SECONDS = 30.0
# Frames of the depth-first stack, 53 bytes each, all touched at the start, so a search that ends early gets a small
# stack. Depths measured with the remedy: N=2 11 thousand, N=4 119 thousand; without it, 160 for every N.
_SMALL, _DEPTH, _DEEP = 4, 1_000_000, 10_000_000
# Weak fairness for ten processes needs three words of flags (spin's own message says so when it is too small).
_COMPILE = ("-O2", "-DNFAIR=3")


class Spin(Enum):
    """What spin said of one bound."""

    REFUTED = "refuted"
    HOLDS = "holds at N"
    TIME = "out of time"
    MEMORY = "out of memory"
    DEPTH = "out of depth"

    @property
    def complete(self) -> bool:
        """Whether the search decided the question for its bound."""
        return self in (Spin.REFUTED, Spin.HOLDS)


@dataclass(frozen=True)
class Case:
    """One bound: at most so many entries in flight and so many requests, without or with the remedy."""

    entries: int
    requests: int = 2
    remedy: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """For the preprocessor."""
        bounds = (f"-DN={self.entries}", f"-DREQUESTS={self.requests}")
        return (*bounds, "-DREAP") if self.remedy else bounds

    @property
    def depth(self) -> str:
        """The verifier's option for the size of its stack."""
        return f"-m{_DEEP if self.remedy and self.entries > _SMALL else _DEPTH}"


@dataclass(frozen=True)
class Limits:
    """What one search may use."""

    seconds: float = 120.0
    megabytes: int = 8000


@dataclass(frozen=True)
class Answer:
    """One search. `stored` are distinct states, `visited` counts their copies for fairness too."""

    verdict: Spin
    stored: int
    visited: int
    transitions: int
    seconds: float
    compile_seconds: float
    megabytes: int


class SpinError(Exception):
    """Spin or gcc failed, or said something unknown. The message holds what it said."""


def install_hint() -> str | None:
    """What to install, or None where all is there."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}; on Debian: apt-get install spin gcc libc6-dev" if missing else None


def search(case: Case, limits: Limits) -> Answer:
    """Check the claim for one bound. Raises SpinError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        _compile(folder, case, (*_COMPILE, f"-DMEMLIM={limits.megabytes}"))
        compiled = time.perf_counter()
        text, interrupted = _run(folder, ("-a", "-f", case.depth), limits.seconds)
        seconds = time.perf_counter() - compiled
        answer = _read(text, interrupted=interrupted, seconds=seconds, compile_seconds=compiled - start)
        if answer.verdict is Spin.REFUTED:
            _check_trail(folder, case)
    return answer


def count_states(case: Case) -> int:
    """How many states the model has, without the claim and without any reduction."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _compile(folder, case, ("-O2", "-DSAFETY", "-DNOCLAIM", "-DNOREDUCE"))
        text, interrupted = _run(folder, ("-E", case.depth), Limits().seconds)
        if interrupted or "errors: 0" not in text or "Search not completed" in text or _TOO_DEEP in text:
            raise SpinError(f"the states were not all counted:\n{text}")
        return _number(r"(\S+) states, stored", text)


def _compile(folder: Path, case: Case, flags: Sequence[str]) -> None:
    # A copy: spin writes its files beside where it stands, and names the trail after the model.
    shutil.copy(MODEL, folder / MODEL.name)
    _call(folder, "spin", *case.flags, "-a", MODEL.name)
    _call(folder, "gcc", *flags, "-o", "pan", "pan.c")


def _call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)  # noqa: S603 - fixed tools
    if done.returncode != 0:
        raise SpinError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _run(folder: Path, arguments: Sequence[str], seconds: float) -> tuple[str, bool]:
    """What the verifier prints, and whether its time was over. On SIGINT it prints how far it came."""
    command = [str(folder / "pan"), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:  # noqa: S603 - the verifier just compiled
        try:
            return process.communicate(timeout=seconds)[0], False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=_GRACE_SECONDS)[0], True
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0], True


_TOO_DEEP = "max search depth too small"


def _read(text: str, *, interrupted: bool, seconds: float, compile_seconds: float) -> Answer:
    return Answer(
        _verdict(text, interrupted=interrupted),
        _number(r"(\S+) states, stored", text),
        _number(r"\((\S+) visited\)", text),
        _number(r"(\S+) transitions", text),
        seconds,
        compile_seconds,
        _number(r"(\S+)\s+total actual memory usage", text),
    )


def _verdict(text: str, *, interrupted: bool) -> Spin:
    # A counterexample stands whatever was left unsearched, so it is looked for first.
    if "acceptance cycle (at depth" in text and "errors: 1" in text:
        return Spin.REFUTED
    if interrupted:
        return Spin.TIME
    if "reached -DMEMLIM bound" in text or "out of memory" in text:
        return Spin.MEMORY
    if _TOO_DEEP in text:
        return Spin.DEPTH
    if "(fairness enabled)" in text and "errors: 0" in text and "Search not completed" not in text:
        return Spin.HOLDS
    raise SpinError(f"no verdict in what spin said:\n{text}")


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise SpinError(f"nothing like {pattern!r} in what spin said:\n{text}")
    return round(float(found[1]))  # spin writes large numbers as 4.54842e+06


def _check_trail(folder: Path, case: Case) -> None:
    """A refutation is believed where spin's simulator can follow its trail into a cycle."""
    trail = folder / f"{MODEL.name}.trail"
    if not trail.exists():
        raise SpinError("refuted without a trail")
    told = _call(folder, "spin", *case.flags, "-t", "-p", MODEL.name)
    if "START OF CYCLE" not in told:
        raise SpinError(f"the trail does not end in a cycle:\n{told}")
