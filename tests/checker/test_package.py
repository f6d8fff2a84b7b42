"""The distribution: three packages at its top level, typed, and nothing that could shadow an engine's package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=300)
    return zipfile.ZipFile(next(folder.glob("*.whl"))).namelist()


def test_the_top_level_is_spec_checker_engine_hooks_and_nothing_else(wheel):
    top = {name.split("/")[0] for name in wheel if ".dist-info/" not in name}
    assert top == {"spec", "checker", "engine_hooks"}


def test_the_packages_are_typed_and_carry_their_data(wheel):
    assert {f"{package}/py.typed" for package in ("spec", "checker", "engine_hooks")} <= set(wheel)
    assert "spec/profiles/sglang-0.5.23.toml" in wheel
    assert "checker/schemas/verify-1.json" in wheel
    assert "checker/alerts/runbooks.toml" in wheel
    assert {f"checker/report/templates/report.{kind}" for kind in ("html.j2", "css", "js")} <= set(wheel)


def test_the_engine_hooks_load_without_the_solver():
    code = "import sys, engine_hooks.compiled as c; c.compiled_profile('sglang', '0.5.23'); print('z3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"
