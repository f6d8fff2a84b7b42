"""Copies of the files of the installed engine that extraction reads, with small changes (changed_copies.toml)."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from checker.extract import read
from checker.extract.source import Source

FILES = {
    "scheduler": "srt/managers/scheduler.py",
    "tree": "srt/mem_cache/unified_radix_cache.py",
    "weight_updater": "srt/managers/scheduler_components/weight_updater.py",
    "flush_wrapper": "srt/managers/scheduler_components/flush_wrapper.py",
    "controller": "srt/managers/cache_controller.py",
    "hybrid_controller": "srt/mem_cache/hybrid_cache/hybrid_cache_controller.py",
    "tokenizer": "srt/managers/tokenizer_manager.py",
    "invariant_checker": "srt/managers/scheduler_components/invariant_checker.py",
    "hashes": "srt/mem_cache/utils.py",
    "settings": "srt/arg_groups/fields/memory.py",
    "version": "_version.py",
}


@dataclass(frozen=True)
class Change:
    """In a file, the nth (from 1) occurrence of a text becomes another."""

    file: str
    old: str
    new: str
    nth: int = 1

    def applied(self, text: str) -> str:
        parts = text.split(self.old)
        assert len(parts) > self.nth, f"{self.old!r} stands {len(parts) - 1} times in {self.file}"
        return self.old.join(parts[: self.nth]) + self.new + self.old.join(parts[self.nth :])


@dataclass(frozen=True)
class Copy:
    """A copy with its changes, and which properties the change breaks."""

    name: str
    changes: Sequence[Change]
    broken: Sequence[str] = ()
    where: tuple[str, str] = ("normal", "retract")
    repaired: bool = False


def copies(kind: str) -> list[Copy]:
    """The copies of one kind: `noticed`, `repairs`, `harmless`."""
    table = tomllib.loads((Path(__file__).parent / "changed_copies.toml").read_text(encoding="utf-8"))
    return [
        Copy(
            **{
                **one,
                "changes": tuple(Change(**c) for c in one["changes"]),
                "where": tuple(one.get("where", Copy.where)),
            }
        )
        for one in table[kind]
    ]


def installed() -> Path:
    return Path(next(iter(find_spec("sglang").submodule_search_locations)))


@cache
def base() -> Source:
    source = Source(installed())
    for file in FILES.values():
        source.tree(file)
    return source


def extract_changed(folder: Path, changes: Sequence[Change]) -> read.Extraction:
    """The files that change are written to `folder` and parsed anew; the others are those of the installed engine."""
    source = Source(folder)
    for name, file in FILES.items():
        text = changed = "\n".join([*base()._lines[file], ""])
        for change in changes:
            changed = change.applied(changed) if change.file == name else changed
        if changed == text:
            source._trees[file], source._lines[file] = base().tree(file), base()._lines[file]
            continue
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed, encoding="utf-8")
    return read.read_source(source)
