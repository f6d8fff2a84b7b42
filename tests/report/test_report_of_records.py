"""Pages of flight records and of traces: what they tell, what cannot be in them, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from flights import PROFILE, forward_while_paused, founding

from checker.export.chosen import Selection
from checker.export.itf import trace as itf_of
from checker.record import RecordError, read_record
from checker.report import flight, traces
from checker.report.load import ResultFileError
from checker.report.places import Source
from checker.report.playback import SHOWN
from checker.report.render import html
from engine_hooks.record import MAX_BYTES
from spec.profile import Configuration, load_profile

ROOT = Path(__file__).resolve().parents[2]
REAPER = "srt/mem_cache/unified_radix_cache.py"
HOSTILE = [
    "<script>window.pwned=1</script>",
    "\"'><img src=x onerror=window.pwned=1>",
    "{{ 7 * 7 }}",
    "\x1b[2J\u202e{0}",
]


@pytest.fixture
def stuck(tmp_path):
    return founding(tmp_path / "records")


def page_of(path):
    return flight.playback(read_record(path), Source())


def checker(*arguments, cwd=ROOT, given=None):
    return subprocess.run(
        [sys.executable, "-P", "-m", "checker", *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd, input=given, timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
    )  # fmt: skip


def test_the_founding_case_is_told_line_by_line(stuck):
    page = page_of(stuck)
    before, oldest = "s before the violation)", "write_through: the oldest entry"
    assert [(s.number, s.actor, s.sentence) for s in page.steps] == [
        (1, "scheduler", f"running pass 1 (2.500 {before}"),
        (2, "scheduler", f"running pass 2; {oldest} 0.00 s old (2.000 {before}"),
        (3, "trainer", f"pause_generation: the scheduler is paused (2.000 {before}"),
        (4, "scheduler", f"paused passes 3 to 5, 3 seen, all alike; {oldest} 0.50 s old (1.500 {before}"),
        (5, "scheduler", f"weights are loaded: epoch 1 (0.500 {before}"),
        (6, "trainer", f"flush (update): refused (0.500 {before}"),
        (7, "trainer", f"update (disk): unflushed (0.500 {before}"),
        (8, "scheduler", f"paused pass 6; {oldest} 2.00 s old (at the violation)"),
        (9, "monitor", "write_through holds the flush back (at the violation)"),
        (10, "monitor", "paused-flush-succeeds: nothing that this pause still does makes it true (at the violation)"),
    ]
    assert [step.number for step in page.steps if step.repeats] == [10]
    assert [(c.ledger, c.stuck, c.curves[0].stage, c.curves[0].values) for c in page.charts] == [
        ("write_through", True, "submitted", [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    ]
    assert [(v.name, v.value, v.changed, v.stuck) for v in page.steps[-1].state] == [
        ("flush_wanted", "yes", False, False),
        ("paused", "yes", False, False),
        ("waiting", "1", False, False),
        ("write_through_submitted", "1", False, True),
    ]
    assert (page.stays, page.mark, page.left_out) == (True, "stuck", "")
    held, found = "write_through (1 submitted, the oldest seen 2.00 s ago; ", f"{REAPER} writing_check"
    now = "no retry can succeed while paused: call continue_generation and then flush, before any new request; or start"
    workers = "(prefill and decode workers: pd-drains-while-paused)"
    assert [(k.name, k.value, k.place and k.place.text) for k in page.known] == [
        ("Since", "paused for 2.00 s, mode retract", None),
        ("In flight", f"{held}{REAPER}:writing_check would have to run)", None),
        ("Holds the flush back", "write_through, which this function would have had to retire", found),
        ("Now", f"{now} with QUIESCE_REMEDIES=reap-while-paused {workers}", None),
    ]
    assert page.statement.startswith("paused by retract and a flush wanted ~>")


def test_what_is_not_stuck_is_not_marked(tmp_path):
    page = page_of(forward_while_paused(tmp_path / "records"))
    assert not page.stays
    assert not any(step.repeats for step in page.steps)
    assert page.ending == []
    assert page.reason == "a batch is launched"


def test_functions_are_named_only_for_the_spec_that_the_record_was_written_with(tmp_path):
    page = page_of(founding(tmp_path / "records", digest="another"))
    assert [k.value for k in page.known if k.name == "Holds the flush back"] == ["write_through"]
    (unknown,) = [k.value for k in page.known if k.name == "Not known"]
    assert f"spec another of profile {PROFILE.profile} is not the one of this version" in unknown


def test_a_long_record_is_a_small_page_that_says_what_it_leaves_out(tmp_path):
    page = page_of(founding(tmp_path / "records", before=400))
    assert len(page.steps) == SHOWN
    assert [step.number for step in page.steps] == list(range(1, SHOWN + 1))
    # Of 404 different passes the recorder keeps 256; 6 events are news.
    assert page.left_out == "the first 142 lines are not shown; 148 earlier ones the record no longer held"
    assert len(html(page).encode()) < 150_000


def test_the_command_writes_the_page_and_its_exit_code_is_that_of_a_violation(stuck, tmp_path):
    done = checker("report", stuck, "-o", tmp_path / "page.html")
    said = f"{tmp_path}/page.html: sglang 0.5.23: paused-flush-succeeds does not hold\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, said, "")
    assert "What is known" in (tmp_path / "page.html").read_text(encoding="utf-8")
    done = checker("report", "-", "-o", tmp_path / "other.html", given=stuck.read_text(encoding="utf-8"))
    assert done.returncode == 1
    assert (tmp_path / "other.html").read_bytes() == (tmp_path / "page.html").read_bytes()


@pytest.mark.parametrize("option", [("--profile", "sglang-0.5.23"), ("--loop", "normal")])
def test_a_record_goes_with_no_option_of_verify(stuck, tmp_path, option):
    done = checker("report", stuck, *option, "-o", tmp_path / "page.html")
    assert done.returncode == 2
    assert f"it cannot go with {option[0]}" in done.stderr


def spoiled(text, how):
    lines = text.splitlines(keepends=True)
    return {
        "cut off": text[:-1],
        "not JSON": "".join([*lines[:3], "{]\n", *lines[3:]]),
        "another kind": "".join([*lines[:3], '{"kind":"other"}\n']),
        "a string for a number": "".join([*lines[:1], lines[1].replace('"first":1', '"first":"1"')]),
        "an unknown field": "".join([*lines[:1], lines[1].replace('"first"', '"evil":1,"first"')]),
        "two headers": "".join([*lines, lines[0]]),
        "another schema": text.replace('"schema":1', '"schema":9', 1),
        "nested": "".join([*lines[:1], '{"kind":"pass","state":' + "[" * 100_000 + "\n"]),
        "too large": "".join(lines) + "\n" * MAX_BYTES,
        "no header": "".join(lines[1:]),
        "empty": "",
    }[how]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("cut off", "its last line does not end"),
        ("not JSON", "line 4: JSON is malformed"),
        ("another kind", "line 4: Invalid value 'other'"),
        ("a string for a number", "line 2: Expected `int`, got `str`"),
        ("an unknown field", "line 2: Object contains unknown field `evil`"),
        ("two headers", "more than one header"),
        ("another schema", "schema 9 is not known; this version reads 1"),
        ("nested", "line 2: "),
        ("too large", "larger than a flight record may be"),
        ("no header", "line 1: no header"),
        ("empty", "no flight record, or cut off"),
    ],
)
def test_a_broken_record_is_refused_with_its_line(stuck, tmp_path, how, said):
    path = tmp_path / "broken.ndjson"
    path.write_text(spoiled(stuck.read_text(encoding="utf-8"), how), encoding="utf-8")
    with pytest.raises(RecordError, match=r"broken\.ndjson") as raised:
        read_record(path)
    done = checker("report", path, "-o", tmp_path / "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"checker: {raised.value}\n")
    assert said in done.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_record_says_adds_no_element(stuck, text):
    record = read_record(stuck)
    header = msgspec.structs.replace(record.header, **dict.fromkeys(
        ("engine", "engine_version", "profile", "loop", "storage", "property", "message", "spec_digest"), text
    ), rank={text: 1}, remedies=(text,), at=1e300)  # fmt: skip
    lines = [
        msgspec.structs.replace(line, series=text, labels=(text, text))
        if hasattr(line, "series")
        else msgspec.structs.replace(line, unmodelled=(text,), oldest={text: -1e300}, mode=text)
        for line in record.lines
    ]
    page = html(flight.playback(type(record)(header, tuple(lines)), Source()))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert "49" not in page.split("</style>", 1)[1].split("<main>")[0]


# Traces.


@pytest.fixture(scope="module")
def itf():
    place = Configuration("normal", "retract", "file")
    return itf_of(Selection(load_profile("sglang-0.5.23"), place, ("paused-flush-succeeds",)))


def test_a_trace_is_told_with_actors_and_places(itf):
    page = traces.playback("t", traces.read_itf("t", itf.encode()), Source())
    assert page.title == "paused-flush-succeeds is refuted"
    assert page.lanes == ["client", "trainer", "tokenizer", "scheduler", "device", "storage"]
    told = {s.sentence: (s.actor, s.repeats) for s in page.steps}
    # There are several minimal runs: of which ledger, and which of the flushes is refused, is the solver's choice.
    assert next(iter(told)).startswith("a request arrives and is queued (")
    assert told["pause_generation(mode=retract)"] == ("trainer", False)
    refused = {
        "flush_cache is refused: the gate is closed",
        "update_weights(flush_cache=True): loaded, but its one flush is refused, success=False",
    }
    assert len(refused & set(told)) == 1
    (chart,) = (chart for chart in page.charts if chart.stuck)
    last = {
        "prefetch": ("the storage completes a prefetch entry (query)", ("storage", False)),
        "write_through": ("the device completes a write_through entry (submitted)", ("device", False)),
    }
    assert list(told.items())[-1] == last[chart.ledger]
    assert page.ending == ["And so it stays: the last state repeats for ever."]


def test_a_trace_of_another_tool_is_its_states():
    states = [{"a": 1}, {"a": {"#bigint": "2"}}, {"a": 1}]
    text = json.dumps({"#meta": {"description": "x"}, "vars": ["a"], "loop": 1, "states": states}).encode()
    page = traces.playback("t", traces.read_itf("t", text), Source())
    assert (page.title, page.reason, page.lanes) == ("A trace", "x", ["step"])
    assert [(s.changes, s.repeats) for s in page.steps] == [(["a 1->2"], False), (["a 2->1"], True)]
    assert page.ending == ["And then steps 2 to 2 repeat for ever."]
    assert "What happened" in html(page)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"vars": ["a"], "states": []}', "a trace without states"),
        ('{"vars": ["a"], "states": [{"a": "x"}]}', "states[0].a is no boolean and no integer"),
        ('{"vars": ["a"], "states": [{"a": 1}, {}]}', "states[1].a is missing"),
        ('{"vars": ["a"], "states": [{"a": {"#bigint": "' + "9" * 5000 + '"}}]}', "states[0].a is no boolean"),
        ('{"vars": ["a"], "loop": 5, "states": [{"a": 1}]}', "loop must be from 0 to 0, is 5"),
        ('{"vars": 1, "states": [{"a": 1}]}', "Expected `array`, got `int` - at `$.vars`"),
        ('{\n"vars": ["a"],\n"states": [{"a": 1},]}', "line 3"),
        ('{"states": ' + "[" * 100_000, "JSON"),
    ],
)
def test_a_broken_trace_is_refused(tmp_path, text, said):
    path = tmp_path / "t.itf.json"
    path.write_text(text, encoding="utf-8")
    done = checker("report", path, "-o", tmp_path / "page.html")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("checker: ")
    if "JSON" not in said:
        assert said in done.stderr


def test_a_result_that_is_not_json_is_refused_with_its_line(tmp_path):
    path = tmp_path / "RESULT.json"
    path.write_text('{"schema": 1,\n"results": [}\n', encoding="utf-8")
    done = checker("report", path)
    assert done.returncode == 2
    assert "line 2" in done.stderr


def test_a_trace_with_bad_numbers_of_its_own(itf):
    broken = json.loads(itf)
    broken["states"][1]["#meta"]["choices"] = {"tokens": "<b>"}
    broken["states"][2]["#meta"] = "x"
    page = traces.playback("t", traces.read_itf("t", json.dumps(broken).encode()), Source())
    assert page.steps[0].sentence == "a request arrives and is queued"
    with pytest.raises(ResultFileError):
        traces.read_itf("t", b'{"vars": [], "states": 5}')
