"""What every benchmark here needs: timed runs, medians, a table, and the facts of the machine."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

RUNS = 5


@dataclass(frozen=True)
class Timed(Generic[T]):
    """What one run gave, its wall-clock seconds, and the CPU seconds of the processes that it started and awaited."""

    value: T
    seconds: float
    cpu_seconds: float


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(work: Callable[[], T]) -> Timed[T]:
    """Run `work` once."""
    start, before = time.perf_counter(), _cpu_of_children()
    value = work()
    return Timed(value, time.perf_counter() - start, _cpu_of_children() - before)


def median(values: Sequence[float]) -> float:
    """The median; of no values, not a number."""
    return statistics.median(values) if values else float("nan")


def spread(values: Sequence[float]) -> str:
    """Median and range, e.g. `1.20 s (1.18 to 1.31, 5 runs)`: a median alone hides a busy machine."""
    return f"{median(values):.2f} s ({min(values):.2f} to {max(values):.2f}, {len(values)} runs)"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need, flush right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in (header, *rows))


def output_of(*command: str) -> str:
    """The first line that a command prints, or why there is none."""
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - fixed commands
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else f"{command[0]}: no output, exit code {done.returncode}"


def package(name: str) -> str:
    """The installed version of a distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def cpu_model() -> str:
    """As Linux names it, else as Python does."""
    info = Path("/proc/cpuinfo")
    names = [s.split(":", 1)[1].strip() for s in info.read_text().splitlines() if s.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load() -> str:
    """The load averages: figures taken on a busy machine are worth less."""
    return " ".join(f"{x:.2f}" for x in os.getloadavg())


def facts() -> list[str]:
    """The machine and the versions, one line each."""
    return [
        f"cpu     {os.cpu_count()} x {cpu_model()}",
        f"load    {load()}",
        f"python  {platform.python_version()}",
        f"z3      {package('z3-solver')}",
        f"cvc5    {package('cvc5')}",
        f"spin    {output_of('spin', '-V')}",
        f"gcc     {output_of('gcc', '--version')}",
        f"sglang  {package('sglang')}",
    ]
