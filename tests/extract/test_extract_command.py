"""`checker extract` and `checker diff` as they are called, with what they print and their exit codes."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from engine_copies import FILES, base, copies, installed

from checker import schemas

ROOT = Path(__file__).resolve().parents[2]
P = "sglang-0.5.23"


def checker(*arguments):
    command = [sys.executable, "-m", "checker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory):
    """The package's folder of a copy that reaps while paused, with a call that nobody knows in its gate's function."""
    folder = tmp_path_factory.mktemp("copy") / "sglang"
    changes = [*copies("repairs")[0].changes, *next(c for c in copies("noticed") if "watchdog" in c.name).changes]
    for name, file in FILES.items():
        text = "\n".join([*base()._lines[file], ""])
        for change in changes:
            text = change.applied(text) if change.file == name else text
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.source
def test_extract_writes_a_profile_and_says_how_much_it_found(tmp_path):
    done = checker("extract", "sglang", "-o", str(tmp_path / "installed.toml"))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{P}: 81 facts, 0 unknown, from {installed()}\n"
    assert tomllib.loads((tmp_path / "installed.toml").read_text())["loops"]["normal"]["paused"] == ["record"]


@pytest.mark.source
def test_the_json_has_each_fact_with_its_place_and_fits_its_schema():
    jsonschema = pytest.importorskip("jsonschema")
    done = checker("extract", "sglang", "--json")
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, json.loads(schemas.generated()["extract-1.json"]))
    assert (answer["schema"], answer["version"], len(answer["facts"]), answer["unknown"]) == (1, "0.5.23", 81, [])
    paused = next(f for f in answer["facts"] if f["key"] == "watchdog.knows_pause")
    assert (paused["value"], paused["function"]) == (False, "create_scheduler_watchdog")


@pytest.mark.source
def test_what_is_unknown_is_said_and_exits_3(repaired, tmp_path):
    scheduler = repaired / FILES["scheduler"]
    text = scheduler.read_text(encoding="utf-8")
    changed = tmp_path / "sglang"
    for file in FILES.values():
        (changed / file).parent.mkdir(parents=True, exist_ok=True)
        (changed / file).write_text((repaired / file).read_text(encoding="utf-8"), encoding="utf-8")
    old = "            self.tree_cache.reset()\n"
    (changed / FILES["scheduler"]).write_text(
        text.replace(old, f"            self.rewind()\n{old}", 1), encoding="utf-8"
    )
    done = checker("extract", "sglang", "--source", str(changed))
    assert done.returncode == 3
    told = re.sub(r"\d{4,}", "LINE", done.stderr.partition("\n")[2])
    assert told == (
        "unknown: flush: self.rewind() (srt/managers/scheduler.py:LINE flush_cache) is neither known nor known to be"
        " irrelevant\n"
    )
    assert list(tomllib.loads(done.stdout)["unknown"]) == ["flush"]


@pytest.mark.source
def test_diff_shows_facts_and_the_verdicts_that_change(repaired):
    wanted = ("--property", "paused-flush-succeeds", "--loop", "normal", "--mode", "retract")
    done = checker("diff", P, str(repaired), *wanted)
    assert done.returncode == 1
    text = re.sub(r"rank \(.*\)", "rank (...)", done.stdout.replace(str(repaired), "FOLDER"))
    assert text.splitlines() == [
        "A  sglang-0.5.23",
        "B  FOLDER (sglang-0.5.23)",
        "",
        "loops.normal.paused",
        "  A  record",
        "  B  reap, record",
        "",
        "loops.overlap.paused",
        "  A  record",
        "  B  reap, record",
        "",
        "watchdog.knows_pause",
        "  A  False",
        "  B  True",
        "",
        "2 verdicts differ",
        "  paused-flush-succeeds: refuted -> proved in normal/retract/none",
        "    rank (...)",
        "  paused-flush-succeeds: refuted -> proved in normal/retract/file",
        "    rank (...)",
    ]


@pytest.mark.source
def test_diff_of_the_installed_engine_and_the_bundled_profile():
    done = checker("diff", P, "installed")
    assert done.returncode == 0
    assert done.stdout.splitlines()[2:] == ["alike"]
    answer = json.loads(checker("diff", P, "installed", "--json").stdout)
    assert (answer["alike"], answer["facts"], answer["places"], answer["verdicts"]) == (True, [], [], None)


@pytest.mark.source
def test_the_installed_engine_is_read_and_not_looked_up(repaired):
    """Its source decides, and the answer says so: here that of a copy in its place, which reaps while paused."""
    place = ("--loop", "normal", "--mode", "retract", "--workers", "1")
    wanted = ("verify", "--engine", "installed", "--property", "paused-flush-succeeds", *place, "--json")
    found = json.loads(checker(*wanted).stdout)
    assert (found["engine"]["profile"], found["engine"]["source"]) == (P, "extracted")
    assert {r["verdict"] for r in found["results"]} == {"refuted"}
    elsewhere = (
        "import checker.extract.read as read; from pathlib import Path\n"
        f"read._folder = lambda _folder: Path({str(repaired)!r})\n"
        f"import sys; sys.argv = ['checker', *{wanted!r}]\n"
        "from checker.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, check=False, cwd=ROOT)
    assert {r["verdict"] for r in json.loads(done.stdout)["results"]} == {"proved"}, done.stderr


def test_diff_of_two_bundled_profiles_without_verdicts():
    done = checker("diff", P, "sglang-0.5.23-limits", "--facts-only", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    keys = [one["key"] for one in answer["facts"]]
    assert {"requests.queue_limit", "requests.clocks_count_pause"} <= set(keys)
    assert not [key for key in keys if key.startswith(("loops", "gates", "ledgers"))]
    assert answer["verdicts"] is None
    assert checker("diff", P, P).returncode == 0


def test_bad_input_names_what_is_valid(tmp_path):
    engine = checker("extract", "vllm")
    assert (engine.returncode, "valid names: sglang" in engine.stderr) == (2, True)
    nothing = checker("extract", "sglang", "--source", str(tmp_path))
    assert (nothing.returncode, "no source of SGLang" in nothing.stderr) == (2, True)
    broken = tmp_path / "srt/managers/scheduler.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("def (:\n", encoding="utf-8")
    assert "cannot be read as Python" in checker("extract", "sglang", "--source", str(tmp_path)).stderr
    both = checker("extract", "sglang", "--json", "-o", str(tmp_path / "x.toml"))
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)
    assert checker("diff", P, "no-such-profile").returncode == 2
