"""Runs Debian's spin on an exported model. Whatever is not a clear verdict is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checker.export.chosen import Model, NamedClaim
from checker.export.promela import compile_flags, run_flags

MISSING = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
WHY = f"not installed: {', '.join(MISSING)}; on Debian: apt-get install spin gcc libc6-dev (tools/setup.sh does it)"


class SpinError(Exception):
    """Spin or gcc failed, or gave no verdict."""


@dataclass(frozen=True)
class Spin:
    """A model compiled in a folder."""

    folder: Path
    model: Model

    @staticmethod
    def of(folder: Path, model: Model, text: str, *flags: str) -> Spin:
        (folder / "model.pml").write_text(text, encoding="utf-8")
        _call(folder, "spin", "-a", "model.pml")
        # More than this costs more than it saves.
        _call(folder, "gcc", "-O1", "-w", *compile_flags(model), *flags, "-o", "pan", "pan.c")
        return Spin(folder, model)

    def refutes(self, claim: NamedClaim) -> bool:
        told = _call(self.folder, "./pan", "-m400000", "-w18", *run_flags(claim))
        if "errors: 1" in told:
            return True
        fair = "(fairness enabled)" in told or "-f" not in run_flags(claim)
        if "errors: 0" in told and fair and not re.search("Search not completed|search depth too small", told):
            return False
        raise SpinError(f"no verdict on {claim.name} in:\n{told}")

    def states(self) -> int:
        """How many states are reachable; the model was compiled with COUNTING."""
        told = _call(self.folder, "./pan", "-m400000", "-E")
        if "errors: 0" not in told or re.search("Search not completed|search depth too small", told):
            raise SpinError(f"the states were not all counted:\n{told}")
        found = re.search(r"(\S+) states, stored", told)
        assert found is not None
        return round(float(found[1]))


COUNTING = ("-DSAFETY", "-DNOCLAIM", "-DNOREDUCE")


def _call(folder: Path, *command: str) -> str:
    done = subprocess.run(_words(command), cwd=folder, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SpinError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def _words(command: Sequence[str]) -> list[str]:
    return list(command)
