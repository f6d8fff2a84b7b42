"""--quiesce-verify: one item for each property in each configuration of a profile, decided by `checker verify`.

The first item of a loop that runs has all items of that loop decided that were selected, in a process of its own: the
configurations of a loop teach each other, and no solver is loaded where tests run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from checker.options import chosen_profile
from checker.results import Report, Result
from checker.story import tell
from checker.verdict import EXIT_PROVED, EXIT_REFUTED, EXIT_UNKNOWN, Verdict
from spec.errors import QuiesceError
from spec.profile import Configuration, Profile

if TYPE_CHECKING:
    from _pytest._code.code import ExceptionInfo, TerminalRepr, TracebackStyle

    Style = TracebackStyle | None

_ANSWERED = (EXIT_PROVED, EXIT_REFUTED, EXIT_UNKNOWN)
_STORY_LINES = 30
Names = tuple[str, ...]


class NotProvedError(Exception):
    """A property that is not proved; the text is what to show."""


@dataclass(frozen=True)
class Chosen:
    """What the options of pytest choose, as they were given."""

    profile: Profile
    name: str | None
    remedies: tuple[str, ...]
    modes: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """For `checker`."""
        named = ["--profile", self.name] if self.name is not None else ["--profile", self.profile.name]
        return [*named, *(part for remedy in self.remedies for part in ("--remedy", remedy))]

    @property
    def label(self) -> str:
        """For ids of items."""
        return "+".join((self.profile.name, *self.profile.applied))


class Proofs(pytest.Collector):
    """The items of one profile, and what was decided so far."""

    def __init__(self, *, chosen: Chosen, only: tuple[Names, Names], **kwargs: object) -> None:
        """`only`: these properties and these loops; empty means all."""
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self._chosen, (self._properties, self._loops) = chosen, only
        self._decided: dict[str, dict[tuple[str, str, str], Result] | Exception] = {}

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each property in each configuration."""
        from spec.properties import chosen as properties  # noqa: PLC0415 - it loads z3

        ids = [prop.id for prop in properties(self._properties)]
        for configuration in self._chosen.profile.configurations(self._loops, self._chosen.modes):
            for property_id in ids:
                place = f"{configuration.loop}-{configuration.mode}-{configuration.storage}"
                yield Proof.from_parent(
                    self, name=f"{property_id}[{place}]", property_id=property_id, configuration=configuration
                )

    def result(self, wanted: Proof) -> Result:
        """The result of one item. Raises NotProvedError where there is none."""
        loop = wanted.configuration.loop
        if loop not in self._decided:
            selected = [i for i in self.session.items if isinstance(i, Proof) and i.configuration.loop == loop]
            try:
                report = self._verify(loop, selected or [wanted])
                self._decided[loop] = {_key(r): r for r in report.results}
            except NotProvedError as error:
                self._decided[loop] = error
        found = self._decided[loop]
        if isinstance(found, Exception):
            raise found
        try:
            return found[wanted.key]
        except KeyError:
            raise NotProvedError(f"checker verify gave no result for {wanted.name}") from None

    def _verify(self, loop: str, items: list[Proof]) -> Report:
        modes = dict.fromkeys(item.configuration.mode for item in items)
        ids = dict.fromkeys(item.property_id for item in items)
        command = [sys.executable, "-m", "checker", "verify", "--json", *self._chosen.arguments, "--loop", loop]
        command += [part for mode in modes for part in ("--mode", mode)]
        command += [part for name in ids for part in ("--property", name)]
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONSAFEPATH": "1"}
        )
        if done.returncode not in _ANSWERED:
            raise NotProvedError(f"{' '.join(command)}\nended with exit code {done.returncode}:\n{done.stderr}")
        return msgspec.json.decode(done.stdout, type=Report)

    @property
    def arguments(self) -> list[str]:
        """For `checker`, to ask the same again."""
        return self._chosen.arguments


class Proof(pytest.Item):
    """One property in one configuration. Only a proof passes."""

    parent: Proofs

    def __init__(self, *, property_id: str, configuration: Configuration, **kwargs: object) -> None:
        """What it decides."""
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.property_id, self.configuration = property_id, configuration
        self.add_marker("quiesce_verify")
        # A solver may take longer than a test may; it has limits of its own.
        if self.config.pluginmanager.has_plugin("timeout"):
            self.add_marker(pytest.mark.timeout(0))

    @property
    def key(self) -> tuple[str, str, str]:
        """Which result is its own, of those of its loop."""
        return self.property_id, self.configuration.mode, self.configuration.storage

    def runtest(self) -> None:
        """Raises NotProvedError."""
        result = self.parent.result(self)
        verdict = Verdict(result.verdict)
        if verdict is Verdict.NOT_APPLICABLE:
            pytest.skip(f"not applicable: {result.reason}")
        if not verdict.passes:
            raise NotProvedError("\n".join(self._told(result)))

    def _told(self, result: Result) -> Iterator[str]:
        yield f"{self.property_id} is {result.verdict} on {' with '.join(self.parent.name.split('+', 1))}"
        lines = list(tell(result))
        yield from lines[:_STORY_LINES]
        if len(lines) > _STORY_LINES:
            yield f"  … and {len(lines) - _STORY_LINES} lines more"
        yield ""
        where = f"--loop {self.configuration.loop} --mode {self.configuration.mode}"
        yield f"the story again: checker explain {self.property_id} {' '.join(self.parent.arguments)} {where}"

    def repr_failure(self, excinfo: ExceptionInfo[BaseException], style: Style = None) -> str | TerminalRepr:
        """The story alone: a traceback of ours would say nothing."""
        if isinstance(excinfo.value, NotProvedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where it stands in the report."""
        return self.path, None, f"{self.parent.name}: {self.name}"


def _key(result: Result) -> tuple[str, str, str]:
    return result.property, str(result.configuration["mode"]), str(result.configuration["storage"])


def proof_items(session: pytest.Session) -> list[pytest.Item]:
    """The items that the options ask for. Raises pytest.UsageError."""

    def option(name: str) -> tuple[str, ...]:
        return tuple(session.config.getoption(f"--quiesce-{name}"))

    name, remedies = session.config.getoption("--quiesce-profile"), option("remedy")
    try:
        profile = chosen_profile(name, None, remedies)
        chosen = Chosen(profile, name, remedies, option("mode"))
        parent = Proofs.from_parent(
            session,
            name=chosen.label,
            nodeid=f"quiesce::{chosen.label}",
            path=Path(profile.path),
            chosen=chosen,
            only=(option("property"), option("loop")),
        )
        list(parent.collect())
    except QuiesceError as error:
        raise pytest.UsageError(str(error)) from error
    return _collected(session, parent)


def _collected(session: pytest.Session, parent: pytest.Collector) -> list[pytest.Item]:
    """The items, reported as any collector's are, so that they count as collected."""
    session.ihook.pytest_collectstart(collector=parent)
    report = session.ihook.pytest_make_collect_report(collector=parent)
    session.ihook.pytest_collectreport(report=report)
    return list(report.result)
