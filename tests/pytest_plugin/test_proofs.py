"""--quiesce-verify: items, what they say, and that only a proof passes."""

import json
import sys
import textwrap

import msgspec
import pytest

from checker.results import Report
from spec.properties import catalogue

pytest_plugins = ["pytester"]

FOUNDING = "paused-flush-succeeds"
ONE = (
    "--quiesce-verify",
    "--quiesce-profile",
    "sglang-0.5.23",
    "--quiesce-loop",
    "normal",
    "--quiesce-mode",
    "retract",
)
STORY = f"""
{FOUNDING} is refuted on sglang-0.5.23
Because write_through is reaped by no paused step
  (loop normal, mode retract, storage none, *)

   1 *
*
  and so it stays: nothing but continue_generation, an abort or another request changes this.
  The function that would have had to run: srt/mem_cache/unified_radix_cache.py:writing_check

the story again: checker explain {FOUNDING} --profile sglang-0.5.23 --loop normal --mode retract
""".strip().splitlines()


@pytest.fixture
def run(pytester):
    def inner(*options):
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options)

    return inner


def answered(pytester, monkeypatch, report, code):
    """Another `checker` in front: it writes down how it is called, and answers with this."""
    (pytester.path / "report.json").write_text(report, encoding="utf-8")
    program = pytester.path / "python"
    program.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import sys
        open({str(pytester.path / "calls")!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
        sys.stdout.write(open({str(pytester.path / "report.json")!r}).read())
        sys.stderr.write("what it said\\n")
        sys.exit({code})
        """),
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return lambda: (pytester.path / "calls").read_text(encoding="utf-8").splitlines()


def report_of(*results):
    plain = {"loop": "normal", "scope": "unbounded", "method": "m", "ledger": None, "seconds": 0.1}
    engine = {"name": "sglang", "version": "0.5.23", "profile": "p", "source": "bundled", "remedies": []}
    rows = [
        plain | {"property": p, "configuration": {"mode": mode, "storage": s}, "verdict": v, "reason": r}
        for p, mode, s, v, r in results
    ]
    report = {"schema": 1, "engine": engine, "results": rows, "verdict": "unknown", "spec_digest": "d", "solver": "s"}
    text = json.dumps(report | {"seed": 0})
    msgspec.json.decode(text, type=Report)
    return text


def test_the_founding_case_fails_with_its_story_and_passes_with_the_remedy(run):
    done = run(*ONE, "--quiesce-property", FOUNDING)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines([f"*: {FOUNDING}[[]normal-retract-none[]] _*", *STORY])
    done = run(*ONE, "--quiesce-property", FOUNDING, "--quiesce-remedy", "reap-while-paused")
    done.assert_outcomes(passed=2)


def test_there_is_an_item_for_each_property_in_each_configuration(run):
    done = run("--quiesce-verify", "--quiesce-profile", "sglang-0.5.23", "--collect-only", "-q")
    ids = [line for line in done.outlines if line.startswith("quiesce::")]
    # Two loops, three modes, with and without storage.
    assert len(ids) == len(set(ids)) == len(catalogue()) * 2 * 3 * 2
    done.stdout.fnmatch_lines([f"{len(ids)} tests collected in *"])
    assert f"quiesce::sglang-0.5.23::{FOUNDING}[overlap-in_place-file]" in ids


def test_only_a_proof_passes(run, pytester, monkeypatch):
    verdicts = ("proved", "bounded", "unknown", "not-applicable", "refuted")
    ids = ("paused-flush-succeeds", "update-flushes", "ledgers-drain", "ranks-aligned", "no-stale-kv", "idle-is-true")
    rows = [(p, "retract", "none", v, f"why {v}") for p, v in zip(ids, verdicts, strict=False)]
    answered(pytester, monkeypatch, report_of(*rows), 1)
    done = run(*ONE, "-k", "normal-retract-none", *(f"--quiesce-property={name}" for name in ids), "-rs")
    done.assert_outcomes(passed=1, failed=4, skipped=1, deselected=6)
    done.stdout.fnmatch_lines(["update-flushes is bounded on sglang-0.5.23", "Because why bounded"])
    done.stdout.fnmatch_lines(["ledgers-drain is unknown on sglang-0.5.23", "Because why unknown"])
    done.stdout.fnmatch_lines(["checker verify gave no result for idle-is-true[[]normal-retract-none[]]"])
    done.stdout.fnmatch_lines(["SKIPPED *not applicable: why not-applicable"])


def test_each_loop_is_asked_once_and_for_what_was_selected(run, pytester, monkeypatch):
    calls = answered(pytester, monkeypatch, report_of(), 3)
    run(
        "--quiesce-verify", "--quiesce-profile", "sglang-0.5.23", "--quiesce-remedy", "reap-while-paused",
        "-k", "retract and (paused-flush-succeeds or ledgers-drain)",
    )  # fmt: skip
    start = "-m checker verify --json --profile sglang-0.5.23 --remedy reap-while-paused --loop"
    end = "--mode retract --property paused-flush-succeeds --property ledgers-drain"
    assert calls() == [f"{start} normal {end}", f"{start} overlap {end}"]


def test_a_checker_that_breaks_is_shown_and_not_asked_again(run, pytester, monkeypatch):
    calls = answered(pytester, monkeypatch, "", 4)
    done = run(*ONE, "--quiesce-property", FOUNDING)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["ended with exit code 4:", "what it said"])
    assert len(calls()) == 1


def test_the_items_can_be_had_alone_and_beside_tests(run, pytester, monkeypatch):
    answered(pytester, monkeypatch, report_of((FOUNDING, "retract", "none", "proved", "x")), 0)
    pytester.makepyfile("def test_it():\n    pass\n")
    wanted = (*ONE, "--quiesce-property", FOUNDING, "-k", "test_it or retract-none", "--strict-markers")
    run(*wanted).assert_outcomes(passed=2, deselected=1)
    run(*wanted, "-m", "quiesce_verify").assert_outcomes(passed=1, deselected=2)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--quiesce-profile=sglang-0.5.2", "unknown profile 'sglang-0.5.2'; did you mean 'sglang-0.5.23'?"),
        ("--quiesce-property=paused", "unknown property 'paused'*"),
        ("--quiesce-loop=overlab", "unknown loop 'overlab'; did you mean 'overlap'?"),
        ("--quiesce-mode=retrac", "unknown mode 'retrac'; did you mean 'retract'?"),
        ("--quiesce-remedy=none", "unknown remedy 'none'*"),
    ],
)
def test_what_there_is_not_ends_the_session(run, option, said):
    done = run("--quiesce-verify", "--quiesce-profile=sglang-0.5.23", option)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: {said}"])
