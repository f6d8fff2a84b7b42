"""The dashboard: its rows, and that each query parses and names only series that exist."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from promtool import DEPLOY, filled, promtool, selectors
from test_rules import series_known

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "quiesce.json").read_text())
PANELS = DASHBOARD["panels"]


def queries() -> Iterator[tuple[str, str]]:
    """Panel and query."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_its_rows_and_panels() -> None:
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    assert rows == ["Fleet", "Pauses and updates", "Ledgers", "Violations"]
    assert len(PANELS) - len(rows) == 24
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job", "instance"]
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in PANELS if panel["type"] != "row")


def test_no_panel_covers_another() -> None:
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    rows = [panel["gridPos"]["y"] for panel in PANELS if panel["type"] == "row"]
    assert all(one < two for one, two in pairwise(rows))


def as_rules(folder: Path, expressions: list[str]) -> str:
    """A rules file with these expressions: promtool 2.42 parses no query by itself."""
    rules = [{"record": f"query:{number}:x", "expr": expr} for number, expr in enumerate(expressions)]
    path = folder / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    return str(path)


def test_promtool_parses_every_query(tmp_path: Path) -> None:
    expressions = [filled(expr) for _, expr in queries()]
    assert len(expressions) == 24
    done = promtool("check", "rules", as_rules(tmp_path, expressions))
    assert done.returncode == 0, done.stderr
    assert "24 rules found" in done.stdout


def test_a_query_that_does_not_parse_is_found(tmp_path: Path) -> None:
    assert promtool("check", "rules", as_rules(tmp_path, ["sum by (job (quiesce_info)"])).returncode == 1


@pytest.mark.parametrize(("title", "query"), list(queries()), ids=lambda value: value if " " not in value else "")
def test_a_query_names_only_series_and_labels_that_exist(title: str, query: str) -> None:
    known = series_known()
    found = list(selectors(filled(query)))
    assert found, title
    for selector in found:
        assert selector.name in known
        assert {name for name, _ in selector.labels} <= known[selector.name]


def test_every_series_of_the_engine_is_shown_or_alerted_on() -> None:
    rules = (DEPLOY / "prometheus" / "rules.yaml").read_text()
    everything = rules + "".join(query for _, query in queries())
    ours = {name for name in series_known() if name.startswith("quiesce_")}
    assert {name for name in ours if name not in everything} == set()
