"""The probes on the real scheduler: what they read is what the engine says of itself, in thousands of states."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("sglang")

import requests

from engine_hooks.sglang.testbed import launch, tinymodel
from engine_hooks.sglang.testbed.server import Server, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

REMEDY = "reap-while-paused"
# The workload goes on until it has met what is asked for below: this long at least, and until the wait is over at most.
_SECONDS = 25.0
# Which stages are met is chance; that each of these ledgers is, is not.
_MET = ("write_through", "backup", "prefetch")
_STATES = ("flush open", "flush closed", "deferred_flush open", "deferred_flush closed")
_WORKERS = 4
_WAIT = 120.0


def post(server: Server, path: str, **body: object) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=_WAIT)


def metrics(server: Server) -> dict[tuple[str, ...], float]:
    """Series name and label values (in the order of the labels' names) to value."""
    text = requests.get(server.url + "/metrics", timeout=_WAIT).text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("quiesce_")
    }


def series(server: Server, name: str) -> dict[str, float]:
    """The value of each child of a series with one label of its own, summed over ranks."""
    sums: Counter[str] = Counter()
    for key, value in metrics(server).items():
        if key[0] == name:
            own = [part for part in key[1:] if not part.isdigit()]
            sums[",".join(own)] += value
    return dict(sums)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [tinymodel.make(tmp_path_factory.mktemp("model"), seed=seed) for seed in (1, 2)]


def audited(tmp_path: Path, model: Path, warm: Warm, remedies: str, **arguments: object) -> ServerOptions:
    folder = tmp_path / "audit"
    folder.mkdir()
    audit = str(Path(__file__).parent / "audit")
    environment = {
        "QUIESCE": "observe",
        "QUIESCE_REMEDIES": remedies,
        "QUIESCE_CENSUS": "1",
        "QUIESCE_STATUS_DIR": str(tmp_path / "status"),
        "QUIESCE_TEST_AUDIT": str(folder),
        "PYTHONPATH": os.pathsep.join([audit, *launch.standin_paths()]),
    }
    return ServerOptions(
        model,
        tmp_path,
        storage=True,
        ranks=int(str(arguments.get("tp_size", 1))),
        arguments={"enable_metrics": True, "hicache_storage_prefetch_policy": "wait_complete", **arguments},
        environment=environment,
        warm=warm,
    )


def prompt(rng: random.Random) -> list[int]:
    """One of some prompts with shared prefixes, long enough for a storage lookup."""
    base = rng.randrange(4)
    return [(base * 31 + i * 7) % 500 + 3 for i in range(320)] + [rng.randrange(4, 9)] * rng.choice([40, 300])


def met(options: ServerOptions) -> bool:
    """Whether the audit has seen each state and each ledger of the above."""
    seen = [audit["seen"] for audit in audits(options)]
    return all(
        all(one.get(state) for state in _STATES) and all(any(name.startswith(m) for name in one) for m in _MET)
        for one in seen
    ) and bool(seen)


def client(server: Server, seed: int, over: threading.Event) -> int:
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    done = 0
    while not over.is_set():
        sampling = {"max_new_tokens": rng.choice([4, 30, 280]), "temperature": 0, "ignore_eos": True}
        done += post(server, "/generate", input_ids=prompt(rng), sampling_params=sampling).ok
    return done


def trainer(server: Server, models: list[Path], enough: Callable[[], bool]) -> None:
    """Pauses in both modes, flushes of every kind, updates; transfers of every kind slow down at random."""
    rng = random.Random(99)  # noqa: S311 - as above
    ranks = [server.control.rank(tp=tp) for tp in range(server.options.ranks)]
    first, last = time.monotonic() + _SECONDS, time.monotonic() + _WAIT
    while time.monotonic() < first or (time.monotonic() < last and not enough()):
        for switch in (s for rank in ranks for s in rank.switches.values()):
            switch.delay(rng.choice([0, 0, 0.002, 0.03]))
        time.sleep(rng.random())
        post(server, "/pause_generation", mode=rng.choice(["retract", "retract", "in_place"]))
        for _ in range(rng.randrange(5)):
            time.sleep(rng.choice([0, 0.05, 0.2]))
            post(server, f"/flush_cache?timeout={rng.choice([0, 0, 0.3])}")
        if rng.random() < 0.5:
            path = str(rng.choice(models))
            post(server, "/update_weights_from_disk", model_path=path, flush_cache=rng.random() < 0.7)
        post(server, "/continue_generation")


def audits(options: ServerOptions) -> list[dict[str, Any]]:
    """What each scheduler's audit has written, its counts and its differences."""
    return [json.loads(file.read_text()) for file in sorted((options.folder / "audit").glob("*.json"))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("loop", "remedies"), [("normal", ""), ("overlap", REMEDY)], ids=["normal-bare", "overlap-repaired"]
)
def test_every_observation_is_what_the_engine_says(
    tmp_path: Path, models: list[Path], warm: Warm, loop: str, remedies: str
) -> None:
    options = audited(
        tmp_path, models[0], warm, remedies, disable_overlap_schedule=loop == "normal", max_total_tokens=6144
    )
    with Server(options) as server:
        over = threading.Event()
        with ThreadPoolExecutor(_WORKERS) as pool:
            clients = [pool.submit(client, server, seed, over) for seed in range(_WORKERS)]
            try:
                trainer(server, models, lambda: met(options))
            finally:
                over.set()
            assert all(c.result(_WAIT) for c in clients)
        shown = metrics(server)
        violated = series(server, "quiesce_violations_total")
        checked = series(server, "quiesce_checks_total")
        applied = series(server, "quiesce_hook_applied")
        status = [json.loads(file.read_text()) for file in (tmp_path / "status").iterdir()]
    (audit,) = audits(options)
    print(audit["seen"], violated, checked)  # noqa: T201 - shown by pytest -s, the record of what the run covered
    assert audit["differences"] == []
    assert audit["seen"]["observations"] > 1000
    assert met(options), audit["seen"]
    assert applied == dict.fromkeys(applied, 1)
    never = {"flush-only-when-quiescent", "idle-is-true", "no-forward-while-paused", "no-new-lookup-while-paused"}
    never |= {"pages-conserved"}
    assert {p: violated[p] for p in never} == dict.fromkeys(never, 0)
    assert checked["pages-conserved"] > 50
    if remedies:
        assert violated["paused-flush-succeeds"] == 0
    assert shown["quiesce_check_duration_seconds_count", "0", "0", "0"] > 0
    (active,) = (s["series"]["remedy_active"] for s in status)
    assert {name for name, on in active.items() if on} == ({REMEDY} if remedies else set())
    assert REMEDY in active


@pytest.fixture(scope="module")
def two_ranks(
    tmp_path_factory: pytest.TempPathFactory, models: list[Path], warm: Warm
) -> Iterator[tuple[Server, ServerOptions]]:
    options = audited(tmp_path_factory.mktemp("tp2"), models[0], warm, REMEDY, tp_size=2)
    with Server(options) as server:
        yield server, options


@pytest.mark.timeout(900)
def test_two_ranks_agree_on_the_remedy_and_reap_in_step(two_ranks: tuple[Server, ServerOptions]) -> None:
    server, options = two_ranks
    assert server.log().count(f"remedies: {REMEDY}") == 2
    ranks = [server.control.rank(tp=tp) for tp in range(2)]
    # The second rank's copy alone is held: the first must wait for it, in each paused pass, and neither may hang.
    ranks[1].d2h.hold()
    sampling = {"max_new_tokens": 400, "temperature": 0, "ignore_eos": True}
    request = threading.Thread(
        target=post, args=(server, "/generate"), kwargs={"input_ids": list(range(3, 203)), "sampling_params": sampling}
    )
    request.start()
    ranks[1].d2h.wait_in_flight()
    post(server, "/pause_generation", mode="retract")
    assert not post(server, "/flush_cache").ok
    wait_for(lambda: series(server, "quiesce_flush_blocked")["write_through"] == 2)
    assert series(server, "quiesce_stuck")["paused-flush-succeeds"] == 0
    ranks[1].d2h.release()
    wait_for(lambda: post(server, "/flush_cache").ok)
    wait_for(lambda: series(server, "quiesce_flush_blocked")["write_through"] == 0)
    post(server, "/continue_generation")
    request.join(_WAIT)
    assert not request.is_alive()
    wait_for(lambda: len(audits(options)) == 2)
    assert [audit["differences"] for audit in audits(options)] == [[], []]
    assert {name: on for name, on in series(server, "quiesce_remedy_active").items() if on} == {REMEDY: 2}
    violated = series(server, "quiesce_violations_total")
    assert violated == dict.fromkeys(violated, 0)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
