"""What an engine needs in order to run under the testbed: environment, arguments, and the stand-ins on its path."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine_hooks.sglang.testbed.control import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STORAGE_VARIABLE = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
"""SGLang's own variable for the folder of HiCache's file storage."""

BIND_VARIABLE = "SGLANG_CPU_OMP_THREADS_BIND"
"""SGLang's own variable for the cores of each rank."""

_STANDINS = Path(__file__).parent / "standins"
# One folder a package: each goes on the path only where the real package is absent.
_PACKAGES = {"sgl_kernel": _STANDINS / "kernels", "torchvision": _STANDINS / "vision"}
# The class of `tinymodel`, and the module of SGLang that has it.
_TINY_CLASS, _TINY_MODULE = "Qwen3ForCausalLM", "qwen3"
TEST_PACKAGES = {"datasets": _STANDINS / "testing"}
"""What SGLang's own test helpers import besides; for the process that runs tests, never an engine's."""


def standin_paths(search: Sequence[str] | None = None, packages: Mapping[str, Path] = _PACKAGES) -> list[str]:
    """Folders to put on an engine's path: those whose package is not installed.

    Args:
        search: the path to look for real packages on; `sys.path` by default. Stand-ins on it do not count.
        packages: name to folder of a stand-in; those of an engine by default.
    """
    ours = {str(folder) for folder in (_PACKAGES | TEST_PACKAGES).values()}
    real = [entry for entry in (sys.path if search is None else search) if entry not in ours]
    return [
        str(folder)
        for package, folder in packages.items()
        if importlib.machinery.PathFinder.find_spec(package, real) is None
    ]


def environment(control: Path, *, storage: Path | None = None, ranks: int = 1) -> dict[str, str]:
    """Variables for a process that runs an engine under the testbed, to be set before it imports SGLang.

    Args:
        control: the control directory (`control.Control`).
        storage: the folder of HiCache's file storage, if the engine has one.
        ranks: how many schedulers the engine starts (tp * pp * dp).
    """
    cores = f"0-{(os.cpu_count() or 1) - 1}"
    inherited = os.environ.get("PYTHONPATH")
    path = [*standin_paths(), *([inherited] if inherited else []), str(_STANDINS / "start")]
    variables = {
        VARIABLE: str(control),
        "PYTHONPATH": os.pathsep.join(path),
        "SGLANG_USE_CPU_ENGINE": "1",
        # More ranks than NUMA nodes must be told which cores to share.
        BIND_VARIABLE: "|".join([cores] * ranks),
        "OMP_NUM_THREADS": "1",
        # A CUDA build of PyTorch brings an NCCL that loads, then fails.
        "SGLANG_NCCL_SO_PATH": "none",
        "SGLANG_HOST_IP": "127.0.0.1",
    }
    if storage is not None:
        variables[STORAGE_VARIABLE] = str(storage)
    return variables


def other_models(model: Path) -> dict[str, str]:
    """The variable that keeps SGLang from importing its 250 model files for the tiny model, which needs one of them.

    Empty for any other model: which file it needs is known only after they are imported
    (`sglang/srt/models/registry.py:import_model_classes`). That import is a good part of a start.
    """
    config, package = model / "config.json", importlib.util.find_spec("sglang")
    if package is None or not config.is_file() or json.loads(config.read_text()).get("architectures") != [_TINY_CLASS]:
        return {}
    folders = [str(Path(folder) / "srt" / "models") for folder in package.submodule_search_locations or ()]
    others = [m.name for m in pkgutil.iter_modules(folders) if not m.ispkg and m.name != _TINY_MODULE]
    return {"SGLANG_DISABLED_MODEL_ARCHS": ",".join(others)}


def prepare_this_process(control: Path, *, storage: Path | None = None, ranks: int = 1) -> None:
    """Set up the calling process itself for an in-process `sglang.Engine`, before it imports SGLang.

    The stand-ins go to the end of `sys.path`, where a real package wins.
    """
    variables = environment(control, storage=storage, ranks=ranks)
    sys.path.extend(folder for folder in standin_paths() if folder not in sys.path)
    os.environ.update(variables)


def engine_args(model: Path, overrides: Mapping[str, object] | None = None) -> dict[str, object]:
    """Keyword arguments of `sglang.Engine` for a small engine with HiCache; `overrides` go on top."""
    return {
        "model_path": str(model),
        "device": "cpu",
        "dtype": "float32",
        "attention_backend": "torch_native",
        "disable_cuda_graph": True,
        "skip_tokenizer_init": True,
        "skip_server_warmup": True,
        "max_total_tokens": 4096,
        "mem_fraction_static": 0.3,
        "page_size": 16,
        "enable_hierarchical_cache": True,
        "hicache_ratio": 4.0,
        "hicache_io_backend": "direct",
        "hicache_mem_layout": "layer_first",
        "hicache_write_policy": "write_through",
        **(overrides or {}),
    }


def server_command(model: Path, overrides: Mapping[str, object] | None = None) -> list[str]:
    """The command of the same engine behind HTTP."""
    return [sys.executable, "-m", "sglang.launch_server", *server_arguments(model, overrides)]


def server_arguments(model: Path, overrides: Mapping[str, object] | None = None) -> list[str]:
    """The arguments of that command. One that is False or None is left out."""
    arguments = []
    for name, value in engine_args(model, overrides).items():
        if value is False or value is None:
            continue
        arguments.append("--" + name.replace("_", "-"))
        if value is not True:
            arguments.append(str(value))
    return arguments
