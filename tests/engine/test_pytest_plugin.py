"""The pytest plugin on real engines: SGLang's own style of test, unchanged; and the plugin's own engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from harness import Models

pytestmark = pytest.mark.engine
pytest_plugins = ["pytester"]

SUITES = Path(__file__).parent / "suites"
# Each test once as it is, then the two that pause and flush once more on the same server, with its copies to the host
# held: the founding case. It is the conftest that holds them, so the file stays as it is.
PROVOKE = """
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "provoked: with transfers held")

def pytest_collection_modifyitems(items):
    for item in list(items):
        if item.name in ("test_pause_retract_completes", "test_update_weights_while_paused"):
            again = type(item).from_parent(item.parent, name=item.name, callobj=item.obj)
            again.add_marker("provoked")
            items.append(again)

@pytest.fixture(autouse=True)
def provoked(request, quiesce_transfers):
    if request.node.get_closest_marker("provoked"):
        quiesce_transfers.d2h.hold()
    yield
    # Else the next test would hold what this one left.
    quiesce_transfers.restore()
    quiesce_transfers.wait_idle()

@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report):
    if report.when == "call" or report.failed:
        how = "provoked" if "provoked" in report.keywords else "as it is"
        print(f"\\n{report.when} of {report.nodeid.rpartition('::')[2]} {how}: {report.outcome}")
    return (yield)
"""
EXPLAINED = """
quiesce: paused-flush-succeeds does not hold
  on         sglang 0.5.23 (process *), tp0 pp0 dp0, pass * of loop normal
  since      20*UTC (paused for * s, mode retract)
  seen       the flush that is wanted can never be granted in this pause
  in flight  write_through (* submitted, the oldest seen * s ago; *:writing_check would have to run)
  now        no retry can succeed while paused: call continue_generation and then flush, before any new request; *
  the story  checker explain paused-flush-succeeds --profile sglang-0.5.23 --loop normal
""".strip().splitlines()


def inner(pytester: pytest.Pytester, name: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(**{f"test_{name}": (SUITES / f"{name}.py").read_text(encoding="utf-8")})
    return pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider", *options)


def test_sglangs_own_style_of_test_runs_unchanged_and_fails_where_it_is_provoked(
    pytester: pytest.Pytester, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where SGLang's tests look for the models that they name.
    family = pytester.mkdir("models") / "meta-llama"
    family.mkdir()
    (family / "Llama-3.2-1B-Instruct").symlink_to(models.old)
    monkeypatch.setenv("DEFAULT_MODEL_CACHE_DIR", str(family.parent))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("SGLANG_IS_IN_CI", raising=False)
    pytester.makeconftest(PROVOKE)
    done = inner(pytester, "pause_flush_hicache", "--quiesce", "--quiesce-testbed")
    done.assert_outcomes(passed=4, failed=2)
    assert [line for line in done.outlines if line.startswith(("call of", "setup of", "teardown of"))] == [
        "call of test_hicache_hit as it is: passed",
        "call of test_pause_resume_in_place as it is: passed",
        "call of test_pause_retract_completes as it is: passed",
        "call of test_update_weights_while_paused as it is: passed",
        "call of test_pause_retract_completes provoked: failed",
        "call of test_update_weights_while_paused provoked: failed",
    ]
    # By itself the one would have passed; the other says only that it is not flushed.
    done.stdout.fnmatch_lines(["*_ TestPauseFlushHiCache.test_pause_retract_completes _*", *EXPLAINED])
    done.stdout.fnmatch_lines(
        [
            "*_ TestPauseFlushHiCache.test_update_weights_while_paused _*",
            '*"Weights were updated, but the cache was not flushed *',
            "*quiesce: seen in the engine meanwhile*",
            "quiesce: update-flushes does not hold",
            "*an update (disk) with flush_cache was answered unflushed",
            *EXPLAINED,
        ]
    )
    done.stdout.fnmatch_lines(["6 tests watched, 1 schedulers reported, * checks made"])


def test_the_engine_that_the_plugin_offers(pytester: pytest.Pytester) -> None:
    done = inner(pytester, "fixtures")
    done.assert_outcomes(passed=3, failed=2)
    done.stdout.fnmatch_lines(["*_ test_provoked _*", ">       with assert_protocol(quiesce_engine):"])
    done.stdout.fnmatch_lines(["*_ test_provoked _*", *(f"E *{line.strip()}" for line in EXPLAINED)])
    done.stdout.fnmatch_lines(["*_ test_marked_and_provoked _*", *EXPLAINED])
