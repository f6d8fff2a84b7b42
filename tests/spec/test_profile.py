"""Profiles: what is bundled loads, differences are laid over, and errors name file, line, key and valid names."""

from importlib.resources import files
from pathlib import Path

import pytest

from spec.errors import ProfileError, UnknownNameError
from spec.profile import bundled_profiles, load_profile, overlay

BASE = (files("spec") / "profiles" / "sglang-0.5.23.toml").read_text(encoding="utf-8")


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_bundled_profiles():
    assert bundled_profiles() == [
        "rejected-blocking-drain",
        "rejected-retrying-reap",
        "rejected-retrying-reap-unbounded",
        "sglang-0.5.23",
        "sglang-0.5.23-buffer",
        "sglang-0.5.23-caches",
        "sglang-0.5.23-controls",
        "sglang-0.5.23-decode",
        "sglang-0.5.23-distributed",
        "sglang-0.5.23-dllm",
        "sglang-0.5.23-grammar",
        "sglang-0.5.23-hisparse",
        "sglang-0.5.23-limits",
        "sglang-0.5.23-lmcache",
        "sglang-0.5.23-mlx",
        "sglang-0.5.23-no-flag",
        "sglang-0.5.23-offload",
        "sglang-0.5.23-prefill",
        "sglang-0.5.23-ranks",
        "sglang-0.5.23-ranks-3",
        "sglang-0.5.23-ranks-4",
        "sglang-0.5.23-release",
    ]


def test_a_variant_is_laid_over_by_its_name_and_not_by_all():
    plain = load_profile("sglang-0.5.23")
    assert plain.with_remedies(["flush-waits"]).update.flush == "waits"
    assert plain.with_remedies(["all"]).update.flush == "immediate"
    both = plain.with_remedies(["all", "flush-waits"])
    assert (both.update.flush, both.applied) == ("waits", ("reap-while-paused", "flush-waits"))
    with pytest.raises(UnknownNameError, match="stamp-version-on-success"):
        plain.with_remedies(["stamp-version"])


def test_the_bundled_profile_has_twelve_configurations():
    profile = load_profile("sglang-0.5.23")
    assert len(profile.configurations()) == 12
    assert len(profile.configurations(["normal"], ["retract"])) == 2


def test_the_remedy_is_a_difference_of_the_paused_steps_only():
    plain = load_profile("sglang-0.5.23")
    repaired = plain.with_remedies(["reap-while-paused"])
    assert repaired.applied == ("reap-while-paused",)
    assert repaired.loops["normal"].paused == ("reap", "record")
    assert repaired.loops["overlap"].paused == ("reap", "record")
    assert repaired.loops["normal"].running == plain.loops["normal"].running
    assert repaired.gates == plain.gates
    assert repaired.ledgers == plain.ledgers
    assert plain.with_remedies(["all"]) == repaired


def test_a_base_may_have_a_base():
    profile = load_profile("rejected-retrying-reap-unbounded")
    assert profile.loops["normal"].paused == ("reap", "retry", "record")
    assert profile.prefetch.retry_attempts == 0
    assert profile.version == "0.5.23"


def test_every_fact_names_where_it_was_read():
    profile = load_profile("sglang-0.5.23")
    sources = [loop.source for loop in profile.loops.values()]
    sources += [mode.source for mode in profile.pause.values()]
    sources += [move.source for ledger in profile.ledgers.values() for move in ledger.moves]
    sources += [gate.source for gate in profile.gates.values()]
    sources += [profile.flush.source, profile.update.source, profile.storage.source, profile.prefetch.source]
    assert all(source.startswith("srt/") and ".py:" in source for source in sources)


def test_overlay_replaces_lists_whole_and_merges_tables():
    assert overlay({"a": {"b": [1, 2], "c": 3}}, {"a": {"b": [9]}}) == {"a": {"b": [9], "c": 3}}


@pytest.mark.parametrize(
    ("change", "key", "line", "says"),
    [
        (
            ('paused = ["record"]', 'paused = ["recrod"]'),
            "loops.normal.paused",
            "paused = [",
            "'recrod'; valid names: abort_all",
        ),
        (("sets_flag = true", "sets_flag = 1"), "pause.retract.sets_flag", "sets_flag = 1", "must be bool, is 1"),
        (
            ("threshold_tokens = 256", "threshold_token = 256"),
            "prefetch.threshold_token",
            "threshold_token =",
            "unknown key; valid",
        ),
        (
            ('waiting = "always"', 'waiting = "sometimes"'),
            "gates.deferred_flush.waiting",
            "waiting = ",
            "valid names: always",
        ),
        (('flush = "immediate"', "flush = [1]"), "update.flush", "flush = [1]", "must be str, is [1]"),
        (('stages = ["queued", "ready"]', 'stages = "queued"'), "ledgers.backup.stages", "stages = ", "must be a list"),
        (
            (
                'by = "device", fair = "weak", source = "srt/managers/cache_controller.py:start_writing"',
                'by = "devise", fair = "weak", source = "x"',
            ),
            "ledgers.write_through.moves",
            "moves = [",
            "'devise'",
        ),
    ],
)
def test_a_broken_profile_names_line_and_key(tmp_path, change, key, line, says):
    old, new = change
    assert old in BASE
    path = write(tmp_path, BASE.replace(old, new, 1))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert caught.value.key == key
    assert says in str(caught.value)
    assert caught.value.line is not None
    shown = Path(path).read_text(encoding="utf-8").splitlines()[caught.value.line - 1]
    assert shown.startswith(line)


@pytest.mark.parametrize(
    ("difference", "says"),
    [
        ('[set.configuration]\nwrite_policy = "write_back"', "valid names: write_through"),
        ('[set.configuration]\nhost_mode = "external"', "valid names: buffer_only, cache"),
        ("[set.configuration]\nranks = 8", "must be 1, is 8"),
        ("[set.configuration]\nstorage = []", "must name at least one"),
        ("[set.prefetch]\nretry_attempts = -5", "must not be negative"),
        ('[set.flush]\nclears = ["moon"]', "'moon'; valid names: device, host"),
        ('[set.primitives]\nfoo = "x"', "'foo'; valid names: abort_all"),
        ("[set.ledgers.write_through]\nstages = []\nmoves = []\nmetric = {}", "at least one stage"),
        ('[set.ledgers.foo]\nsource = "x"\nreaper = "x"\nstages = ["a"]\nmetric = { a = "ready" }\nmoves = []',
         "ledgers.foo.created_by: must be one of arrive, lookup_ends, process, queue, requeue"),
        ("set = 3", "must be a table"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_refused_and_not_proved(tmp_path, difference, says):
    with pytest.raises(ProfileError) as caught:
        load_profile(write(tmp_path, f'schema = 1\nbase = "sglang-0.5.23"\n\n{difference}\n'))
    assert says in str(caught.value)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("difference", "key", "line", "problem"),
    [
        ('[M.set.loops.normal]\npaused = ["reep"]', "loops.normal.paused", "paused =", "unknown name 'reep'"),
        ('[M]\nset.loops.normal.paused = ["reep"]', "loops.normal.paused", "set.loops", "unknown name 'reep'; valid"),
        ("[M]\nset = { loops = { normal = { paused = 1 } } }", "loops.normal.paused", "set =", "must be a list, is 1"),
        ("[M.set.gates.flush]\nwaiting = 7", "gates.flush.waiting", "waiting =", "must be str, is 7"),
        ("[M.set.loopz]\nx = 1", "loopz", "[set.remedies.mine.set.loopz]", "unknown key; valid names: "),
        ('[M.set.loops."a b"]\npaused = []', "loops.a b.source", '[set.remedies.mine.set.loops."a b"]', "missing"),
        ('[M.set.configuration]\nmode = ["abort", "abort"]', "configuration.mode", "mode =", "must name each once"),
    ],
)  # fmt: skip
def test_an_error_in_a_remedy_names_file_line_and_key(tmp_path, difference, key, line, problem):
    text = 'schema = 1\nbase = "sglang-0.5.23"\n[set.loops.normal]\npaused = []\n[M]\nsummary = "x"\nhook = "x"\n'
    text = (text + difference.removeprefix("[M]\n")).replace("[M", "[set.remedies.mine")
    path = write(tmp_path, text)
    profile = load_profile(path)
    assert profile.with_remedies(["reap-while-paused"]).loops["normal"].paused == ("reap", "record")
    with pytest.raises(ProfileError) as caught:
        profile.with_remedies(["reap-while-paused", "mine"])
    error = caught.value
    assert (error.path, error.key) == (path, f"remedies.mine.set.{key}")
    assert error.line is not None
    assert Path(path).read_text(encoding="utf-8").splitlines()[error.line - 1].startswith(line)
    assert error.problem.startswith(problem)
    assert str(error).startswith(f"{path}:{error.line}: remedies.mine.set.{key}: {problem}")


def test_an_error_in_a_remedy_of_the_base_names_the_base_s_file(tmp_path, monkeypatch):
    base = tmp_path / "base.toml"
    base.write_text(BASE.replace('paused = ["reap", "record"]', 'paused = ["reep"]', 1), encoding="utf-8")
    monkeypatch.setattr("spec.profile.bundled_profiles", lambda: ["base"])
    monkeypatch.setattr("spec.profile.bundled_path", lambda name: str(tmp_path / f"{name}.toml"))
    path = write(tmp_path, 'schema = 1\nbase = "base"\n[set.remedies.reap-while-paused]\nsummary = "x"\n')
    with pytest.raises(ProfileError) as caught:
        load_profile(path).with_remedies(["all"])
    line = base.read_text(encoding="utf-8").splitlines().index('paused = ["reep"]') + 1
    key = "remedies.reap-while-paused.set.loops.normal.paused"
    assert str(caught.value).startswith(f"{base}:{line}: {key}: unknown name 'reep'; valid names: ")


@pytest.mark.parametrize(
    ("key", "values", "twice"),
    [
        ("loop", ["normal", "overlap", "normal"], "'normal'"),
        ("mode", ["abort", "abort", "retract", "in_place", "in_place"], "'abort', 'in_place'"),
        ("storage", ["none", "none"], "'none'"),
    ],
)
def test_a_value_given_twice_in_a_list_of_the_configuration(tmp_path, key, values, twice):
    text = f'schema = 1\nbase = "sglang-0.5.23"\n\n[set.configuration]\n{key} = '
    path = write(tmp_path, f"{text}{values}\n")
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert str(caught.value) == f"{path}:5: configuration.{key}: must name each once, names {twice} more than once"
    once = list(dict.fromkeys(values))
    assert getattr(load_profile(write(tmp_path, f"{text}{once}\n")).configuration, key) == tuple(once)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema = 2\n", "schema: must be 1, is 2"),
        ("schema = 1\nbase = 'nowhere'\n", "no such profile 'nowhere'; valid names: rejected-blocking-drain"),
        ("schema = 1\nbase = 'sglang-0.5.23'\nloops = {}\n", "has only schema, base and set"),
        ("schema = 1\n", "missing"),
        ("schema = = 1\n", "not TOML"),
    ],
)
def test_a_file_that_is_no_profile(tmp_path, text, says):
    with pytest.raises(ProfileError, match=r"mine\.toml") as caught:
        load_profile(write(tmp_path, text))
    assert says in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(tmp_path / "none.toml"))


def test_binary_is_no_profile(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("profile", lambda: load_profile("sglang-0.5.22")),
        ("remedy", lambda: load_profile("sglang-0.5.23").with_remedies(["reap"])),
        ("remedy", lambda: load_profile("sglang-0.5.23").with_remedies(["all", "bogus"])),
        ("loop", lambda: load_profile("sglang-0.5.23").configurations(["norml"])),
        ("mode", lambda: load_profile("sglang-0.5.23").configurations([], ["retrct"])),
    ],
)
def test_an_unknown_name_lists_the_valid_ones(kind, call):
    with pytest.raises(UnknownNameError, match=f"unknown {kind} .*did you mean|valid names") as caught:
        call()
    assert caught.value.valid


_FROM_READY = '{ from = "ready", to = "retired", by = "reap", starts = "backup", fragments = true,'


@pytest.mark.parametrize(
    ("old", "new", "key", "problem"),
    [
        (
            _FROM_READY,
            _FROM_READY.replace('"reap"', '"process"'),
            "ledgers.write_through.moves",
            "a move by process starts nothing",
        ),
        (
            _FROM_READY,
            _FROM_READY.replace('starts = "backup", ', ""),
            "ledgers.write_through.moves",
            "fragments says how many are started, and nothing is: needs starts",
        ),
        (
            'running = ["reap", "retry", "schedule", "launch", "process"]',
            'running = ["reap", "retry", "reap", "schedule", "launch", "process"]',
            "loops.normal.running",
            "reap stands twice",
        ),
    ],
)
def test_what_would_do_nothing_or_less_than_it_says_is_refused(tmp_path, old, new, key, problem):
    assert old in BASE
    with pytest.raises(ProfileError) as caught:
        load_profile(write(tmp_path, BASE.replace(old, new, 1)))
    assert (caught.value.key, caught.value.problem) == (key, problem)
    assert caught.value.line is not None
