"""On the installed engine the extracted profile says what the bundled one says, entry by entry."""

import ast
import subprocess
import sys

import pytest
from engine_copies import base, installed

from checker.diff.facts import compare, facts_of
from checker.extract.read import extract, leaves
from checker.extract.write import toml
from spec.profile import load_profile

pytestmark = pytest.mark.source


@pytest.fixture(scope="module")
def extraction():
    return extract()


def test_every_entry_of_the_bundled_profile_is_found_and_nothing_is_unknown(extraction):
    bundled = load_profile("sglang-0.5.23")
    assert extraction.unknowns == ()
    assert len(extraction.facts) == 81
    found = compare(bundled, extraction.profile)
    assert found.facts == []
    assert found.places == []
    ours = {"configuration", "remedies", "variants", "schema", "engine", "version"}
    wanted = {".".join(k) for k in leaves({k: v for k, v in bundled.raw.items() if k not in ours})}
    # `drain` is a word of a rejected design, and no function of the engine.
    assert wanted - {fact.name for fact in extraction.facts} == {"primitives.drain"}
    # Two that the bundled profile leaves to their defaults are read all the same.
    one_rank = {fact.name for fact in extraction.facts if fact.key[0] != "peers"}
    assert one_rank - wanted == {"update.stamps", "update.refused"}


def test_what_ranks_agree_on_is_what_the_profile_of_two_ranks_says(extraction):
    peers = load_profile("sglang-0.5.23-ranks").peers
    found = {fact.key[1]: fact.value for fact in extraction.facts if fact.key[0] == "peers"}
    # Which copies a rank makes is not read.
    assert found == {name: getattr(peers, name) for name in ("source", "acks", "enters", "clocks", "update_barrier")}


def test_the_comparison_sees_a_difference(extraction):
    bundled = load_profile("sglang-0.5.23")
    other = bundled.with_difference({"gates": {"flush": {"waiting": "never"}}})
    assert [d.key for d in compare(other, extraction.profile).facts] == ["gates.flush.waiting"]
    assert len(facts_of(bundled)) == len(facts_of(extraction.profile))


def test_each_place_lies_in_the_function_that_it_names(extraction):
    for fact in extraction.facts:
        tree = base().tree(fact.place.file) or ast.parse((installed() / fact.place.file).read_text())
        spans = [
            (node.lineno, node.end_lineno)
            for node in ast.walk(tree)
            if getattr(node, "name", None) == fact.place.function
            or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == fact.place.function)
        ]
        assert any(first <= fact.place.line <= last for first, last in spans), fact


def test_the_file_that_is_written_is_the_profile_that_was_read(extraction, tmp_path):
    path = tmp_path / "installed.toml"
    path.write_text(toml(extraction), encoding="utf-8")
    assert compare(load_profile(str(path)), extraction.profile).facts == []
    line = next(line for line in path.read_text().splitlines() if line.startswith("knows_pause"))
    file, _, rest = line.partition("# ")[2].partition(":")
    number, function = rest.split()
    assert (line.partition(" #")[0], function) == ("knows_pause = false", "create_scheduler_watchdog")
    assert "cur_batch_for_debug" in "".join(base()._lines[file][int(number) - 1 : int(number) + 2])


def test_nothing_of_the_engine_is_imported():
    code = (
        "import sys; from checker.extract.read import extract; extract();"
        "print([m for m in sys.modules if m.split('.')[0] in {'sglang', 'torch'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
