"""What is unknown in a profile makes unknown what rests on it, and nothing else."""

import json
import subprocess
import sys

import pytest
import tomlkit

from checker.diff.facts import compare
from checker.verify import Request, verify
from spec.errors import ProfileError
from spec.profile import bundled_path, from_raw, load_profile
from spec.properties import catalogue
from spec.unknowns import Unknowns

BUNDLED = load_profile("sglang-0.5.23")
PLACE = "normal retract file"


def unsure(key, place=PLACE):
    profile = from_raw("unsure", {**BUNDLED.raw, "unknown": {key: "why"}}, "")
    unknowns = Unknowns(profile, profile.place(place))
    return [name for name, prop in catalogue().items() if unknowns.under(prop)]


@pytest.mark.parametrize(
    ("key", "properties"),
    [
        ("watchdog.knows_pause", ["engine-survives"]),
        ("storage.key", ["no-stale-kv", "update-tells-truth", "flush-tells-truth"]),
        ("update.stamps", ["update-tells-truth", "versions-agree"]),
        ("loops.overlap.paused", []),
        ("pause.abort.steps", []),
        ("primitives.abort_all", []),
    ],
)
def test_a_property_rests_on_what_is_in_its_cone(key, properties):
    assert unsure(key) == properties


@pytest.mark.parametrize("key", ["loops.normal.paused", "pause.retract", "primitives.reap", "flush", "ledgers"])
def test_everything_that_applies_rests_on_a_step_that_could_not_be_read(key):
    protocol_has = [name for name, prop in catalogue().items() if not prop.applies(_protocol(prop))]
    assert unsure(key) == (protocol_has if key != "pause.retract" else list(catalogue()))


def _protocol(prop):
    from spec.protocol import Protocol  # noqa: PLC0415 - only here

    return Protocol(BUNDLED, BUNDLED.place(PLACE), follow_request=prop.needs_request)


def test_verify_says_unknown_and_why_and_decides_the_rest():
    profile = from_raw("unsure", {**BUNDLED.raw, "unknown": {"watchdog.knows_pause": "two lambdas"}}, "")
    wanted = ("engine-survives", "no-forward-while-paused")
    report = verify(Request(profile, "file", wanted, ("normal",), ("in_place",), workers=1))
    told = {(r.property, r.verdict, r.method, r.scope) for r in report.results}
    assert ("engine-survives", "unknown", "unknown-fact", "none") in told
    assert {v for p, v, *_ in told if p == "no-forward-while-paused"} == {"proved"}
    assert report.verdict == "unknown"
    reason = next(r.reason for r in report.results if r.property == "engine-survives")
    assert reason == "watchdog.knows_pause is unknown: two lambdas"


def test_a_file_may_say_it_and_the_exit_code_is_3(tmp_path):
    text = tomlkit.parse(open(bundled_path("sglang-0.5.23"), encoding="utf-8").read())  # noqa: PTH123, SIM115 - read once
    text["unknown"] = {"update.stamps": "read from nothing"}
    path = tmp_path / "unsure.toml"
    path.write_text(tomlkit.dumps(text), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "checker",
        "verify",
        "--profile",
        str(path),
        "--loop",
        "normal",
        "--mode",
        "in_place",
    ]
    done = subprocess.run(
        [*command, "--property", "versions-agree", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert {r["method"] for r in json.loads(done.stdout)["results"]} == {"unknown-fact"}
    exported = subprocess.run(
        [sys.executable, "-m", "checker", "export", "--tla", "--profile", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert exported.returncode == 2
    assert "update.stamps is unknown: read from nothing" in exported.stderr


def test_a_profile_that_is_unsure_is_not_like_one_that_is_not():
    other = from_raw("unsure", {**BUNDLED.raw, "unknown": {"update.stamps": "why"}}, "")
    assert [(d.key, d.b) for d in compare(BUNDLED, other).facts] == [("update.stamps", "unknown: why")]


def test_an_unknown_entry_is_named_as_the_profile_names_it():
    with pytest.raises(ProfileError, match=r"unknown: no such entry 'gates.flsh.waits_for'"):
        from_raw("unsure", {**BUNDLED.raw, "unknown": {"gates.flsh.waits_for": "why"}}, "")
