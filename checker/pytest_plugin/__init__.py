"""The pytest plugin: real engines under control, the protocol's invariants in any test, proofs as test items.

Entry point `quiesce` of the group `pytest11`. A suite that asks for none of it pays for none of it: what is imported
here is pytest alone, and no hook is on the way of a test until a marker or an option of this plugin is used.

What it sees is what the monitor in the engine sees (README, "What is claimed"): engines started without the hooks, or
with QUIESCE=off, it cannot watch, and says so where a test demanded it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Protocol

    from checker.pytest_plugin.enforce import Watcher
    from checker.pytest_plugin.engines import EngineOptions, Models, TestbedEngine
    from engine_hooks.sglang.testbed.control import RankControl
    from engine_hooks.sglang.testbed.warm import Warm

    class AssertProtocol(Protocol):
        """What the fixture `assert_protocol` gives."""

        def __call__(
            self, engine: object = None, *, properties: tuple[str, ...] = (), allow: tuple[str, ...] = ()
        ) -> AbstractContextManager[None]:
            """See `checker.pytest_plugin.watch.assert_protocol`."""


MARKER = "quiesce"
VERIFY_MARKER = "quiesce_verify"
_MARKERS = (
    f"{MARKER}(properties=(), allow=(), required=True): fail where the monitor of an SGLang engine sees a violation",
    f"{VERIFY_MARKER}: carried by the items of --quiesce-verify",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("quiesce", "the pause, update, flush, continue protocol of inference engines")
    flag, several = {"action": "store_true"}, {"action": "append", "default": []}
    group.addoption(
        "--quiesce", **flag, help="Enforce the protocol's invariants in every test that runs an SGLang engine."
    )
    group.addoption(
        "--quiesce-allow", **several, metavar="ID", help="A property whose violations fail no test (may be repeated)."
    )
    group.addoption(
        "--quiesce-testbed",
        **flag,
        help="Run the engines that tests start on the CPU, with transfers under control (fixture quiesce_transfers).",
    )
    group.addoption("--quiesce-verify", **flag, help="Add an item for each property in each configuration.")
    group.addoption("--quiesce-profile", metavar="NAME", help="The profile to verify; as `checker verify --profile`.")
    for name, metavar in (("remedy", "NAME"), ("property", "ID"), ("loop", "NAME"), ("mode", "NAME")):
        group.addoption(
            f"--quiesce-{name}", **several, metavar=metavar, help=f"As `checker verify --{name}` (may be repeated)."
        )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and what the options ask for."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    if config.getoption("--quiesce-testbed"):
        from checker.pytest_plugin.testbed import Testbed  # noqa: PLC0415 - a suite without it does not pay for it

        config.pluginmanager.register(Testbed(config), "quiesce-testbed")
    if config.getoption("--quiesce"):
        _watch(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the items of --quiesce-verify before anything is deselected."""
    if config.getoption("--quiesce-verify"):
        from checker.pytest_plugin.proofs import proof_items  # noqa: PLC0415 - a suite without it does not pay for it

        items += proof_items(session)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch engines where a test of this run is marked."""
    marked = [item for item in session.items if item.get_closest_marker(MARKER)]
    if marked:
        _watch(session.config).check(marked)


_INSTALL = "install what quiesce watches with: in the checkout, pip install '.[pytest]'"
_ENGINE = "an engine on the CPU needs the pinned SGLang: tools/setup.sh engine, in the checkout"


def _watch(config: pytest.Config) -> Watcher:
    try:
        from checker.pytest_plugin.enforce import Watcher  # noqa: PLC0415 - a suite without it does not pay for it
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"{error}; {_INSTALL}") from error

    found = config.pluginmanager.get_plugin("quiesce-watcher")
    if isinstance(found, Watcher):
        return found
    made = Watcher(config)
    config.pluginmanager.register(made, "quiesce-watcher")
    return made


@pytest.fixture(scope="session")
def assert_protocol() -> AssertProtocol:
    """Fails the test where the engine's monitor saw a violation inside a `with` block.

    `with assert_protocol(engine):` takes a `quiesce_engine` or a folder of status files (QUIESCE_STATUS_DIR of the
    engine); left out: the engines that this session watches. Options: `properties` (only these), `allow` (not these).
    """
    from checker.pytest_plugin.watch import assert_protocol as block  # noqa: PLC0415 - loaded where it is used

    return block


@pytest.fixture(scope="session")
def quiesce_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Two tiny random models, `old` and `new`, that differ in nothing but their weights."""
    try:
        from checker.pytest_plugin.engines import Models  # noqa: PLC0415 - it loads torch
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"{error}; {_ENGINE}") from error

    return Models.make(tmp_path_factory.mktemp("quiesce-models"))


@pytest.fixture(scope="session")
def quiesce_warm(quiesce_models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Where the session's engines start from, so that SGLang is imported once."""
    from engine_hooks.sglang.testbed.warm import Warm  # noqa: PLC0415 - loaded where it is used

    with Warm(quiesce_models.old, tmp_path_factory.mktemp("quiesce-warm")) as warm:
        yield warm


@pytest.fixture(scope="module")
def quiesce_engine_options() -> EngineOptions:
    """Which engine `quiesce_engine` is; override it in a module or a conftest."""
    try:
        from checker.pytest_plugin.engines import EngineOptions  # noqa: PLC0415 - loaded where it is used
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"{error}; {_ENGINE}") from error

    return EngineOptions()


@pytest.fixture(scope="module")
def quiesce_module_engine(
    quiesce_engine_options: EngineOptions,
    quiesce_models: Models,
    quiesce_warm: Warm,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TestbedEngine]:
    """The engine of a module's tests, started once."""
    from checker.pytest_plugin.engines import started  # noqa: PLC0415 - loaded where it is used

    folder = tmp_path_factory.mktemp("quiesce-engine")
    with started(quiesce_engine_options, quiesce_models.old, folder, quiesce_warm) as engine:
        yield engine


@pytest.fixture
def quiesce_engine(quiesce_module_engine: TestbedEngine) -> Iterator[TestbedEngine]:
    """A real SGLang engine on the CPU whose transfers a test holds, steps, delays and fails: `engine.rank.d2h.hold()`.

    It is shared by the tests of a module. After each test nothing is held and the engine is continued; what the test
    left in its caches stays.
    """
    yield quiesce_module_engine
    quiesce_module_engine.restore()


@pytest.fixture
def quiesce_transfers(pytestconfig: pytest.Config) -> Iterator[RankControl]:
    """With --quiesce-testbed: the transfers of rank 0 of whatever engine the test's own code starts, or will start."""
    testbed = pytestconfig.pluginmanager.get_plugin("quiesce-testbed")
    if testbed is None:
        pytest.fail("quiesce_transfers needs the option --quiesce-testbed", pytrace=False)
    rank: RankControl = testbed.control.rank()
    yield rank
    rank.restore()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which of it is on."""
    names = ("--quiesce", "--quiesce-testbed", "--quiesce-verify")
    on = [name for name in names if config.getoption(name)]
    return [f"quiesce: {', '.join(on)}"] if on else []
