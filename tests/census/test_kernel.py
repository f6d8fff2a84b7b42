"""The Triton kernel without a GPU: interpreted, against the reference; and compiled ahead of time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
import triton
from census_pools import conserved
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine_hooks.census import choose, kernel, reference

HERE = Path(__file__).parent
KERNELS = ("mark_all", "mark_owners", "count_words")
TYPES = {torch.int32: "*i32", torch.int64: "*i64"}


def test_the_kernel_agrees_with_the_reference_when_interpreted() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "interpreted_kernel.py")]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=HERE.parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


def launches(monkeypatch: pytest.MonkeyPatch, size: int) -> list[tuple[str, dict[str, Any]]]:
    """The kernels that a census of a pool launches, each with its arguments by name."""
    seen: list[tuple[str, dict[str, Any]]] = []

    class Recorder:
        def __init__(self, name: str) -> None:
            self._name, self._arguments = name, getattr(kernel, name).arg_names

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            assert all(number > 0 for number in grid)
            return lambda *args, **kwargs: seen.append(
                (self._name, dict(zip(self._arguments, args, strict=False)) | kwargs)
            )

    with monkeypatch.context() as patch:
        for name in KERNELS:
            patch.setattr(kernel, name, Recorder(name))
        kernel.take(conserved(40, size).holdings())
    return seen


def compiled(name: str, arguments: dict[str, Any], capability: int) -> Any:
    function = getattr(kernel, name)
    constants = {p.name: arguments[p.name] for p in function.params if p.is_constexpr}
    signature = {
        key: "constexpr" if key in constants else TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        for key, value in arguments.items()
    }
    places = {(function.arg_names.index(key),): value for key, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=places)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32))


@pytest.mark.parametrize("capability", [90, 100])
@pytest.mark.parametrize("size", [1, 3, 16])
def test_what_is_launched_compiles_ahead_of_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capability: int, size: int
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    seen = launches(monkeypatch, size)
    assert [name for name, _ in seen] == ["mark_all", "mark_all", "mark_all", "mark_owners", "count_words"]
    for name, arguments in seen[1:]:
        out = compiled(name, arguments, capability)
        assert out.asm["cubin"].startswith(b"\x7fELF")
        assert f".target sm_{capability}a" in out.asm["ptx"]
        flags = out.asm["ptx"].count("atom.global.gpu.relaxed.or.b32")
        assert (flags > 0) == (name != "count_words")
        assert "atom.global.gpu.relaxed" in out.asm["ptx"] or "red.global.gpu.relaxed" in out.asm["ptx"]


@pytest.mark.parametrize("name", KERNELS)
def test_only_page_size_and_flag_ask_for_another_compilation(name: str) -> None:
    """Else a length or an address that divides by 16 would hold up the scheduler while Triton compiles again."""
    free = {parameter.name for parameter in getattr(kernel, name).params if not parameter.do_not_specialize}
    assert free == {p.name for p in getattr(kernel, name).params if p.is_constexpr} <= {"flag", "unit", "block"}


def test_the_device_chooses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert choose.implementation("cpu") is reference.take
    assert choose.implementation("cuda") is kernel.take
    monkeypatch.setitem(sys.modules, "engine_hooks.census.kernel", None)
    monkeypatch.delattr("engine_hooks.census.kernel")
    assert choose.implementation("cuda") is reference.take
    assert "the census runs without its kernel" in caplog.text
