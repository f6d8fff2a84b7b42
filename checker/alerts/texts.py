"""Reads runbooks.toml, the prose of the runbooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from checker.alerts.model import Runbook, Step
from checker.alerts.requests import command
from spec.errors import QuiesceError, UnknownNameError

FILE = Path(__file__).with_name("runbooks.toml")


class RunbookError(QuiesceError):
    """A runbook that cannot be read. Remedy: correct the named key of runbooks.toml."""


class StepText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step, or (`use`) the name of some that several runbooks share."""

    say: str = ""
    run: Sequence[str] = ()
    use: str = ""


class RunbookText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One runbook."""

    means: str
    lost: str
    confirm: Sequence[StepText]
    now: Sequence[StepText]
    good: Sequence[StepText]
    ledgers: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: Mapping[str, Sequence[StepText]]
    alerts: Mapping[str, RunbookText]


def runbook_texts(text: str | None = None) -> Mapping[str, Runbook]:
    """Alert to its runbook. `text` is TOML; by default what FILE holds. Raises RunbookError or UnknownNameError."""
    try:
        found = msgspec.toml.decode(FILE.read_text(encoding="utf-8") if text is None else text, type=_File)
    except (msgspec.DecodeError, ValueError) as error:
        raise RunbookError(f"{FILE.name}: {error}") from error
    return {name: _runbook(one, found.steps) for name, one in found.alerts.items()}


def _runbook(text: RunbookText, shared: Mapping[str, Sequence[StepText]]) -> Runbook:
    confirm, now, good = (tuple(_steps(steps, shared)) for steps in (text.confirm, text.now, text.good))
    return Runbook(text.means, text.lost, confirm, now, good, text.ledgers)


def _steps(steps: Sequence[StepText], shared: Mapping[str, Sequence[StepText]]) -> Iterator[Step]:
    for step in steps:
        if not step.use:
            yield Step(step.say, tuple(command(entry) for entry in step.run))
        elif step.use in shared:
            yield from _steps(shared[step.use], shared)
        else:
            raise UnknownNameError("shared step", step.use, shared)
