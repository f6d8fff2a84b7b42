"""An extracted profile as TOML, each entry with the place that it was read from as a comment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Table

from checker.extract.read import BESIDE, Extraction

_INLINE = ("metric", "moves")
_LAST = ("remedies", "variants", "unknown")


def toml(extraction: Extraction) -> str:
    """The whole file."""
    document = tomlkit.document()
    document.add(tomlkit.comment(f"Extracted from the source of {extraction.name} by `checker extract`."))
    document.add(
        tomlkit.comment("Each entry names where it was read; those without are ours, and no facts of the engine.")
    )
    document.add(tomlkit.comment("What several ranks agree on, which a profile of one rank has no table for:"))
    for fact in extraction.facts:
        if fact.key[0] == BESIDE:
            document.add(tomlkit.comment(f"  {fact.name} = {json.dumps(fact.value)}, {fact.place}"))
    places = {fact.key: str(fact.place) for fact in extraction.facts}
    raw = extraction.raw
    plain = [key for key, value in raw.items() if not isinstance(value, Mapping)]
    for key in plain:
        document.add(key, _item(raw[key]))
    for key in [k for k in raw if k not in {*plain, *_LAST}] + [k for k in _LAST if k in raw]:
        document.add(tomlkit.nl())
        document.add(key, _table(raw[key], (key,), places))
    return tomlkit.dumps(document)


def _table(table: Mapping[str, Any], above: tuple[str, ...], places: Mapping[tuple[str, ...], str]) -> Table:
    nested = {key for key, value in table.items() if isinstance(value, Mapping) and key not in _INLINE}
    made = tomlkit.table(is_super_table=bool(nested) and len(nested) == len(table))
    for key in sorted(table, key=lambda k: k in nested):
        value = table[key]
        if key in nested:
            made.add(key, _table(value, (*above, key), places))
            continue
        item = _item(value)
        if place := places.get((*above, key)):
            item.comment(place)
        made.add(key, item)
    return made


def _item(value: Any) -> Any:  # noqa: ANN401 - any value of TOML
    if isinstance(value, Mapping):
        return _inline(value)
    if isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
        array = tomlkit.array()
        array.extend(_inline(v) for v in value)
        return array.multiline(multiline=True)
    return tomlkit.item(list(value) if isinstance(value, tuple) else value)


def _inline(value: Mapping[str, Any]) -> InlineTable:
    made = tomlkit.inline_table()
    made.update(value)
    return made
