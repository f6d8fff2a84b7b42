"""The remedies for pipelines of prefill and decode workers, on stand-ins: what stands in a pause, and what goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.sglang.remedies import bind_remedies, make_remedies
from engine_hooks.sglang.repairs import disaggregation
from engine_hooks.sglang.repairs.base import Remedy
from engine_hooks.sglang.repairs.pipelines import PPHonoursPause


class Plan(SimpleNamespace):
    """`NextBatchPlan`."""


class Scene:
    """A pipeline of two micro-batches with the remedy on; each call of the engine's own functions is a word."""

    def __init__(self, *, prefills: bool = False, reaps: bool = False) -> None:
        self.calls: list[str] = []
        self.remedy = PPHonoursPause()
        self.remedy._plan = Plan
        self.remedy._batch = lambda reqs, batch_is_full: SimpleNamespace(reqs=reqs, batch_is_full=batch_is_full)
        self.remedy._prefills = prefills
        self.remedy._reap = self.word("reap") if reaps else None
        self.remedy.on = True
        self.scheduler = SimpleNamespace(
            _engine_paused=False,
            _record_scheduler_state_for_paused_engine=self.word("record"),
            mbs=[None, None],
            running_mbs=[batch(), batch()],
            last_mbs=[None, None],
            running_batch=batch(),
            waiting_queue=[],
        )

    def word(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)

    def step(self) -> Any:
        """As the loop of a worker goes through what is hooked."""
        self.remedy.chunking(self.word("chunk"), self.scheduler)
        self.remedy.reaping(self.word("own reap"), self.scheduler)
        plan = self.remedy.scheduling(self.word("schedule"), self.scheduler, running_batch=self.scheduler.running_batch)
        self.remedy.idling(self.word("idle"), self.scheduler)
        return plan

    def take(self) -> list[str]:
        calls = self.calls.copy()
        self.calls.clear()
        return calls


def batch(*names: str, extend: bool = False) -> Any:
    requests = [SimpleNamespace(name=name, finished=lambda: False) for name in names]
    mode = SimpleNamespace(is_extend=lambda: extend)
    return SimpleNamespace(reqs=requests, batch_is_full=True, forward_mode=mode)


class PauseGenerationReqInput(SimpleNamespace):
    """The engine's own is known by its name."""


def test_a_step_schedules_unless_it_is_paused_or_about_to_be() -> None:
    scene = Scene()
    everything = ["chunk", "own reap", "schedule", "idle"]
    scene.step()
    assert scene.take() == everything
    scene.scheduler.mbs[1] = batch("a")
    handled: list[Any] = []
    ingest = lambda _, requests: handled.extend(requests)  # noqa: E731 - the engine's function
    pause = PauseGenerationReqInput(mode="retract")
    scene.remedy.ingesting(ingest, scene.scheduler, ["before", pause, "after"])
    assert handled == ["before"]
    plan = scene.step()
    assert scene.take() == ["own reap"]
    assert (plan.batch_to_run, plan.running_batch) == (None, scene.scheduler.running_batch)
    scene.scheduler.mbs[1] = None
    scene.remedy.ingesting(ingest, scene.scheduler, [])
    assert handled == ["before", pause, "after"]
    scene.scheduler._engine_paused = True
    scene.step()
    assert scene.take() == ["record"]
    scene.scheduler._engine_paused = False
    scene.step()
    assert scene.take() == everything
    scene.remedy.on = False
    scene.scheduler._engine_paused = True
    scene.step()
    assert scene.take() == everything


def test_a_running_decode_step_reaps_where_its_loop_does_not() -> None:
    scene = Scene(reaps=True)
    scene.step()
    assert scene.take() == ["chunk", "own reap", "reap", "schedule", "idle"]
    scene.scheduler._engine_paused = True
    scene.remedy.reaping(scene.word("asked for"), scene.scheduler, should_retry_storage_prefetch=False)
    assert scene.take() == ["asked for"]


@pytest.mark.parametrize(("prefills", "taken"), [(False, ["a", "b"]), (True, ["a"])])
def test_a_retract_takes_back_what_runs_and_no_prefill_whose_kv_is_sent(prefills: bool, taken: list[str]) -> None:  # noqa: FBT001 - a parameter
    scene = Scene(prefills=prefills)
    scheduler = scene.scheduler
    scheduler.running_mbs = [batch("a"), batch()]
    scheduler.last_mbs = [batch("b", extend=True), None]
    found: list[str] = []
    original = lambda s, _: found.extend(r.name for r in s.running_batch.reqs)  # noqa: E731 - the engine's function
    scene.remedy.pausing(original, scheduler, PauseGenerationReqInput(mode="retract"))
    assert found == taken
    assert [b.reqs for b in scheduler.running_mbs] == [[], []]
    assert scheduler.last_mbs == [None, None]


@pytest.mark.parametrize("stages", [1, 2])
def test_in_a_pipeline_the_drain_needs_the_pause(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remedy, "differing", lambda _self: [])
    monkeypatch.setattr(disaggregation, "_in_pipeline", lambda: stages > 1)
    scheduler = SimpleNamespace(
        disaggregation_mode=SimpleNamespace(value="decode"),
        enable_decode_hicache=False,
        _process_hicache_events=lambda should_retry_storage_prefetch=True: should_retry_storage_prefetch,
    )
    bound = bind_remedies(make_remedies(["pd-drains-while-paused"]), scheduler, {})
    assert ("pd-drains-while-paused" in bound) == (stages == 1)
