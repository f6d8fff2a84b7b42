"""Reached only through PYTHONPATH, in engines from the warm process: renames what SGLang has, after its import.

QUIESCE_TEST_RENAME=old=new renames each function `old` of SGLang's classes to `new`, wherever it is called too, and
turns a module's text `old` into `new`: an engine as another version might be. Nothing of quiesce is touched. What only
a change of the source can rename, as a field of a dataclass, is for `rewriting`, which needs a fresh import.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any


def renamed(code: CodeType, old: str, new: str) -> CodeType:
    """The code that asks for `new`, its inner functions too."""
    names = tuple(new if name == old else name for name in code.co_names)
    inner = tuple(renamed(const, old, new) if isinstance(const, CodeType) else const for const in code.co_consts)
    return code.replace(co_names=names, co_consts=inner)


def functions_of(owner: Any) -> list[FunctionType]:
    """Those that a class or a module has itself, inside what wraps them too."""
    found = []
    for value in vars(owner).values():
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        plain = plain.fget if isinstance(plain, property) else plain
        while isinstance(plain, FunctionType):
            found.append(plain)
            plain = getattr(plain, "__wrapped__", None)
    return found


def rename(module: ModuleType, old: str, new: str) -> None:
    """In one module and its classes."""
    classes = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    for owner in (module, *classes):
        for function in functions_of(owner):
            function.__code__ = renamed(function.__code__, old, new)
    for one in classes:
        if old in vars(one):
            setattr(one, new, vars(one)[old])
            delattr(one, old)
    for name, value in list(vars(module).items()):
        if isinstance(value, str) and value == old:
            setattr(module, name, new)


if "QUIESCE_TEST_RENAME" in os.environ:
    words = os.environ["QUIESCE_TEST_RENAME"].split("=")
    for name, loaded in list(sys.modules.items()):
        if name.split(".", maxsplit=1)[0] == "sglang":
            rename(loaded, *words)
