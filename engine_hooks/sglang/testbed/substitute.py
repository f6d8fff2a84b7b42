"""What makes a scheduler's process able to run HiCache on the CPU, and lets a test control its transfers.

SGLang's own code decides what is transferred, when, and what completion means. This supplies the copy, the asynchrony
and the gates in front of them.
"""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any

from sglang.srt.layers.attention import torch_native_backend
from sglang.srt.mem_cache.pool_host import base, mha, mla
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_parallel

from engine_hooks.sglang.testbed import copies, grammars, streams
from engine_hooks.sglang.testbed.control import (
    SPIN_VARIABLE,
    Gate,
    InjectedFailureError,
    Kind,
    RankGates,
    RankId,
    report_failure,
)
from engine_hooks.sglang.testbed.intake import Intake
from engine_hooks.sglang.testbed.loopback import LoopbackTransferEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver.SchedulerRequestReceiver"
_L2_ENGINE = "sglang.srt.mem_cache.l2_transfer.L2TransferEngine"
_HOST_POOL = "sglang.srt.mem_cache.pool_host.base.HostKVCache"
_MOONCAKE = "sglang.srt.distributed.device_communicators.mooncake_transfer_engine.MooncakeTransferEngine"
_GRAMMARS = "sglang.srt.constrained"
_KV_CLASS = "sglang.srt.disaggregation.utils.get_kv_class"
_STORAGE = "sglang.srt.mem_cache.storage.backend_factory.StorageBackendFactory"

# SGLang keeps this much of a host's memory free before it builds pools; its own figure is sized for hosts of GPUs.
_HOST_MEMORY_RESERVE_BYTES = 512 * 1024**2

# A loop without work takes a core for itself. Those of a test run share theirs with the tests.
_REST_SECONDS = 0.001

# What each method of a storage backend answers for `n` keys where nothing worked. Those without such an answer raise.
_REFUSALS: dict[Kind, dict[str, Callable[[int], object] | None]] = {
    Kind.STORAGE_QUERY: {"batch_exists": lambda _n: 0, "batch_exists_v2": None},
    Kind.STORAGE_READ: {
        "batch_get": lambda n: [None] * n,
        "batch_get_v1": lambda n: [False] * n,
        "batch_get_v2": None,
    },
    Kind.STORAGE_WRITE: {
        "batch_set": lambda _n: False,
        "batch_set_v1": lambda n: [False] * n,
        "batch_set_v2": None,
    },
}


def install(directory: Path) -> None:
    """Put streams, copies and gates in place; the rank reports to `directory` once its scheduler is built.

    Called before the engine builds anything. SGLang applies the hooks after all plugins have registered theirs.
    """
    streams.install()
    _complete_cpu_support()
    Substitute(directory).register()


def _complete_cpu_support() -> None:
    """Supply the names that SGLang defines for accelerators only, and uses here."""
    for module in (mha, mla):
        for kernel in copies.KERNELS:
            setattr(module, kernel.__name__, kernel)
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = _HOST_MEMORY_RESERVE_BYTES
    # DP attention asks every attention backend of the CPU for this, and the native one has none.
    backend = torch_native_backend.TorchNativeAttnBackend
    if not hasattr(backend, "get_cpu_graph_seq_len_fill_value"):
        backend.get_cpu_graph_seq_len_fill_value = lambda _self: 1


class Substitute:
    """The hooks of one process on one rank."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._intake = Intake(lambda kind: self._gates[kind])
        self._hooks: dict[str, tuple[Callable[..., object], HookType]] = {
            f"{_HOST_POOL}.__init__": (_without_pinning, HookType.BEFORE),
            f"{_L2_ENGINE}.__init__": (_make_lanes, HookType.AFTER),
            f"{_L2_ENGINE}.submit_device_to_host": (self._submit_d2h, HookType.AROUND),
            f"{_L2_ENGINE}.submit_host_to_device": (self._submit_h2d, HookType.AROUND),
            f"{_STORAGE}.create_backend": (self._gate_storage, HookType.AFTER),
            _MOONCAKE: (LoopbackTransferEngine, HookType.REPLACE),
            f"{_MOONCAKE}.batch_transfer_sync": (self._send_kv, HookType.AROUND),
            f"{_GRAMMARS}.grammar_manager.GrammarManager.__init__": (grammars.supply, HookType.AFTER),
            f"{_GRAMMARS}.base_grammar_backend.BaseGrammarBackend._init_value_dispatch": (
                self._compile,
                HookType.AROUND,
            ),
            _KV_CLASS: (_indices_on_host, HookType.AFTER),
            f"{_RECEIVER}.recv_requests": (self._intake.receive, HookType.AROUND),
            f"{_SCHEDULER}.ingest_requests": (self._intake.ingest, HookType.AROUND),
            f"{_SCHEDULER}.__init__": (self._scheduler_built, HookType.AFTER),
        }

    def register(self) -> None:
        """Register every hook with SGLang."""
        for target, (hook, kind) in self._hooks.items():
            HookRegistry.register(target, hook, kind)
        if SPIN_VARIABLE not in os.environ:
            # An engine without one of these spins there, and that is all.
            for without_work in ("on_idle", "_record_scheduler_state_for_paused_engine"):
                HookRegistry.register(f"{_SCHEDULER}.{without_work}", _rest, HookType.AFTER)

    @functools.cached_property
    def _gates(self) -> RankGates:
        # Read late: a process knows its ranks only after it has published its configuration.
        parallel = get_parallel()
        rank = RankId(dp=parallel.dp_rank or 0, pp=parallel.pp_rank, tp=parallel.tp_rank)
        return RankGates(self._directory, rank)

    def _scheduler_built(self, _result: object, *_args: object, **_kwargs: object) -> None:
        # SGLang logs a hook that it could not apply and carries on, so ask it what it applied.
        missing = sorted(set(self._hooks) - HookRegistry._patched)  # noqa: SLF001 - there is no public way to ask
        if missing:
            reason = f"SGLang did not apply these hooks of the testbed: {', '.join(missing)}"
            report_failure(self._directory, reason)
            raise RuntimeError(reason)
        self._gates.report_installed()

    def _submit_d2h(self, submit: Callable[..., object], engine: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401 - SGLang ships no types
        lane = engine.device_to_host_stream
        return _on_lane(self._gates[Kind.D2H], lane, lambda: submit(engine, *args, **kwargs))

    def _submit_h2d(self, submit: Callable[..., object], engine: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401 - SGLang ships no types
        lane = engine.host_to_device_stream
        return _on_lane(self._gates[Kind.H2D], lane, lambda: submit(engine, *args, **kwargs))

    def _send_kv(self, send: Callable[..., object], *args: object, **kwargs: object) -> object:
        return self._gates[Kind.PD_SEND].run(lambda: send(*args, **kwargs), lambda: -1)

    def _compile(self, compiled: Callable[..., object], *args: object, **kwargs: object) -> object:
        return self._gates[Kind.GRAMMAR].run(lambda: compiled(*args, **kwargs))

    def _gate_storage(self, backend: object, *_args: object, **_kwargs: object) -> None:
        for kind, refusals in _REFUSALS.items():
            for name, refusal in refusals.items():
                if hasattr(backend, name):
                    setattr(backend, name, self._through_gate(kind, getattr(backend, name), refusal))

    def _through_gate(
        self, kind: Kind, method: Callable[..., object], refusal: Callable[[int], object] | None
    ) -> Callable[..., object]:
        @functools.wraps(method)
        def gated(keys: list[object], *args: object, **kwargs: object) -> object:
            refused = None if refusal is None else lambda: refusal(len(keys))
            return self._gates[kind].run(lambda: method(keys, *args, **kwargs), refused)

        return gated


def _rest(_result: object, *_args: object, **_kwargs: object) -> None:
    time.sleep(_REST_SECONDS)


def _without_pinning(pool: object, *args: object, **kwargs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """There is no accelerator to pin host memory for."""
    return (pool, *args), kwargs | {"pin_memory": False}


def _indices_on_host(kv_class: Any, *_args: object, **_kwargs: object) -> None:  # noqa: ANN401 - SGLang ships no types
    """A sender that copies page indices to pinned memory has no need to here."""
    if getattr(kv_class, "supports_host_tensor_indices", False):
        kv_class.supports_host_tensor_indices = False


def _make_lanes(_result: object, engine: Any, *_args: object, **_kwargs: object) -> None:  # noqa: ANN401 - SGLang ships no types
    engine.device_to_host_stream.make_lane("d2h")
    engine.host_to_device_stream.make_lane("h2d")


def _on_lane(gate: Gate, lane: streams.Stream, submit: Callable[[], object]) -> object:
    """Put the gate in front of what `submit` puts on the lane, and the end of it behind."""
    number = gate.submit()
    if gate.fails(number):
        # No kernel launch reports failure in its result.
        raise InjectedFailureError(f"transfer {number} was told to fail")
    lane.enqueue(lambda: gate.enter(number))
    completion = submit()
    lane.enqueue(gate.leave)
    return completion
