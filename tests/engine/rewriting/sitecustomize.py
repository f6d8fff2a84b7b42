"""Reached only through PYTHONPATH, in engines of `test_lost_sight`: rewrites a word in SGLang's source as it loads.

QUIESCE_TEST_REWRITE=old=new turns the word `old` into `new` in every module of SGLang, which so becomes a consistent
engine of another version. Nothing of quiesce is touched.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType


class Rewriter(SourceFileLoader):
    """Compiles a module of SGLang from its rewritten source."""

    def get_code(self, fullname: str) -> CodeType | None:
        old, new = os.environ["QUIESCE_TEST_REWRITE"].split("=")
        source = self.get_data(self.path).decode()
        text = re.sub(rf"\b{re.escape(old)}\b", new, source)
        # What has nothing to rewrite comes from the cache of compiled modules.
        return super().get_code(fullname) if text == source else compile(text, self.path, "exec")


class Finder:
    """Gives SGLang's modules that loader."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.split(".", maxsplit=1)[0] != "sglang":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Rewriter(spec.loader.name, spec.loader.path)
        return spec


if "QUIESCE_TEST_REWRITE" in os.environ:
    sys.meta_path.insert(0, Finder)
