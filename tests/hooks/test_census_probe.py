"""When a census is taken, what it costs at most, and what the monitor makes of it; on stand-ins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from hooks_fakes import Bench, Clock, scheduler

from engine_hooks.census.words import Census, Defect
from engine_hooks.errors import LostSightError, ProtocolViolationError, SettingsError
from engine_hooks.monitor import MonitorOptions
from engine_hooks.monitor_text import NEEDS
from engine_hooks.observation import Rank
from engine_hooks.settings import CensusOptions, Settings
from engine_hooks.sglang.census_probe import CensusProbe, _smallest
from engine_hooks.sglang.plugin import _census_options
from engine_hooks.sglang.probes_session import Session, Sources
from engine_hooks.sglang.probes_state import EngineKind, StateReader

CLEAN = Census(8, {"free": 5, "cached": 2, "owned": 1, "unaccounted": 0})
LEAK = Census(8, {"free": 4, "cached": 2, "owned": 1, "unaccounted": 1}, (Defect("unaccounted", 1, (3,)),))
PROPERTY = "pages-conserved"


class Scene:
    """A probe whose censuses take as long as it is told; keeps the moments at which one was taken."""

    def __init__(self, passes: int = 0, seconds: float = 0.0, census: Census | None = CLEAN) -> None:
        self.clock, self.seconds, self.census = Clock(), seconds, census
        self.moments: list[str] = []
        self.probe = CensusProbe(self._take, lambda _, moment: self.moments.append(moment), passes, self.clock)

    def _take(self) -> Census | None:
        self.clock.now += self.seconds
        return self.census


def test_an_idle_loop_is_counted_once_after_work_and_then_every_five_seconds() -> None:
    scene = Scene()
    for forwards in (7, 7, 7, 9, 9):
        scene.probe.idle(forwards)
    assert scene.moments == ["at idle"] * 2
    scene.clock.now += 4.9
    scene.probe.idle(9)
    assert scene.moments == ["at idle"] * 2
    scene.clock.now += 0.2
    scene.probe.idle(9)
    scene.probe.idle(9)
    assert scene.moments == ["at idle"] * 3


def test_a_census_is_taken_after_a_retract_and_around_a_flush() -> None:
    scene = Scene()
    scene.probe.retracted(3)
    scene.probe.flush_begins(3)
    scene.probe.flush_granted(3)
    assert scene.moments == ["after a retract", "before a flush", "after a flush"]


def test_refused_flushes_and_an_idle_loop_cost_a_hundredth_at_most() -> None:
    scene = Scene(seconds=0.01)
    for _ in range(1000):
        scene.clock.now += 0.005
        scene.probe.flush_begins(3)
    # 5 s of requests and one census of 0.01 s in each second or so.
    assert len(scene.moments) == 5
    for forwards in range(200):
        scene.clock.now += 0.005
        scene.probe.idle(forwards)
    assert scene.moments.count("at idle") == 1


def test_batches_are_counted_only_if_asked_and_from_the_last_census() -> None:
    never, third = Scene(), Scene(passes=3)
    for forwards in (0, 1, 2, 3, 3, 4, 5, 6, 7):
        never.probe.passed(forwards)
        third.probe.passed(forwards)
    assert never.moments == []
    assert third.moments == ["between two passes"] * 2
    third.probe.retracted(8)
    third.probe.passed(10)
    assert third.moments[2:] == ["after a retract"]
    third.probe.passed(11)
    assert third.moments[2:] == ["after a retract", "between two passes"]


def test_what_cannot_be_counted_now_is_found_nowhere() -> None:
    scene = Scene(census=None)
    scene.probe.flush_granted(1)
    assert scene.moments == []


def test_an_episode_begins_with_the_first_bad_census_and_ends_with_a_good_one() -> None:
    bench = Bench()
    bench.observe()
    for census in (CLEAN, LEAK, LEAK, CLEAN, LEAK):
        bench.monitor.pages_counted(census, "at idle")
    sink = bench.settle()
    assert sink.violated() == {PROPERTY: 2}
    assert sink.checked()[PROPERTY] == 5
    assert {state: sink.gauges["kv_pages", state] for state in LEAK.counts} == LEAK.counts
    assert sink.violations[0].message == (
        "pages-conserved does not hold on tp0 pp0 dp0, pass 1 of loop normal: a census at idle found 8 pages: 4 free, "
        "2 cached, 1 owned, 1 unaccounted; 1 held by nobody: leaked (3); now: a page that two hold gives wrong "
        "answers, so restart the engine; one that nobody holds is lost until the next flush, so flush"
    )


def test_enforce_raises() -> None:
    bench = Bench(MonitorOptions(enforce=True))
    bench.monitor.pages_counted(CLEAN, "at idle")
    with pytest.raises(ProtocolViolationError, match="1 held by nobody: leaked"):
        bench.monitor.pages_counted(LEAK, "at idle")


def test_a_census_that_nobody_asked_for_is_no_loss() -> None:
    bench = Bench(MonitorOptions(unasked=frozenset(("census",)), enforce=True))
    assert PROPERTY not in bench.monitor.watched
    bench.monitor.lost("census", "its target is missing")
    assert ("hook_applied", "census") not in bench.settle().gauges
    other = Bench(MonitorOptions(enforce=True))
    assert PROPERTY in other.monitor.watched
    with pytest.raises(LostSightError, match="no longer checked: pages-conserved"):
        other.monitor.lost("census", "the tree is another")
    assert other.sink.gauges["hook_applied", "census"] == 0


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", CensusOptions(on=True, passes=0)),
        (" On ", CensusOptions(on=True, passes=0)),
        ("off", CensusOptions(on=False)),
        ("200", CensusOptions(on=True, passes=200)),
    ],
)
def test_the_setting(text: str, options: CensusOptions) -> None:
    assert Settings.from_environment({"QUIESCE_CENSUS": text}).census_options() == options


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "yes", "\u00b2", "9" * 30])
def test_a_setting_that_cannot_be_read_names_itself_and_what_is_valid(text: str) -> None:
    settings = Settings.from_environment({"QUIESCE_CENSUS": text})
    with pytest.raises(SettingsError) as error:
        settings.census_options()
    assert str(error.value) == f"QUIESCE_CENSUS={text!r} is not valid; valid: on, off, or a number of batches"


def session(probe: CensusProbe, bench: Bench) -> Session:
    engine = scheduler(forward_ct=4, run_batch=lambda: None)
    reader = StateReader(engine, Rank(), "normal", EngineKind())
    return Session(engine, bench.monitor, Sources(reader, lambda: 0, lambda: "file", (), census=probe))


def test_the_events_of_a_session_are_moments() -> None:
    scene, bench = Scene(passes=4), Bench()
    one = session(scene.probe, bench)
    one.ingested([])
    one.paused("in_place")
    one.paused("retract")
    one.flush_begins()
    one.flush_answered(False)
    one.flush_answered(True)
    one.idling()
    assert scene.moments == ["between two passes", "after a retract", "before a flush", "after a flush", "at idle"]


def test_a_census_that_raises_is_lost_and_nothing_else_is() -> None:
    def broken() -> Census:
        raise RuntimeError("out of memory")

    bench = Bench()
    one = session(CensusProbe(broken, bench.monitor.pages_counted), bench)
    for _ in range(2):
        one.paused("retract")
        one.flush_begins()
        one.flush_answered(True)
    assert bench.sink.gauges["hook_applied", "census"] == 0
    assert bench.monitor.watched == frozenset(NEEDS) - {PROPERTY}
    assert bench.sink.counts["flushes_total", "immediate", "granted"] == 2


def pools(**changes: object) -> SimpleNamespace:
    """A scheduler without requests, on stand-ins for its pools."""
    import torch  # noqa: PLC0415 - only where it is there

    kind = type("Allocator", (), {})
    allocator = kind()
    allocator.free_group, allocator.size, allocator.page_size = None, 8, 2
    allocator.free_pages, allocator.release_pages = torch.tensor([1, 2]), torch.tensor([3])
    fields = {
        "token_to_kv_pool_allocator": allocator,
        "tree_cache": SimpleNamespace(all_values_flatten=lambda: torch.tensor([8, 9]), session_records=dict),
        "req_to_token_pool": SimpleNamespace(req_to_token=torch.zeros(2, 6, dtype=torch.int32)),
        "running_batch": SimpleNamespace(reqs=[]),
        "last_batch": None,
        "chunked_req": None,
        "waiting_queue": [],
    }
    return SimpleNamespace(**(fields | changes))


def test_a_setting_that_cannot_be_read_leaves_out_the_census_only(caplog: pytest.LogCaptureFixture) -> None:
    assert _census_options(Settings(census="never")) == CensusOptions(on=False)
    assert (
        "QUIESCE_CENSUS='never' is not valid; valid: on, off, or a number of batches; no census is taken" in caplog.text
    )
    assert _census_options(Settings(census="9")) == CensusOptions(passes=9)


class Flat:
    """Stands for SGLang's allocator of single slots."""


class Paged(Flat):
    """Stands for its allocator of pages."""


class Tree:
    """Stands for SGLang's tree."""

    def __init__(self, *, swa: bool = False, page_size: int = 2) -> None:
        self.page_size = page_size
        self._swa = swa

    def supports_swa(self) -> bool:
        return self._swa

    def supports_mamba(self) -> bool:
        return False


class Sharded(Paged):
    """Some subclass of an allocator, which holds pages that are not in its free list."""


class OtherTree(Tree):
    """Some subclass of the tree."""


def plain_engine(**changes: object) -> SimpleNamespace:
    allocator = Paged()
    allocator.page_size = 2
    return scheduler(**({"token_to_kv_pool_allocator": allocator, "tree_cache": Tree()} | changes))


def allocator_of(kind: type[Flat], page_size: int) -> Flat:
    made = kind()
    made.page_size = page_size
    return made


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"token_to_kv_pool_allocator": allocator_of(Sharded, 2)}, "the allocator is a Sharded"),
        ({"tree_cache": OtherTree()}, "the tree is a OtherTree"),
        ({"tree_cache": Tree(swa=True)}, "the tree has other components than full attention"),
        ({"tree_cache": Tree(page_size=4)}, "pages of the allocator have 2 tokens, those of the tree 4"),
        (
            {"disaggregation_mode": SimpleNamespace(value="decode")},
            "a decode worker holds pages in its transfer queues",
        ),
        ({"enable_pdmux": True}, "pages are held by split prefill batches"),
        ({"enable_overlap_mlx": True}, "pages are held by pending MLX jobs"),
        ({"enable_hisparse": True}, "pages are held by HiSparse"),
        ({"dllm_config": object()}, "pages are held by diffusion staging"),
    ],
)
def test_an_engine_with_other_owners_of_pages_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str | None
) -> None:
    from engine_hooks.sglang.census_pools import unread  # noqa: PLC0415 - imports torch

    for name, module in {
        "sglang.srt.mem_cache.allocator": SimpleNamespace(
            PagedTokenToKVPoolAllocator=Paged, TokenToKVPoolAllocator=Flat
        ),
        "sglang.srt.mem_cache.unified_radix_cache": SimpleNamespace(UnifiedRadixCache=Tree),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert unread(plain_engine(**changes), 1) == reason
    assert unread(plain_engine(), 2) == "pages are held by microbatches"


@pytest.mark.parametrize("size", [1, 2, 256])
def test_what_warms_the_kernel_has_each_kind_of_holder(size: int) -> None:
    from engine_hooks.census import reference  # noqa: PLC0415 - imports torch

    engine = pools()
    engine.token_to_kv_pool_allocator.page_size = size
    census = reference.take(_smallest(engine))
    assert census.conserved
    assert census.counts == {"free": 1, "cached": 1, "owned": 1, "unaccounted": 0}


def request(row: int | None, shared: int = 0, end: int = 3, *, beams: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        beam_group=beams, kv=SimpleNamespace(req_pool_idx=row, cache_protected_len=shared, kv_allocated_len=end)
    )


def test_each_record_is_read_once_wherever_it_is_named() -> None:
    from engine_hooks.sglang.census_pools import holdings_of  # noqa: PLC0415 - imports torch

    running, chunked, waiting, finished = request(1), request(0, 2, 4), request(1, 0, 1), request(None)
    session = SimpleNamespace(session_records=lambda: {"s": running.kv}, all_values_flatten=list)
    held = holdings_of(
        pools(
            running_batch=SimpleNamespace(reqs=[running, finished]),
            last_batch=SimpleNamespace(reqs=[running]),
            chunked_req=chunked,
            waiting_queue=[waiting],
            tree_cache=session,
        )
    )
    assert [tuple(owner) for owner in held.owners] == [(1, 0, 3), (0, 2, 4), (1, 0, 1)]
    assert (held.pages, held.page_size, [part.tolist() for part in held.free]) == (4, 2, [[1, 2], [3]])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: setattr(s.token_to_kv_pool_allocator, "free_group", []),
        lambda s: s.running_batch.reqs.append(request(1, beams=object())),
    ],
)
def test_nothing_is_read_in_the_middle_of_freeing_nor_with_beams(spoil: Callable[[SimpleNamespace], None]) -> None:
    from engine_hooks.sglang.census_pools import holdings_of  # noqa: PLC0415 - imports torch

    scheduler = pools()
    assert holdings_of(scheduler) is not None
    spoil(scheduler)
    assert holdings_of(scheduler) is None
