"""Enforces the invariants in the tests that are marked, or in all of them with --quiesce."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from checker.pytest_plugin import MARKER
from checker.pytest_plugin.watch import Status, Wanted, Watch
from spec.errors import QuiesceError

_WATCH = pytest.StashKey[Watch]()
_WANTED = pytest.StashKey[Wanted]()
_SAID = pytest.StashKey[str]()
_VARIABLE = "QUIESCE_STATUS_DIR"


class Watcher:
    """The hooks around each test. Engines find the folder that they report into in the environment they inherit."""

    def __init__(self, config: pytest.Config) -> None:
        """Set the environment up; a folder that the user has set stays."""
        self._every = bool(config.getoption("--quiesce"))
        self._allow = tuple(config.getoption("--quiesce-allow"))
        self._temporary: TemporaryDirectory[str] | None = None
        self._doubts: list[str] = []
        self._tests = 0
        _checked(lambda: Wanted(allow=self._allow))
        if not os.environ.get(_VARIABLE):
            self._temporary = TemporaryDirectory(prefix="quiesce-status-", ignore_cleanup_errors=True)
            os.environ[_VARIABLE] = self._temporary.name
        self.folder = Path(os.environ[_VARIABLE])
        self._session = Watch(self.folder)

    def pytest_unconfigure(self) -> None:
        """Leave the environment as it was."""
        if self._temporary is not None:
            os.environ.pop(_VARIABLE, None)
            self._temporary.cleanup()

    def check(self, items: Iterable[pytest.Item]) -> None:
        """Raises pytest.UsageError for a marker that says what there is not, before any test runs."""
        for item in items:
            self._wanted(item)

    def _wanted(self, item: pytest.Item) -> Wanted | None:
        marker = item.get_closest_marker(MARKER)
        if marker is None:
            return Wanted(allow=self._allow, required=False) if self._every else None
        options = dict(marker.kwargs)
        properties, allow = (_names(item, key, options.pop(key, ())) for key in ("properties", "allow"))
        required = options.pop("required", True)
        if marker.args or options or not isinstance(required, bool):
            valid = "properties and allow (lists of names), required (True or False)"
            raise pytest.UsageError(f"{item.nodeid}: marker quiesce takes these by name: {valid}; got {marker}")
        return _checked(lambda: Wanted(properties, (*allow, *self._allow), required), f"{item.nodeid}: ")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """From here on what is new is this test's: its class or module may start an engine now."""
        wanted = self._wanted(item)
        if wanted is not None:
            item.stash[_WATCH], item.stash[_WANTED], item.stash[_SAID] = Watch(self.folder), wanted, ""
            self._tests += 1
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Judge what the engines did up to the end of the test."""
        try:
            yield
        except pytest.skip.Exception:
            if said := self._judge(item):
                pytest.fail(said, pytrace=False)
            raise
        except (Exception, pytest.fail.Exception):  # whatever failed: what the monitor saw is told beside it
            self._judge(item)
            raise
        if said := self._judge(item):
            pytest.fail(said, pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Judge what happened since; most often the engine is gone by now."""
        yield
        watch, wanted = item.stash.get(_WATCH, None), item.stash.get(_WANTED, None)
        if watch is None or wanted is None:
            return
        new = [text for text in watch.violations(wanted) if text not in item.stash[_SAID]]
        if new:
            pytest.fail("\n\n".join(new), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test that failed by itself gets the explanation too: it may be why."""
        report = yield
        said = item.stash.get(_SAID, "") if call.when == "call" else ""
        if said and report.failed and said not in report.longreprtext:
            report.sections.append(("quiesce: seen in the engine meanwhile", said))
        return report

    def _judge(self, item: pytest.Item) -> str:
        watch, wanted = item.stash.get(_WATCH, None), item.stash.get(_WANTED, None)
        if watch is None or wanted is None:
            return ""
        silent = watch.settled()
        item.stash[_SAID] = said = watch.verdict(wanted, silent)
        if not wanted.required:
            self._doubt(item, watch, wanted, silent)
        return said

    def _doubt(self, item: pytest.Item, watch: Watch, wanted: Wanted, silent: list[Status]) -> None:
        """Where seeing is not required: what was not seen is said at the end, once for each reason."""
        if any(status.lives for status in watch.read().values()):
            self._doubts += [f"{item.nodeid}: {text}" for text in watch.blind(wanted, silent)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How much was watched: a run that saw no engine has shown nothing."""
        if terminalreporter.config.pluginmanager.has_plugin("dsession"):
            return  # xdist: the workers ran the tests, each with a watcher and engines of its own
        engines = self._session.read()
        terminalreporter.section("quiesce")
        checks = sum(int(n) for status in engines.values() for n in status.series.get("checks_total", {}).values())
        terminalreporter.line(f"{self._tests} tests watched, {len(engines)} schedulers reported, {checks} checks made")
        if not engines:
            terminalreporter.line("no scheduler reported, so nothing was checked", yellow=True)
        for doubt in self._doubts[:20]:
            terminalreporter.line(f"cannot tell: {doubt}", yellow=True)
        if len(self._doubts) > 20:  # noqa: PLR2004 - a screen of them says enough
            terminalreporter.line(f"and {len(self._doubts) - 20} more", yellow=True)


def _checked(make: Callable[[], Wanted], place: str = "") -> Wanted:
    """Our errors as pytest's own for bad usage, with where it stands."""
    try:
        return make()
    except QuiesceError as error:
        raise pytest.UsageError(f"{place}{error}") from error


def _names(item: pytest.Item, key: str, given: object) -> tuple[str, ...]:
    """What the marker gives under a key: one name, or some."""
    names = (given,) if isinstance(given, str) else given
    if isinstance(names, (tuple, list, set, frozenset)) and all(isinstance(name, str) for name in names):
        return tuple(names)
    raise pytest.UsageError(f"{item.nodeid}: marker quiesce: {key} takes a name or a list of names, got {given!r}")
