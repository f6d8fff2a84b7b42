"""Certificates of earlier runs: what is decided anew has none until it is proved again; nothing else is touched."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checker.manifest import read_manifest

ROOT = Path(__file__).resolve().parents[2]
PLACE = ["--loop", "normal", "--mode", "retract"]
FOUNDING = "paused-flush-succeeds"
PLAIN = 'schema = 1\nbase = "sglang-0.5.23"\n'
REPAIRED = PLAIN + '[set.loops.normal]\npaused = ["reap", "record"]\n'


def checker(*arguments):
    command = [sys.executable, "-m", "checker", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)


def verify(profile, folder, *arguments, place=PLACE):
    return checker("verify", "--profile", profile, *place, "--certificates", folder, *arguments)


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """Certificates of two properties, and the profile as it is now: changed so that one of them is refuted."""
    root = tmp_path_factory.mktemp("proved")
    (root / "mine.toml").write_text(REPAIRED, encoding="utf-8")
    done = verify(root / "mine.toml", root / "c", "--property", FOUNDING, "--property", "no-new-lookup-while-paused")
    assert done.returncode == 0, done.stdout + done.stderr
    (root / "mine.toml").write_text(PLAIN, encoding="utf-8")
    return root


@pytest.fixture
def run(proved, tmp_path):
    """(profile, folder with the certificates of an earlier run, what lay there by property)."""
    shutil.copytree(proved, tmp_path / "run")
    return tmp_path / "run" / "mine.toml", tmp_path / "run" / "c"


def held(folder):
    return sorted((m.property, m.configuration["storage"]) for m in map(read_manifest, folder.iterdir()))


# Without storage there is no lookup, and nothing to prove.
HELD = [("no-new-lookup-while-paused", "file"), (FOUNDING, "file"), (FOUNDING, "none")]


def test_what_is_refuted_now_has_no_certificate(run):
    profile, folder = run
    assert held(folder) == HELD
    assert verify(profile, folder, "--property", FOUNDING).returncode == 1
    assert held(folder) == HELD[:1]
    done = checker("certify", folder)
    assert done.returncode == 0
    assert "\n1 certificates, " in done.stdout


def test_what_is_proved_anew_has_one_certificate_and_not_two(run):
    # The digest differs, so the new one has another name.
    profile, folder = run
    before = {p.name for p in folder.iterdir()}
    assert verify(profile, folder, "--property", "no-new-lookup-while-paused").returncode == 0
    assert held(folder) == HELD
    after = {p.name for p in folder.iterdir()}
    assert [len(before - after), len(after - before), len(after & before)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["--property", "idle-is-true"], PLACE),
        (["--property", FOUNDING], ["--loop", "normal", "--mode", "in_place"]),
        (["--property", FOUNDING], ["--loop", "overlap", "--mode", "retract"]),
        (["--property", FOUNDING, "--remedy", "reap-while-paused"], ["--loop", "overlap", "--mode", "retract"]),
    ],
)
def test_what_is_not_decided_keeps_its_certificate(run, arguments, place):
    profile, folder = run
    before = tree(folder)
    assert verify(profile, folder, *arguments, place=place).returncode in {0, 1, 3}
    assert before.items() <= tree(folder).items()


def test_another_profile_or_remedy_keeps_its_certificate(run):
    profile, folder = run
    before = tree(folder)
    assert verify("sglang-0.5.23", folder, "--property", FOUNDING).returncode == 1
    assert tree(folder) == before
    assert verify(profile, folder, "--property", FOUNDING, "--remedy", "all").returncode == 0
    assert before.items() < tree(folder).items()


@pytest.mark.parametrize(
    ("arguments", "place"),
    [(["--property", FOUNDING, "--property", "nothing"], PLACE), (["--property", FOUNDING], ["--mode", "nothing"])],
)
def test_bad_input_removes_nothing(run, arguments, place):
    profile, folder = run
    before = tree(folder)
    assert verify(profile, folder, *arguments, place=place).returncode == 2
    assert tree(folder) == before


def test_what_the_checker_did_not_write_stays(run):
    profile, folder = run
    certificate = next(folder.glob(f"{FOUNDING}-normal-retract-none-*"))
    (certificate / "notes.txt").write_text("mine", encoding="utf-8")
    (certificate / "000.smt2").write_text("; edited", encoding="utf-8")
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / ".probe").write_text("mine", encoding="utf-8")
    (folder / "other").mkdir()
    (folder / "other" / "manifest.json").write_text('{"name": "of another tool"}', encoding="utf-8")
    (folder / "empty").mkdir()
    assert verify(profile, folder, "--property", FOUNDING).returncode == 1
    kept = {k: v for k, v in tree(folder).items() if not k.startswith("no-new-lookup")}
    assert kept == {
        f"{certificate.name}/notes.txt": b"mine",
        f"{certificate.name}/000.smt2": b"; edited",
        "notes.txt": b"mine",
        ".probe": b"mine",
        "other/manifest.json": b'{"name": "of another tool"}',
    }
    assert (folder / "empty").is_dir()


def test_a_manifest_that_names_files_elsewhere_removes_none(run, tmp_path):
    profile, folder = run
    certificate = next(folder.glob(f"{FOUNDING}-normal-retract-none-*"))
    data = json.loads((certificate / "manifest.json").read_bytes())
    shutil.move(certificate / "000.smt2", tmp_path / "000.smt2")
    data["claims"][0]["file"] = str(tmp_path / "000.smt2")
    (certificate / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    before = tree(certificate)
    assert verify(profile, folder, "--property", FOUNDING).returncode == 1
    assert tree(certificate) == before
    assert (tmp_path / "000.smt2").exists()
    # Nor does it pass for a proof.
    assert checker("certify", certificate).returncode == 2


@pytest.mark.parametrize("how", ["copied", "linked"])
def test_a_certificate_that_is_not_where_the_checker_wrote_it_is_neither_removed_nor_left_unsaid(run, tmp_path, how):
    profile, folder = run
    certificate = next(folder.glob(f"{FOUNDING}-normal-retract-none-*"))
    if how == "copied":
        place = folder / "copy"
        shutil.move(certificate, place)
    else:
        place = certificate
        shutil.move(certificate, tmp_path / "real")
        certificate.symlink_to(tmp_path / "real")
    before = tree(place)
    done = verify(profile, folder, "--property", FOUNDING)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"checker: {place}: a certificate of what is decided anew, and not as written; move")
    assert tree(place) == before
