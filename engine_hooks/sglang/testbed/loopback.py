"""Mooncake's transfer engine, for a prefill and a decode worker on one machine.

A session names a process, and a write goes straight into that process's memory, as RDMA would. The caller needs ptrace
rights over its peer: the same user is enough where ptrace is unrestricted, and root always is.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

_FAILED = -1


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class LoopbackTransferEngine:
    """Takes the place of SGLang's `MooncakeTransferEngine`, with its methods."""

    def __init__(self, hostname: str, gpu_id: int | None = None, ib_device: str | None = None) -> None:  # noqa: ARG002 - the engine's signature
        self.session_id = f"{hostname}:{os.getpid()}"
        self._libc = ctypes.CDLL(None, use_errno=True)

    def register(self, ptr: int, length: int) -> None:
        """Memory needs no registration here, nor in the next three."""

    def deregister(self, ptr: int) -> None:
        """See `register`."""

    def batch_register(self, ptrs: Sequence[int], lengths: Sequence[int]) -> int:  # noqa: ARG002 - the engine's signature
        """See `register`."""
        return 0

    def batch_deregister(self, ptrs: Sequence[int]) -> int:  # noqa: ARG002 - the engine's signature
        """See `register`."""
        return 0

    def transfer_sync(self, session_id: str, buffer: int, peer_buffer_address: int, length: int) -> int:
        """Write `length` bytes into the peer of a session; 0, or -1 where that failed."""
        return self.batch_transfer_sync(session_id, [buffer], [peer_buffer_address], [length])

    def batch_transfer_sync(
        self, session_id: str, buffers: Sequence[int], peer_buffer_addresses: Sequence[int], lengths: Sequence[int]
    ) -> int:
        """Several writes; it stops at the first that failed."""
        pid = int(session_id.rsplit(":", 1)[1])
        writes = zip(buffers, peer_buffer_addresses, lengths, strict=True)
        return 0 if all(self._write(pid, int(b), int(p), int(n)) for b, p, n in writes) else _FAILED

    def send_probe(self, peer_session_id: str) -> int:
        """0 where the peer lives, else -1."""
        pid = int(peer_session_id.rsplit(":", 1)[1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return _FAILED
        return 0

    def get_session_id(self) -> str:
        """The session that a peer writes to."""
        return self.session_id

    def get_engine(self) -> Self:
        """There is nothing below it."""
        return self

    def get_ib_device(self) -> None:
        """There is none."""

    def _write(self, pid: int, source: int, target: int, length: int) -> bool:
        local, remote = _IoVec(source, length), _IoVec(target, length)
        written = self._libc.process_vm_writev(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        return bool(written == length)
