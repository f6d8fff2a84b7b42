"""Import-only stand-in for torchvision, on the path of the testbed's engines alone, and only where there is no real one.

SGLang's model configurations and Transformers' image processors import torchvision while they load; a text model
never calls it. PyPI's torchvision needs the CUDA build of PyTorch, which this saves installing. Every name imports,
submodules included; nothing computes.
"""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from unittest.mock import MagicMock


def _anything(name: str) -> MagicMock:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=f"torchvision {name}")


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("torchvision."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _anything


__getattr__ = _anything
__version__ = "0.0.0+standin"
sys.meta_path.append(_Submodules())
