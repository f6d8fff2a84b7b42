"""Every fact of a bundled profile names a place in the engine's source, and the installed engine has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from spec.profile import Profile, bundled_profiles, load_profile

PROFILES = [name for name in bundled_profiles() if name.startswith("sglang-")]


def _sources(profile: Profile) -> Iterator[str]:
    yield from (loop.source for name, loop in profile.loops.items() if name in profile.configuration.loop)
    yield from (mode.source for mode in profile.pause.values())
    yield from (text for text in profile.primitives.values() if not text.startswith("(rejected"))
    for ledger in profile.ledgers.values():
        yield from (ledger.source, ledger.reaper, *(move.source for move in ledger.moves))
    yield from (gate.source for gate in profile.gates.values())
    yield from (profile.flush.source, profile.update.source, profile.storage.source, profile.prefetch.source)
    yield from filter(None, profile.requests.source.split(", "))
    yield from (remedy.hook for remedy in profile.remedies.values())
    added = (profile.accounts, profile.eviction, profile.detach, profile.lookup_wait, profile.threads, profile.merge)
    mapped = (*profile.holdings.values(), *profile.tiers.values())
    single = (*added, profile.peers, profile.update_session, profile.requeue)
    yield from (facts.source for facts in (*single, *mapped, *_controls(profile)) if facts is not None)


def _controls(profile: Profile) -> list[Any]:
    return [getattr(profile.controls, f.name) for f in fields(profile.controls)] if profile.controls else []


def _missing(source: str, root: Path) -> str | None:
    file, _, name = source.partition(":")
    path = root / file
    if not path.is_file():
        return f"no file {file}"
    return None if re.search(rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8")) else f"no {name} in {file}"


@pytest.mark.parametrize("name", PROFILES)
def test_every_source_exists(name: str) -> None:
    found = find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no SGLang here")
    root = Path(found.submodule_search_locations[0])
    sources = sorted(set(_sources(load_profile(name))))
    assert len(sources) > 20
    assert [problem for source in sources if (problem := _missing(source, root))] == []


def test_a_place_that_is_not_there_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def there(): ...\n", encoding="utf-8")
    assert _missing("a.py:there", tmp_path) is None
    assert _missing("a.py:the", tmp_path) == "no the in a.py"
    assert _missing("b.py:there", tmp_path) == "no file b.py"
