"""The page as text: what it holds, what cannot be in it, and what `checker report` refuses."""

import subprocess
import sys
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import msgspec
import pytest
from strangers import hostile_report, made_up, report_of

from checker.digest import spec_digest
from checker.explain import explanation
from checker.report.curves import charts
from checker.report.load import LIMIT, ResultFileError, load
from checker.report.page import page
from checker.report.places import Source
from checker.report.render import html
from checker.report.words import component, meaning, ranks
from checker.results import EngineInfo
from spec.profile import bundled_profiles, load_profile
from spec.protocol import Protocol

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "<script>window.pwned=1</script>",
    "\"'><img src=x onerror=window.pwned=1>",
    "</style></script><svg/onload=window.pwned=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.pwned=1",
    "\0\x1b[2J\u202e\ud800]]>-->",
]


class Tags(HTMLParser):
    """What a page consists of."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data.split()

    @property
    def text(self):
        return " ".join(self.words)


@pytest.fixture(scope="module")
def text(report):
    return html(page(report, Source()))


def test_it_tells_every_story_of_explain_without_a_script(report, text):
    shown = Tags(text).text
    for name in {r.property for r in report.results if r.trace}:
        one = msgspec.structs.replace(report, results=[r for r in report.results if r.property == name])
        for story in explanation(one).stories:
            assert story.result.reason in shown
            for line in story.lines[3:]:
                told = " ".join(line.split("   [")[0].split())
                if ".py" not in told:
                    assert told in shown


def test_each_result_has_its_cell(report, text):
    cells = [a for tag, a in Tags(text).tags if tag == "td"]
    assert sorted(a["class"] for a in cells) == sorted(r.verdict for r in report.results)
    links = [a["href"] for tag, a in Tags(text).tags if tag == "a"]
    ids = {a["id"] for _, a in Tags(text).tags if "id" in a}
    assert {link.removeprefix("#") for link in links} <= ids


def test_it_is_small_and_needs_nothing_else(text):
    assert len(text.encode()) < 170_000
    for tag, attributes in Tags(text).tags:
        assert tag not in {"link", "iframe", "object", "img", "base"}
        assert not {"src", "style", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_add_no_element(name):
    harmless, hostile = (html(page(hostile_report(text), Source())) for text in ("x", name))
    kept = ("script", "style", "img", "svg", "a", "meta", "input")
    harmless, hostile = ([t for t, _ in Tags(text).tags if t in kept] for text in (harmless, hostile))
    assert hostile == harmless
    assert hostile.count("script") == 1


def test_the_facts_name_their_places(text):
    shown = Tags(text).text
    assert "event_loop_normal" in shown
    assert "queued → submitted by reap" in shown


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "is another one now than the report speaks of"), ("sglang-0.5.23", "is another one now")],
)
def test_facts_of_another_profile_are_not_shown(given, said):
    report = report_of(made_up("proved"), verdict="proved")
    shown = page(report, Source(), load_profile(given) if given else None)
    assert shown.facts == []
    assert said in shown.no_facts


def test_facts_of_a_profile_in_a_file_need_the_file():
    profile = load_profile("sglang-0.5.23")
    report = report_of(made_up("proved"), verdict="proved", engine=EngineInfo("sglang", "0.5.23", "mine", "file", []))
    assert "name it with --profile" in page(report, Source()).no_facts
    report = msgspec.structs.replace(report, spec_digest=spec_digest(profile))
    assert [s.name for s in page(report, Source(), profile).facts][:3] == ["configuration", "loops", "primitives"]


def test_what_is_open_and_what_is_missing_is_said():
    report = report_of(made_up("unknown"), made_up("proved", loop="overlap", property="x"), verdict="unknown")
    shown = Tags(html(page(report, Source()))).text
    assert "idle-is-true is unknown : the solver gave up" in shown
    assert "not decided" in shown
    assert "Interrupted" not in shown
    report = report_of(verdict="unknown", complete=False)
    assert "Interrupted: the rest was not decided" in Tags(html(page(report, Source()))).text


@pytest.mark.parametrize("name", bundled_profiles())
def test_each_variable_of_the_model_has_words(name):
    profile = load_profile(name)
    for configuration, follow in product(profile.configurations(), (False, True)):
        names = [v.name for v in Protocol(profile, configuration, follow_request=follow).spec().variables]
        assert [n for n in names if not meaning(n)] == []


def test_ledgers_of_any_profile_have_a_chart():
    states = [{"grammar_compiling": 1, "mine_waiting": True}, {"grammar_ready": 1, "backup_queued": 1}]
    assert [(chart.ledger, len(chart.curves)) for chart in charts(states, None)] == [("backup", 1), ("grammar", 2)]


def test_ranks_in_words():
    assert ranks("rank (a, ~b); (c)") == [["a", "~b"], ["c"]]
    assert ranks("1 claim(s) by induction") == []
    assert component("~paused") == "unless: the scheduler's pause flag"
    assert component("2*late + -waiting") == (
        "2 x requests past the tokenizer's gate, not yet in the queue + -requests that wait in the queue"
    )
    assert component("2*late + what") == ""


def changed(report, **more):
    return msgspec.json.encode(msgspec.structs.replace(report, **more))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: b"", "Input data was truncated"),
        (lambda _: b"\xff", "malformed"),
        (lambda _: b"[" * 100_000, "Expected `object`"),
        (lambda _: b'{"x":' + b"[" * 100_000, "nested too deep"),
        (lambda _: b"{}", "missing required field `schema`"),
        (lambda r: changed(r, schema=2), "schema must be 1, is 2"),
        (lambda r: changed(r, verdict="proved"), "verdict is 'proved', but by its results it is 'refuted'"),
        (lambda r: changed(r, verdict="fine"), "verdict must be one of proved,"),
        (lambda r: changed(r, results=[{"property": 1}]), "Expected `str`, got `int` - at `$.results[0].property`"),
        (lambda r: changed(r, results=[made_up("fine")]), "results[0].verdict must be one of"),
        (
            lambda r: changed(r, results=[made_up("proved", configuration={})]),
            "results[0].configuration.mode is missing",
        ),
        (lambda r: changed(r, results=[made_up("refuted", trace={"steps": [], "loop_from": 1})]), "loop_from must be"),
    ],
)
def test_a_file_that_is_no_result(make, said, report, tmp_path):
    path = tmp_path / "RESULT.json"
    path.write_bytes(make(report))
    with pytest.raises(ResultFileError) as caught:
        load(str(path))
    assert said in str(caught.value)
    assert "checker verify --json > RESULT.json" in str(caught.value)


def test_a_file_without_end(tmp_path):
    path = tmp_path / "RESULT.json"
    with path.open("wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(ResultFileError, match="more than 64 MiB"):
        load(str(path))


def run(*arguments, **more):
    command = [sys.executable, "-m", "checker", "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=300, **more)


def test_the_command_reads_a_result_and_exits_as_verify_does(result_file, tmp_path):
    output = tmp_path / "report.html"
    done = run(result_file, "-o", output, cwd=ROOT)
    assert (done.returncode, done.stdout.decode()) == (1, f"{output}: refuted\n")
    piped = tmp_path / "piped.html"
    done = run("-", "-o", piped, input=result_file.read_bytes(), cwd=ROOT)
    assert done.returncode == 1
    assert piped.read_text(encoding="utf-8") == output.read_text(encoding="utf-8")


def test_without_a_result_it_verifies_first(tmp_path):
    done = run(
        "--profile",
        "sglang-0.5.23",
        "--loop",
        "normal",
        "--mode",
        "retract",
        "--property",
        "idle-is-true",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, b"report.html: proved\n")
    assert "By induction" not in Tags((tmp_path / "report.html").read_text(encoding="utf-8")).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such.json"], "No such file or directory"),
        (["."], "Is a directory"),
        (["{result}", "-o", "no/such/folder.html"], "cannot be written"),
        (["{result}", "-o", "."], "cannot be written: it is a folder"),
        (["{result}", "--loop", "normal", "--seed", "1"], "it cannot go with --loop, --seed"),
        (["{result}", "--profile", "sglang"], "unknown profile 'sglang'"),
        (["--property", "idle"], "unknown property 'idle'"),
    ],
)
def test_what_it_refuses_is_exit_code_2(arguments, said, result_file, tmp_path):
    done = run(*(a.format(result=result_file) for a in arguments), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()


def test_without_jinja_it_says_what_to_install(result_file):
    hide = "import sys; sys.modules['jinja2'] = None; from checker.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "report", str(result_file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "in the checkout, pip install '.[report]'" in done.stderr


def test_a_proof_shows_its_rank_and_its_invariant(report, text):
    (found,) = [
        r for r in report.results if r.property == "requests-conserved" and r.configuration["storage"] == "none"
    ]
    assert found.invariant == ["arrived = waiting + running + answered"]
    shown = Tags(text).text
    proved = [r for r in report.results if r.verdict == "proved" and r.invariant]
    assert len(proved) > 5
    shown_lemmas = {lemma for p in page(report, Source()).proofs for lemma in p.invariant}
    assert all(lemma in shown for lemma in shown_lemmas)
    assert "arrived requests that ever arrived" in shown


def test_only_a_proof_has_an_invariant(report):
    assert not [r for r in report.results if r.verdict != "proved" and r.invariant]


def test_a_result_of_before_there_were_invariants_is_read(tmp_path, report):
    old = msgspec.to_builtins(report)
    for result in old["results"]:
        del result["invariant"]
    path = tmp_path / "OLD.json"
    path.write_bytes(msgspec.json.encode(old))
    shown = html(page(load(str(path)), Source()))
    assert "With an invariant" not in shown
