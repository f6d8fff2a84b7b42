"""Remedies for what an update of weights leaves behind: its version, and stored pages of other weights."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from engine_hooks.sglang.repairs.base import SCHEDULER, UPDATES, WEIGHTS, Call, Engine, Place, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable

_UNSET = object()
_BASE = "quiesce_extra_key"
"""The attribute of a request that keeps the key that it came with."""
_NO_VERSION = "default"
"""What the engine calls weights of which nobody said a version."""
_STORE_KEY = "quiesce/epoch"


class StampVersionOnSuccess(Remedy):
    """The scheduler takes the version of an update when the update succeeds, as the tokenizer does; not before."""

    name = "stamp-version-on-success"
    places: ClassVar[tuple[Place, ...]] = (
        Place(f"{WEIGHTS}.record_weight_version_after_update", "recording"),
        *(Place(path, "updating") for path in UPDATES),
    )
    repairs: ClassVar[Mapping[str, str]] = dict(
        zip(UPDATES, ("b67dc2a5cf31", "b059149de4f9", "a4090c8ac4ac", "95b259ffd946"), strict=True)
    )

    def __init__(self) -> None:
        super().__init__()
        self._stamp: Callable[[], object] | None = None
        self._inside = False

    def updating(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """Around each `update_weights_from_*`."""
        self._stamp, self._inside = None, self.on
        try:
            reply: Engine = original(manager, *args, **kwargs)
        finally:
            self._inside = False
        stamp = self._taken()
        if stamp is not None and reply.success:
            stamp()
        return reply

    def _taken(self) -> Callable[[], object] | None:
        """What the handler has left to be stamped."""
        stamp, self._stamp = self._stamp, None
        return stamp

    def recording(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """Around `record_weight_version_after_update`, which the engine calls before it knows how its flush ends."""
        if not self._inside:
            return original(manager, *args, **kwargs)
        self._stamp = lambda: original(manager, *args, **kwargs)
        return None


class EpochInStorageKey(Remedy):
    """A page is named in storage by its tokens and by the epoch of the weights that computed it.

    The epoch is added to a request's `extra_key`, with which SGLang namespaces its tree and its storage keys. It is the
    version that the update brought, where it brought one that this process has not had before; else a number of this
    process's own that nothing else has. So without versions nothing in a store is found again after a restart, or by
    another engine; with versions it is, by every engine that was given the same one.
    """

    name = "epoch-in-storage-key"
    places: ClassVar[tuple[Place, ...]] = (
        Place(f"{SCHEDULER}._add_request_to_queue", "queueing"),
        Place(f"{SCHEDULER}.flush_cache", "flushing"),
        *(Place(path, "updating") for path in UPDATES),
    )
    repairs: ClassVar[Mapping[str, str]] = {
        "sglang.srt.mem_cache.utils.get_storage_hash_str": "42258a76fef5",
        f"{SCHEDULER}._add_request_to_queue": "7c44d6152a95",
    }

    def __init__(self) -> None:
        super().__init__()
        self._had: set[str] = set()
        self._number = 0
        self.namespace = ""

    def bind(self, scheduler: Engine) -> None:
        """Raises AttributeError where requests have no such key, RuntimeError where the ranks cannot share a secret."""
        from sglang.srt.runtime_context import get_parallel, get_serving  # noqa: PLC0415 - imported only where an engine runs

        self._scheduler = scheduler
        parallel = get_parallel()
        self._process = _shared_secret(parallel.tp_size * parallel.pp_size)
        self.enter(str(get_serving().weight_version))

    def enter(self, version: str | None) -> None:
        """A new epoch begins: of weights with this version, or with none that can be relied on."""
        self._number += 1
        if version and version != _NO_VERSION and version not in self._had:
            self._had.add(version)
            text = f"version {version}"
        else:
            text = f"process {self._process} number {self._number}"
        self.namespace = "epoch=" + hashlib.sha256(text.encode()).hexdigest()[:32]

    def queueing(self, original: Call, scheduler: Engine, request: Engine, *args: object, **kwargs: object) -> object:
        """Around `_add_request_to_queue`: a request that owns no KV will be computed by the weights of now."""
        if self.on:
            self._name(request)
        return original(scheduler, request, *args, **kwargs)

    def flushing(self, original: Call, scheduler: Engine, *args: object, **kwargs: object) -> object:
        """Around `flush_cache`: then nothing of an older epoch is left that a waiting request has begun to read."""
        granted = original(scheduler, *args, **kwargs)
        if self.on and granted:
            self._name_waiting()
        return granted

    def updating(self, original: Call, manager: Engine, *args: object, **kwargs: object) -> object:
        """Around each `update_weights_from_*`: one that failed may have written weights too, of no version."""
        if not self.on:
            return original(manager, *args, **kwargs)
        request: Engine = args[0] if args else next(iter(kwargs.values()))
        flushed = False
        reply: Engine = None
        try:
            reply = original(manager, *args, **kwargs)
            flushed = bool(reply.success and request.flush_cache)
        finally:
            self.enter(request.weight_version if reply is not None and reply.success else None)
        if flushed:
            self._name_waiting()
        return reply

    def _name_waiting(self) -> None:
        for request in self._scheduler.waiting_queue:
            self._name(request)

    def _name(self, request: Engine) -> None:
        if request.kv.holds_kv:
            return
        base = getattr(request, _BASE, _UNSET)
        if base is _UNSET:
            base = request.extra_key
            setattr(request, _BASE, base)
        request.extra_key = f"{base}|{self.namespace}" if base else self.namespace


def _shared_secret(ranks: int) -> str:
    """A word that all ranks of this engine have and nobody else; from the store with which their world was formed."""
    own = secrets.token_hex(16)
    if ranks == 1:
        return own
    from torch.distributed import distributed_c10d as c10d  # noqa: PLC0415 - imported only where an engine runs

    store = c10d._get_default_store()  # noqa: SLF001 - the engine has no public name for it
    return str(store.compare_set(_STORE_KEY, "", own).decode())
