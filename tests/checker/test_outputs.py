"""No output takes the place of another file, and none that fails takes the answer with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checker.outputs import OutputError, check_apart
from spec.profile import bundled_path

SMALL = ("verify", "--loop", "normal", "--mode", "retract", "--property", "no-stale-kv")


def checker(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "checker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd)


def test_two_names_of_one_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "here")
    (tmp_path / "hard").hardlink_to(tmp_path / "here")
    for other in ("here", "link", "hard", "../" + tmp_path.name + "/here"):
        with pytest.raises(OutputError, match="--sarif and --junit are one file"):
            check_apart(("--sarif", str(tmp_path / "here")), ("--junit", str(tmp_path / other)))
    check_apart(("--sarif", str(tmp_path / "a")), ("--junit", str(tmp_path / "b")), ("--profile", None))
    check_apart(("--sarif", "/dev/null"), ("--junit", "/dev/null"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*SMALL, "--profile", "own.toml", "--sarif", "own.toml"), "--sarif and --profile are one file"),
        ((*SMALL, "--sarif", "x", "--junit", "./x"), "--sarif and --junit are one file"),
        (("export", "--tla", "--profile", "own.toml", "-o", "own.toml"), "--output and --profile are one file"),
        (("report", "own.toml", "-o", "own.toml"), "--output and FILE are one file"),
    ],
)
def test_what_is_read_is_not_written_over(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    shutil.copy(bundled_path("sglang-0.5.23"), tmp_path / "own.toml")
    before = (tmp_path / "own.toml").read_bytes()
    done = checker(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert (tmp_path / "own.toml").read_bytes() == before


def test_a_full_disk_costs_the_file_and_not_the_answer(tmp_path: Path) -> None:
    done = checker(*SMALL, "--sarif", "/dev/full", cwd=tmp_path)
    assert done.returncode == 2
    assert "'/dev/full' cannot be written: No space left on device" in done.stderr
    assert "2 refuted" in done.stdout


@pytest.mark.parametrize(("name", "says"), [("/dev/zero", "it is no file"), ("big.toml", "it has more than 1024 KiB")])
def test_a_profile_without_end_is_not_read(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "big.toml").write_text("# " + "x" * 1024 * 1024)
    (tmp_path / "own.toml").symlink_to(name)
    done = checker("verify", "--profile", "own.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_what_cannot_be_imported_is_no_refutation(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ValueError('broken')")
    done = checker("verify", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert "an internal error, and no verdict" in done.stderr


@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
def test_a_time_is_a_number_of_seconds(tmp_path: Path, value: str) -> None:
    for option in ("--every", "--timeout"):
        done = checker("doctor", "--url", "http://127.0.0.1:1", option, value, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert option in done.stderr
