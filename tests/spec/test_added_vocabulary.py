"""The vocabulary beyond the core: what it may not say is refused with file, line, key and valid names."""

from pathlib import Path

import pytest

from spec.errors import ProfileError
from spec.profile import load_profile

PEERS = """[set.peers]
source = "srt/mem_cache/unified_radix_cache.py:writing_check"
ledger = "write_through"
copies = "agreed"
acks = "agreed"
enters = "always"
clocks = "one"
update_barrier = true
"""
HOLDING = """[set.holdings.host]
source = "srt/managers/cache_controller.py:prefetch"
of = ["prefetch"]
released_by = ["retire"]
"""


def _load(tmp_path: Path, difference: str):
    path = tmp_path / "mine.toml"
    path.write_text(f'schema = 1\nbase = "sglang-0.5.23"\n\n{difference}\n', encoding="utf-8")
    return load_profile(str(path))


@pytest.mark.parametrize(
    ("difference", "key", "says"),
    [
        (
            '[set.loops.normal]\nrunning = ["reap if asleep"]',
            "loops.normal.running",
            "'asleep'; valid names: admitted, waiting, work",
        ),
        ('[set.loops.normal]\nrunning = ["sleep if work"]', "loops.normal.running", "'sleep'; valid names: abort_all"),
        ('[set.gates.flush]\nnames = ["moon"]', "gates.flush.names", "'moon'; valid names: backup"),
        ('[set.prefetch]\ndeclines = "often"', "prefetch.declines", "'often'; valid names: '', free, spent"),
        ('[set.update]\nrefused = "hides"', "update.refused", "'hides'; valid names: asserts, fails, succeeds"),
        ('[set.update]\nlock = "big"', "update.lock", "'big'; valid names: '', abort, one-shot, pause, requests"),
        ('[set.update]\nmay_skip_flush = "yes"', "update.may_skip_flush", "must be bool, is 'yes'"),
        (
            '[set.ledgers.load_back]\nlocks = ["moon"]',
            "ledgers.load_back.locks",
            "'moon'; valid names: device, host, request",
        ),
        (
            '[set.accounts]\nsource = "x"\nfrees = ["some"]\ncovers = []\nskips_finished = true',
            "accounts.frees",
            "'some'; valid names: ahead, committed",
        ),
        ('[set.accounts]\nsource = "x"\nfrees = []\ncovers = []', "accounts.skips_finished", "missing"),
        ('[set.eviction]\nsource = "x"\ntiers = ["storage"]', "eviction.tiers", "'storage'; valid names: device, host"),
        (
            HOLDING.replace('"retire"', '"luck"'),
            "holdings.host.released_by",
            "'luck'; valid names: abort, detach, reject, retire, revoke",
        ),
        (HOLDING.replace('"prefetch"]', '"ghosts"]'), "holdings.host.of", "'ghosts'; valid names: backup"),
        (
            '[set.detach]\nsource = "x"\nwaits_for = []\nclears = ["moon"]',
            "detach.clears",
            "'moon'; valid names: backup",
        ),
        (
            '[set.lookup_wait]\nsource = "x"\ndeadline = "none"\nside_pool = true\nrevoke_ends = true',
            "lookup_wait.deadline",
            "'none'; valid names: all, main, nothing",
        ),
        ("[set.configuration]\nranks = 2", "configuration.ranks", "must be 1, is 2: more ranks need the table peers"),
        ("[set.configuration]\nranks = 5\n\n" + PEERS, "configuration.ranks", "must be 1 to 4, is 5"),
        (PEERS.replace('"always"', '"maybe"'), "peers.enters", "'maybe'; valid names: always, in-flight"),
        ('[set.waves]\nsource = "x"\npause = "soon"', "waves.pause", "'soon'; valid names: agreed, alone"),
        ('[set.threads]\nsource = "x"\nmany = 2', "threads.many", "unknown key; valid names: source"),
        (
            '[set.controls.release]\nsource = "x"\ngate = "moon"\nrefused = "fails"\nserves_on = true',
            "controls.release.gate",
            "'moon'; valid names: deferred_flush, flush, release",
        ),
        (
            '[set.controls.release]\nsource = "x"\ngate = "release"\nrefused = "fails"\nserves_on = true',
            "controls.release",
            "needs a gate of its own: gates.release is missing",
        ),
        (
            '[set.controls.resume]\nsource = "x"\nrefused = "fails"',
            "controls.resume",
            "needs controls.release: nothing else releases memory",
        ),
        (
            '[set.controls.clear]\nsource = "x"\ngate = ""\nreports = true',
            "controls.clear",
            "needs configuration.storage to be file alone",
        ),
        (
            '[set.update_session]\nsource = "x"\nwaits = "long"\nunfinished = "served"',
            "update_session.waits",
            "'long'; valid names: deadline, for-ever",
        ),
        (
            '[set.tiers.images]\nsource = "x"\nfilled_by = ["luck"]\nflushed = true',
            "tiers.images.filled_by",
            "'luck'; valid names: admit, finish, retract",
        ),
        (
            '[set.tiers.device]\nsource = "x"\nfilled_by = ["admit"]\nflushed = true',
            "tiers.device",
            "no tier of the model's own",
        ),
        ('[set.requeue]\nsource = "x"\nledger = "moon"', "requeue.ledger", "'moon'; valid names: backup"),
        ('[set.ledgers.prefetch]\nneeds = "host"', "ledgers.prefetch.needs", "'host'; valid names: storage"),
        (
            '[set.ledgers.load_back]\nends_with = ["rain"]',
            "ledgers.load_back.ends_with",
            "'rain'; valid names: abort, retract",
        ),
        ("[set.loops.normal]\nchains = true", "loops.normal.chains", "needs result_queue"),
        ('[set.loops.normal]\nrunning = ["launch if work"]', "loops.normal.running", "launch takes no condition"),
        ('[set.pause.retract]\nsteps = ["schedule if work"]', "pause.retract.steps", "schedule takes no condition"),
        (
            PEERS.replace('"always"', '"in-flight"') + '\n[set.loops.normal]\nrunning = ["reap if work"]',
            "loops.normal.running",
            "reap takes no condition beside peers",
        ),
        ("[set.ledgers.load_back]\neach = true", "ledgers.load_back.each", "needs created_by"),
        ('[set.resend]\nsource = "x"\nstarts = "moon"', "resend.starts", "'moon'; valid names: backup"),
        ("[set.loops.normal]\nmicro_batches = true", "loops.normal.micro_batches", "needs result_queue"),
        ("[set.loops.normal]\npause_waits = true", "loops.normal.pause_waits", "needs micro_batches"),
        (PEERS + "\n[set.loops.overlap]\nmicro_batches = true", "loops.overlap.micro_batches", "beside peers"),
        ("[set.loops.normal]\nskips_finishing = true", "loops.normal.skips_finishing", "needs result_queue"),
        (
            '[set.primitives]\nyield = "x"\n[set.loops.normal]\nrunning = ["yield"]',
            "loops.normal.running",
            "needs the table threads",
        ),
        (
            '[set.primitives]\nmerge = "x"\n[set.loops.normal]\nrunning = ["merge"]',
            "loops.normal.running",
            "needs the table merge",
        ),
        (PEERS.replace('"write_through"', '"backup"'), "peers.ledger", "'backup'; valid names: write_through"),
        ('[set.update]\nflush = "waits"\nlock = "pause"', "update.lock", "'pause' is asked before a flush"),
        (
            '[set.ledgers.backup]\nmoves = [{ from = "queued", to = "retired", by = "launch", source = "x" }]',
            "ledgers.backup.moves",
            "launch makes no move of this ledger",
        ),
    ],
)
def test_what_may_not_be_said_names_line_and_key(tmp_path: Path, difference: str, key: str, says: str) -> None:
    with pytest.raises(ProfileError) as caught:
        _load(tmp_path, difference)
    assert (caught.value.key, says in str(caught.value)) == (key, True), caught.value
    assert caught.value.line is not None


def test_what_may_be_said_is_read(tmp_path: Path) -> None:
    profile = _load(tmp_path, PEERS + "\n" + HOLDING + '\n[set.loops.normal]\nrunning = ["reap if work", "schedule"]')
    assert profile.peers is not None
    assert profile.peers.update_barrier
    assert profile.holdings["host"].of == ("prefetch",)
    assert profile.loops["normal"].running == ("reap if work", "schedule")


def test_the_bundled_profile_says_none_of_it() -> None:
    profile = load_profile("sglang-0.5.23")
    added = ("accounts", "eviction", "detach", "threads", "merge", "peers", "waves")
    assert [name for name in added if getattr(profile, name) is not None] == []
    assert (profile.holdings, profile.update.lock, profile.gates["flush"].names) == ({}, "", ())
