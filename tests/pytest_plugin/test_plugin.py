"""The plugin where no engine is needed: what it costs, what it enforces, what it says."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent
STUCK = """
quiesce: paused-flush-succeeds does not hold
  on         sglang 0.5.23 (process *), tp0 pp0 dp0, pass 7 of loop normal
  since      20??-??-?? ??:??:?? UTC (paused for 0.?? s, mode retract)
  seen       the flush that is wanted can never be granted in this pause
  in flight  write_through (1 submitted; *:writing_check would have to run)
  now        no retry can succeed while paused: call continue_generation and then flush, before any new request; *
  the story  checker explain paused-flush-succeeds --profile sglang-0.5.23 --loop normal
""".strip().splitlines()


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.delenv("QUIESCE_STATUS_DIR", raising=False)
    pytester.makeconftest((HERE / "scheduler_conftest.py").read_text(encoding="utf-8"))

    def run(text, *options):
        pytester.makepyfile(textwrap.dedent(text))
        return pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--strict-markers", *options
        )

    return run


def in_traceback():
    return [f"E *{line.strip()}" for line in STUCK]


# What a suite pays that does not use it.


def test_a_suite_that_does_not_use_it_imports_pytest_alone(tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_plain():\n"
        "    loaded = {name.split('.')[0] for name in sys.modules}\n"
        "    assert 'checker.pytest_plugin' in sys.modules\n"
        "    assert not loaded & {'z3', 'sglang', 'torch', 'msgspec', 'spec', 'engine_hooks', 'click', 'requests'}\n"
        "    assert [name for name in sorted(sys.modules) if name.split('.')[0] == 'checker'] == ['checker', "
        "'checker.pytest_plugin']\n",
        encoding="utf-8",
    )
    # Other plugins of this environment load more; what they load is not ours.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "checker.pytest_plugin", "test_plain.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 passed" in done.stdout


def test_it_is_found_without_being_named_and_registers_its_markers(pytester):
    done = pytester.runpytest_subprocess("--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.quiesce(properties=(), allow=(), required=True): *", "*quiesce_verify: *"])


def test_every_option_and_fixture_is_described(pytester):
    page = (HERE.parents[1] / "docs" / "reference" / "pytest.md").read_text(encoding="utf-8")
    options = set(re.findall(r"--quiesce[a-z-]*", pytester.runpytest_subprocess("--help").stdout.str()))
    assert len(options) == 9
    assert set(re.findall(r"--quiesce[a-z-]*", page)) == options
    fixtures = set(
        re.findall(
            r"^(quiesce_\w+|assert_protocol)", pytester.runpytest_subprocess("--fixtures").stdout.str(), re.MULTILINE
        )
    )
    # What quiesce_engine is made of.
    assert {name for name in fixtures if name not in page} == {"quiesce_module_engine", "quiesce_warm"}


# The marker.


def test_a_marked_test_fails_with_the_explanation(suite):
    done = suite("""
        import pytest

        @pytest.mark.quiesce
        def test_clean(scheduler):
            scheduler.keep_the_protocol()

        @pytest.mark.quiesce
        def test_stuck(scheduler):
            scheduler.be_stuck()

        def test_not_marked(scheduler):
            scheduler.be_stuck()
        """)
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*_ test_stuck _*", *STUCK])
    done.stdout.fnmatch_lines(["2 tests watched, * schedulers reported, * checks made"])


def test_a_test_that_fails_by_itself_gets_the_explanation_beside_its_own_failure(suite):
    done = suite("""
        import unittest
        import pytest

        @pytest.mark.quiesce
        def test_function(scheduler):
            scheduler.be_stuck()
            assert "the flush" == "granted"

        @pytest.mark.quiesce
        def test_that_gives_up(scheduler):
            scheduler.be_stuck()
            pytest.fail("the flush was not granted")
        """)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*assert 'the flush' == 'granted'*", "*seen in the engine meanwhile*", *STUCK])
    done.stdout.fnmatch_lines(["*Failed: the flush was not granted*", "*seen in the engine meanwhile*", *STUCK])


def test_unittest_classes_are_watched_from_the_start_of_their_set_up(suite):
    done = suite("""
        import os, unittest
        import pytest
        from conftest import Scheduler

        @pytest.mark.quiesce
        class TestEngine(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.scheduler = Scheduler(os.environ["QUIESCE_STATUS_DIR"])

            @classmethod
            def tearDownClass(cls):
                cls.scheduler.be_stuck(sequence=9)
                cls.scheduler.stop()

            def test_1_clean(self):
                self.scheduler.keep_the_protocol()

            def test_2_stuck(self):
                self.scheduler.be_stuck()
                self.scheduler.get_unstuck()

            def test_3_fails_too(self):
                self.scheduler.be_stuck(sequence=8)
                self.scheduler.get_unstuck()
                self.assertEqual(1, 2)

            def test_4_clean(self):
                self.scheduler.keep_the_protocol()
        """)
    done.assert_outcomes(passed=2, failed=2, errors=1)
    done.stdout.fnmatch_lines(["*ERROR at teardown of TestEngine.test_4_clean*", "*pass 9 of loop normal"])
    done.stdout.fnmatch_lines(["*_ TestEngine.test_2_stuck _*", *STUCK])
    done.stdout.fnmatch_lines(["*AssertionError: 1 != 2", "*seen in the engine meanwhile*", "*pass 8 of loop normal"])


def test_what_is_allowed_or_not_asked_for_fails_nothing(suite):
    done = suite(
        """
        import pytest

        @pytest.mark.quiesce(allow=["paused-flush-succeeds"])
        def test_allowed(scheduler):
            scheduler.be_stuck()

        @pytest.mark.quiesce(properties=["no-forward-while-paused"])
        def test_another(scheduler):
            scheduler.be_stuck()
            scheduler.monitor.forward()

        @pytest.mark.quiesce(properties=["no-forward-while-paused"])
        def test_allowed_for_all(scheduler):
            scheduler.be_stuck()
            scheduler.monitor.update_answered("disk", "unflushed")
        """,
        "--quiesce-allow=update-flushes",
    )
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["*_ test_another _*", "quiesce: no-forward-while-paused does not hold"])


def test_a_demanded_check_that_cannot_be_made_does_not_pass(suite):
    done = suite("""
        import pytest

        @pytest.mark.quiesce
        def test_no_engine():
            pass

        @pytest.mark.quiesce(required=False)
        def test_no_engine_needed():
            pass

        @pytest.mark.quiesce
        def test_blind(scheduler):
            scheduler.monitor.lost("forward", "gone")

        @pytest.mark.quiesce(properties=["idle-is-true"])
        def test_blind_elsewhere(scheduler):
            scheduler.monitor.lost("forward", "gone")
        """)
    done.assert_outcomes(passed=2, failed=2)
    done.stdout.fnmatch_lines(
        [
            "*_ test_no_engine _*",
            "quiesce: cannot tell: no monitor reported into *; is quiesce installed beside an SGLang that ran *",
            "*_ test_blind _*",
            "quiesce: cannot tell: no-forward-while-paused is not checked on sglang 0.5.23 (process *): lost forward",
            "quiesce: cannot tell: no-stale-kv is not checked on sglang 0.5.23 (process *): lost forward",
        ]
    )


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("(allow=['paused-flush-succeed'])", "*::test_it: unknown watched property 'paused-flush-succeed'; did you *"),
        ("(properties='update-flush')", "*::test_it: unknown watched property 'update-flush'; did you mean *"),
        ("(allow=5)", "*::test_it: marker quiesce: allow takes a name or a list of names, got 5"),
        ("(required='no')", "*::test_it: marker quiesce takes these by name: properties and allow *; got *"),
        ("(only=['x'])", "*::test_it: marker quiesce takes these by name: properties and allow *; got *"),
        ("('x')", "*::test_it: marker quiesce takes these by name: properties and allow *; got *"),
    ],
)  # fmt: skip
def test_a_marker_that_says_what_there_is_not_ends_the_session(suite, marker, said):
    done = suite(f"import pytest\n@pytest.mark.quiesce{marker}\ndef test_it():\n    pass\n")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: {said}"])


# The option.


def test_the_option_enforces_everywhere_and_says_what_it_did_not_see(suite):
    text = """
        def test_without_an_engine():
            pass

        def test_blind(scheduler):
            scheduler.monitor.lost("idle", "gone")

        def test_stuck(scheduler):
            scheduler.be_stuck()
        """
    done = suite(text, "--quiesce")
    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(["quiesce: --quiesce", *STUCK, "3 tests watched, *"])
    done.stdout.fnmatch_lines(["cannot tell: *::test_blind: idle-is-true is not checked on *: lost idle"])
    done = suite(text, "--quiesce", "--quiesce-allow=paused-flush-succeeds")
    done.assert_outcomes(passed=3)


def test_a_run_that_saw_no_engine_says_so(suite):
    done = suite("def test_it():\n    pass\n", "--quiesce")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["1 tests watched, 0 schedulers reported, 0 checks made", "no scheduler reported, so *"])


def test_where_workers_run_the_tests_their_controller_says_nothing_of_it(suite, pytester):
    (pytester.path / "conftest.py").write_text(
        "def pytest_configure(config):\n    config.pluginmanager.register(object(), 'dsession')\n", encoding="utf-8"
    )
    done = suite("def test_it():\n    pass\n", "--quiesce")
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*schedulers reported*")


def test_what_it_lacks_it_names_with_how_to_install_it(suite, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("checker.pytest_plugin.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psutil", None)
    done = suite("def test_it():\n    pass\n", "--quiesce")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        ["ERROR: *psutil*; install what quiesce watches with: in the checkout, pip install '.[[]pytest[]]'"]
    )


def test_the_environment_is_left_as_it_was(suite, monkeypatch, tmp_path):
    text = "import os\ndef test_it():\n    print('status in', os.environ['QUIESCE_STATUS_DIR'])\n"
    suite(text, "--quiesce", "-s").stdout.fnmatch_lines(["*status in *quiesce-status-*"])
    monkeypatch.setenv("QUIESCE_STATUS_DIR", str(tmp_path))
    suite(text, "--quiesce", "-s").stdout.fnmatch_lines([f"*status in {tmp_path}"])
    assert tmp_path.exists()


def test_each_ledger_has_a_line_of_its_own(suite):
    done = suite("def test_it(scheduler):\n    scheduler.be_stuck_in_two_ledgers()\n", "--quiesce")
    done.stdout.fnmatch_lines(
        [
            "  in flight  write_through (1 submitted; *would have to run)",
            "  in flight  prefetch (2 queued; *would have to run)",
            "  now  *",
        ]
    )


# The block.


def test_a_block_fails_only_for_what_began_inside_it(suite):
    done = suite("""
        import pytest

        def test_clean(scheduler, assert_protocol):
            with assert_protocol(scheduler):
                scheduler.keep_the_protocol()

        def test_stuck(scheduler, assert_protocol):
            with assert_protocol(scheduler):
                scheduler.be_stuck()

        def test_stuck_before(scheduler, assert_protocol):
            scheduler.be_stuck()
            scheduler.monitor.board.tick(force=True)
            with assert_protocol(scheduler, allow=("paused-flush-succeeds",)):
                scheduler.get_unstuck()
            with assert_protocol(scheduler.status_dir):
                scheduler.keep_the_protocol()

        def test_raises(scheduler, assert_protocol):
            with assert_protocol(scheduler):
                scheduler.be_stuck()
                raise ValueError("of the block")

        def test_no_engine(assert_protocol, tmp_path):
            with assert_protocol(tmp_path):
                pass

        def test_nothing_named(assert_protocol):
            with assert_protocol():
                pass

        def test_no_such_thing(assert_protocol):
            with assert_protocol(5):
                pass
        """)
    done.assert_outcomes(passed=2, failed=5)
    done.stdout.fnmatch_lines(
        [
            "*_ test_stuck _*",
            ">       with assert_protocol(scheduler):",
            *in_traceback(),
            "*.py:8: Failed",
        ]
    )
    done.stdout.fnmatch_lines(["*_ test_raises _*", "*ValueError: of the block", *in_traceback()])
    done.stdout.fnmatch_lines(["*_ test_no_engine _*", "*cannot tell: no monitor reported into *"])
    done.stdout.fnmatch_lines(["*_ test_nothing_named _*", "*mark a test with @pytest.mark.quiesce, run pytest with *"])
    done.stdout.fnmatch_lines(["*_ test_no_such_thing _*", "*assert_protocol(5): give a quiesce_engine, *"])


def test_episodes_that_the_status_file_no_longer_tells_count_too(suite):
    done = suite("""
        def test_many(scheduler, assert_protocol):
            with assert_protocol(scheduler):
                for _ in range(20):
                    scheduler.be_stuck()
                    scheduler.get_unstuck()
        """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*paused-flush-succeeds was violated 4 more times on sglang 0.5.23 (process *"])


def test_the_transfers_need_the_testbed(suite):
    done = suite("def test_it(quiesce_transfers):\n    pass\n")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["quiesce_transfers needs the option --quiesce-testbed"])
