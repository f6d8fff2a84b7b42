"""Remedies that make a paused pass do what only a running one does."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import ClassVar

from engine_hooks.sglang.repairs.base import SCHEDULER, Call, Engine, Place, Remedy

_PAUSED_PASS = f"{SCHEDULER}._record_scheduler_state_for_paused_engine"
_READY = "sglang.srt.constrained.grammar_manager.GrammarManager.get_ready_grammar_requests"


class ReapWhilePaused(Remedy):
    """Each paused pass first reaps HiCache events, without starting storage lookups.

    An exception of the engine's own reap is not caught: it may come from the middle of a collective, and a rank that
    went on alone would hang the others. It ends the scheduler, as the same exception does in a running pass.
    """

    name = "reap-while-paused"
    repairs: ClassVar[Mapping[str, str]] = {_PAUSED_PASS: "a84579a1f5b1"}

    def bind(self, scheduler: Engine) -> None:
        """Raises AttributeError or TypeError where the engine's function is not the one that the spec models."""
        reap = scheduler._process_hicache_events  # noqa: SLF001 - the engine has no public name for it
        inspect.signature(reap).bind(should_retry_storage_prefetch=False)
        self._reap = reap
        # A decode worker without decode HiCache never reaps (`process_decode_queue`), paused or not.
        self._reaps = scheduler.disaggregation_mode.value != "decode" or scheduler.enable_decode_hicache

    def before_record(self) -> None:
        """Models the spec's `reap` in the paused step (`Scheduler._process_hicache_events`)."""
        if self._reaps:
            self._reap(should_retry_storage_prefetch=False)


class GrammarWhilePaused(Remedy):
    """Each paused pass polls the grammar queue; what is ready waits with the others, looked up after the pause."""

    name = "grammar-while-paused"
    places: ClassVar[tuple[Place, ...]] = (
        Place(f"{SCHEDULER}._prefetch_kvcache", "looking_up"),
        Place(f"{SCHEDULER}.continue_generation", "continuing"),
    )
    repairs: ClassVar[Mapping[str, str]] = {_PAUSED_PASS: "a84579a1f5b1", _READY: "2a1662719038"}
    needs: ClassVar[tuple[str, ...]] = ("reap-while-paused",)

    def __init__(self) -> None:
        super().__init__()
        self._polling = False
        self._unasked: list[Engine] = []

    def bind(self, scheduler: Engine) -> None:
        """Raises AttributeError where the grammar manager is not the one that the spec models."""
        grammar = scheduler.grammar_manager
        self._waiting, self._ready = grammar.has_waiting_grammars, grammar.get_ready_grammar_requests
        self._queue = scheduler._add_request_to_queue  # noqa: SLF001 - the engine has no public name for it

    def before_record(self) -> None:
        """As `Scheduler._get_new_batch_prefill_raw` begins. A poll takes 5 ms unless all are ready, as there."""
        if not self._waiting():
            return
        self._polling = True
        try:
            for request in self._ready():
                self._queue(request)
        finally:
            self._polling = False

    def looking_up(self, original: Call, scheduler: Engine, request: Engine, *args: object, **kwargs: object) -> object:
        """Around `_prefetch_kvcache`: no paused pass starts a lookup."""
        if not self._polling:
            return original(scheduler, request, *args, **kwargs)
        self._unasked.append(request)
        return None

    def continuing(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around `continue_generation`: the lookups that were left out, of the requests that still wait."""
        result = original(scheduler, *args, **kwargs)
        asked, self._unasked = self._unasked, []
        for request in asked:
            if request in scheduler.waiting_queue:
                scheduler._prefetch_kvcache(request)  # noqa: SLF001 - the engine has no public name for it
        return result
