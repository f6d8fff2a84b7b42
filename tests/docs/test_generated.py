"""What is generated in README.md and docs/ is what the code says; what is wrong with a page is noticed."""

import shutil
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from doc_blocks import ROOT

from checker import verdict
from checker.docs import blocks, engine, generate, properties, verdicts
from checker.docs.__main__ import main
from checker.docs.errors import DocsError
from checker.docs.incidents import incidents
from engine_hooks.settings import VARIABLES, Settings
from spec.properties import catalogue

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def record():
    return verdicts.recorded(DOCS)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy that a test may spoil."""
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.png"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def check():
    done = CliRunner().invoke(main, ["--check", "--recorded"])
    return done.exit_code, done.output


def test_everything_generated_is_up_to_date(record):
    assert generate.out_of_date(generate.generated(ROOT, record)) == []


def test_the_record_is_written_as_it_is_read(record):
    assert verdicts.text_of(record) == (DOCS / verdicts.RECORD).read_text(encoding="utf-8")


def test_the_recorded_verdicts_are_those_of_the_manifest(record):
    # The manifest is held against whole runs in tests/proof.
    manifest = tomllib.loads((ROOT / "tests" / "proof" / "manifest.toml").read_text(encoding="utf-8"))
    for run, table in zip(record.runs, ("no-remedy", "reap-while-paused"), strict=False):
        wanted = {
            (name, place): manifest["letters"][letter]
            for name, row in manifest[table].items()
            for place, letter in zip(manifest["places"], row.split(), strict=True)
        }
        assert {(r.property, f"{r.loop} {r.mode} {r.storage}"): r.verdict for r in run.results} == wanted


def test_every_maker_is_used_and_every_property_has_its_page(record):
    used = {name for path in generate.sources(ROOT) for name, _ in blocks.used(path.read_text(encoding="utf-8"))}
    assert used == set(generate.makers(record))
    properties.check_pages(DOCS)


def test_check_of_an_untouched_copy(checkout):
    assert check() == (0, f"{len(list(generate.sources(checkout))) + 1} files are up to date\n")


def test_a_page_that_says_another_thing_is_out_of_date_and_is_put_right(checkout):
    page = checkout / "docs" / "properties" / "update-flushes.md"
    spoil(page, "**refuted**", "proved")
    spoil(checkout / "README.md", "proved", "probed")
    stale = "README.md is out of date; run: make generate\ndocs/properties/update-flushes.md is out of date"
    code, said = check()
    assert (code, said.startswith(stale)) == (1, True)
    written = CliRunner().invoke(main, ["--recorded"])
    assert (written.exit_code, written.output) == (0, "README.md written\ndocs/properties/update-flushes.md written\n")
    assert check()[0] == 0


def test_a_property_without_a_page(checkout):
    (checkout / "docs" / "properties" / "no-stale-kv.md").unlink()
    assert check() == (2, f"checker: {checkout}/docs/properties: no page: no-stale-kv\n")


def test_a_page_without_a_property(checkout):
    pages = checkout / "docs" / "properties"
    shutil.copy(pages / "no-stale-kv.md", pages / "stale-kv.md")
    assert check() == (2, f"checker: {pages}: a page, and there is no such property: stale-kv\n")


@pytest.mark.parametrize("block", ["property", "verdicts", "watched", "incidents"])
def test_a_page_without_one_of_its_blocks(checkout, block):
    page = checkout / "docs" / "properties" / "no-stale-kv.md"
    spoil(page, f"<!-- generated: {block} no-stale-kv -->", f"<!-- generated: {block} versions-agree -->")
    assert check() == (2, f"checker: {page}: no block '{block}' of its property\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- generated: verdict x -->\n<!-- end -->", "page.md:2: nothing generates 'verdict'; valid names: "),
        ("<!-- generated: verdicts x -->\n<!-- end -->", "page.md:2: no property 'x'; valid names: "),
        ("<!-- generated: metrics -->", "page.md:2: a block without an end"),
        ("text\n<!-- end -->", "page.md:3: an end without a beginning"),
        ("<!-- generated: metrics -->\n<!-- generated: metrics -->", "page.md:3: a block inside a block"),
    ],
)
def test_marks_that_are_wrong(record, text, problem):
    with pytest.raises(DocsError) as raised:
        blocks.filled(f"\n{text}\n", generate.makers(record), "page.md")
    assert str(raised.value).startswith(problem)


def test_a_record_of_another_spec_or_of_other_properties(checkout, record):
    path = checkout / "docs" / verdicts.RECORD
    spoil(path, record.runs[1].digest, "0" * 16)
    assert check()[0] == 2
    assert "recorded of another spec" in check()[1]
    runs = [
        msgspec.structs.replace(r, results=[x for x in r.results if x.property != "ranks-aligned"]) for r in record.runs
    ]
    path.write_text(verdicts.text_of(msgspec.structs.replace(record, runs=runs)), encoding="utf-8")
    assert check()[0] == 2
    assert "of other properties" in check()[1]


def test_a_method_without_words(record):
    run = msgspec.structs.replace(
        record.runs[0], results=[msgspec.structs.replace(record.runs[0].results[0], method="luck")]
    )
    with pytest.raises(DocsError, match="no words for the method 'luck'"):
        properties.makers(msgspec.structs.replace(record, runs=[run]))["verdicts"](run.results[0].property)


def test_outside_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = check()
    assert (code, said) == (
        2,
        f"checker: no docs/ and README.md in {str(tmp_path)!r}; run it at the top of a checkout\n",
    )


def decided(*kinds):
    return [verdicts.Decided("p", "normal", "retract", "none", kind, "", "") for kind in kinds]


def test_what_is_not_proved_everywhere_never_reads_as_proved():
    assert verdicts.tally(decided("proved", "proved")) == "proved"
    assert verdicts.tally(decided("proved", "not-applicable")) == "proved"
    assert verdicts.tally(decided("not-applicable")) == "not applicable"
    assert verdicts.tally(decided("proved", "refuted", "proved")) == "**refuted** in 1, proved in 2"
    assert verdicts.tally(decided("proved", "bounded")) == "bounded in 1, proved in 1"
    assert verdicts.tally(decided("unknown")) == "unknown"


def test_the_environment_table_has_every_variable_that_is_read():
    class Spy(dict):
        def __init__(self):
            super().__init__()
            self.asked = set()

        def get(self, key, default=None):
            self.asked.add(key)
            return super().get(key, default)

    spy = Spy()
    Settings.from_environment(spy)
    assert {one.name for one in VARIABLES} == spy.asked
    assert all(f"`{name}`" in engine.makers()["environment"]("") for name in spy.asked)


def test_every_exit_code_has_its_meaning():
    codes = {value for name, value in vars(verdict).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert codes == set(verdict.EXIT_CODES) == {0, 1, 2, 3, 4}


def test_incidents_are_distinct_and_of_known_properties():
    found = incidents()
    assert len({one.id for one in found}) == len({one.url for one in found}) == len(found) == 46
    assert {name for one in found for name in one.properties} <= set(catalogue())


def test_incidents_that_are_brought_back_are_told_under_the_property_that_they_refute():
    told = {one.id: one.properties for one in incidents()}
    suite = [
        tomllib.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "tests" / "incidents").glob("*-*.toml")
    ]
    assert len(suite) >= 12
    wrong = {
        one["id"]: one["refuted"]["property"]
        for one in suite
        if one["refuted"]["property"] not in told.get(one["id"], ())
    }
    assert wrong == {}
