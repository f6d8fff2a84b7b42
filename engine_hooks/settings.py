"""What the environment asks of the hooks, in the variables whose names begin with QUIESCE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from engine_hooks.errors import SettingsError
from engine_hooks.lineage.stored import KEYS
from engine_hooks.monitor_overdue import OVERDUE, PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Mode(Enum):
    """How much the hooks do."""

    OFF = "off"
    OBSERVE = "observe"
    """Watch and report; never raise into the engine."""
    ENFORCE = "enforce"
    """For CI: a violation, or a probe that lost sight, raises."""


ALL_REMEDIES = "all"
_DIGITS = 9
"""Of a number that a variable gives: a longer one is a mistake."""

_OVERDUE = ", ".join(f"`{name}`" for name in OVERDUE)


@dataclass(frozen=True)
class Variable:
    """One variable of the environment, as the documentation says it. Texts are Markdown."""

    name: str
    values: str
    default: str
    text: str


VARIABLES = (
    Variable(
        "QUIESCE",
        ", ".join(f"`{mode.value}`" for mode in Mode),
        f"`{Mode.OBSERVE.value}`",
        "`off`: nothing is hooked. `observe`: watch and report, never raise into the engine. `enforce`, for CI only:"
        " a violation, or a hook that no longer works, raises in the scheduler",
    ),
    Variable(
        "QUIESCE_REMEDIES",
        f"`{ALL_REMEDIES}`, or names separated by commas",
        "none",
        "the remedies to activate; a name that the profile does not have activates none, and is logged",
    ),
    Variable(
        "QUIESCE_STATUS_DIR",
        "a folder",
        "none",
        "one small JSON file for each scheduler, for engines without `/metrics`",
    ),
    Variable(
        "QUIESCE_RECORD",
        "a folder",
        "none",
        "flight records: the last passes before each violation",
    ),
    Variable(
        "QUIESCE_TRACE",
        "a folder",
        "none",
        "a trace of everything that each scheduler does, for `checker replay`; at most 128 MiB for each",
    ),
    Variable(
        "QUIESCE_CENSUS",
        "`on`, `off`, or a number of batches",
        "`on`",
        "`on`: the KV pages are counted at idle, after a retract, before and after a flush. A number: also where so"
        " many batches were launched since the last census. `off`: never",
    ),
    Variable(
        "QUIESCE_LINEAGE",
        "`on`, `off`, or a number of storage keys",
        "`off`",
        "`on`: which weights are behind each KV page is followed, through host and storage; `no-stale-kv` then says"
        f" which tier brought in how many stale tokens. A number: how many storage keys are remembered; `on`: {KEYS:,}",
    ),
    Variable(
        "QUIESCE_PATIENCE",
        "a number of seconds",
        f"`{PATIENCE_SECONDS}`",
        f"how long what must come at some time may take, before a violation of {_OVERDUE} is counted",
    ),
)
"""Every variable that `Settings.from_environment` reads."""


@dataclass(frozen=True)
class CensusOptions:
    """When the pages of the KV pool are counted."""

    on: bool = True
    """At idle, after a retract, before and after a flush."""
    passes: int = 0
    """And where so many batches were launched since the last census; 0: nowhere."""


@dataclass(frozen=True)
class LineageOptions:
    """Whether the weights behind KV pages are followed."""

    on: bool = False
    keys: int = KEYS
    """How many keys of a storage are remembered."""


@dataclass(frozen=True)
class Settings:
    """The settings of one process."""

    mode: Mode = Mode.OBSERVE
    remedies: tuple[str, ...] = ()
    """As written: names, or the one word `all`; `chosen_remedies` checks them against a profile."""
    status_dir: Path | None = None
    record_dir: Path | None = None
    """Where flight records go; None: nothing is recorded."""
    trace_dir: Path | None = None
    """Where traces go; None: nothing is traced."""
    census: str = ""
    """As written; `census_options` reads it."""
    lineage: str = ""
    """As written; `lineage_options` reads it."""
    patience: str = ""
    """As written; `patience_seconds` reads it."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; raises SettingsError for a value of QUIESCE that is none of the modes."""
        text = environ.get("QUIESCE", "").strip().lower() or Mode.OBSERVE.value
        try:
            mode = Mode(text)
        except ValueError:
            valid = ", ".join(m.value for m in Mode)
            raise SettingsError(f"QUIESCE={environ['QUIESCE']!r} is not a mode; valid: {valid}") from None
        names = tuple(name.strip() for name in environ.get("QUIESCE_REMEDIES", "").split(",") if name.strip())
        return cls(
            mode=mode,
            remedies=names,
            status_dir=_folder(environ, "QUIESCE_STATUS_DIR"),
            record_dir=_folder(environ, "QUIESCE_RECORD"),
            trace_dir=_folder(environ, "QUIESCE_TRACE"),
            census=environ.get("QUIESCE_CENSUS", "").strip(),
            lineage=environ.get("QUIESCE_LINEAGE", "").strip(),
            patience=environ.get("QUIESCE_PATIENCE", "").strip(),
        )

    def chosen_remedies(self, known: Collection[str]) -> tuple[str, ...]:
        """The remedies to activate, sorted; raises SettingsError for a name that the profile does not have."""
        unknown = [name for name in self.remedies if name not in (ALL_REMEDIES, *known)]
        if unknown:
            valid = ", ".join([ALL_REMEDIES, *sorted(known)])
            raise SettingsError(f"QUIESCE_REMEDIES names {', '.join(map(repr, unknown))}, unknown; valid: {valid}")
        return tuple(sorted(known if ALL_REMEDIES in self.remedies else set(self.remedies)))

    def census_options(self) -> CensusOptions:
        """When pages are counted; raises SettingsError for a value of QUIESCE_CENSUS that is not valid."""
        text = self.census.lower() or "on"
        if text in ("on", "off"):
            return CensusOptions(on=text == "on")
        if _is_number(text):
            return CensusOptions(passes=int(text))
        raise SettingsError(f"QUIESCE_CENSUS={self.census[:40]!r} is not valid; valid: on, off, or a number of batches")

    def lineage_options(self) -> LineageOptions:
        """Whether lineage is followed; raises SettingsError for a value of QUIESCE_LINEAGE that is not valid."""
        text = self.lineage.lower() or "off"
        if text in ("on", "off"):
            return LineageOptions(on=text == "on")
        if _is_number(text):
            return LineageOptions(on=True, keys=int(text))
        raise SettingsError(
            f"QUIESCE_LINEAGE={self.lineage[:40]!r} is not valid; valid: on, off, or a number of storage keys"
        )

    def patience_seconds(self) -> int:
        """How long what must come may take; raises SettingsError for a value of QUIESCE_PATIENCE that is not valid."""
        if not self.patience:
            return PATIENCE_SECONDS
        if _is_number(self.patience):
            return int(self.patience)
        raise SettingsError(f"QUIESCE_PATIENCE={self.patience[:40]!r} is not valid; valid: a number of seconds")


def _is_number(text: str) -> bool:
    return len(text) <= _DIGITS and text.isascii() and text.isdecimal() and int(text) > 0


def _folder(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "").strip()
    return Path(text) if text else None
