"""A small tensor on its way from the device: read when it has arrived, without waiting for it."""

from __future__ import annotations

from typing import Any, Protocol

import torch

# Torch's.
Tensor = Any


class Readback(Protocol):
    """Numbers that arrive."""

    def ready(self) -> bool:
        """Whether they have."""

    def values(self) -> list[Any]:
        """The numbers, as nested lists; waits where they have not arrived."""


class Arrived:
    """What is in the memory of the CPU already. The tensor must be nobody else's."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def ready(self) -> bool:
        """Always."""
        return True

    def values(self) -> list[Any]:
        """The numbers."""
        return list(self._tensor.tolist())


class Copying:
    """A copy to pinned memory on the current stream, with an event behind it."""

    def __init__(self, tensor: Tensor) -> None:
        self._source = tensor  # not to be reused before it is read
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        self._event = torch.get_device_module(tensor.device).Event()
        self._event.record()

    def ready(self) -> bool:
        """Whether the event has completed; does not wait."""
        return bool(self._event.query())

    def values(self) -> list[Any]:
        """The numbers; waits for the event. Not for the scheduler's thread before `ready`."""
        self._event.synchronize()
        return list(self._host.tolist())


def read_back(tensor: Tensor) -> Readback:
    """Have a tensor, which nobody changes any more, read."""
    return Arrived(tensor) if tensor.device.type == "cpu" else Copying(tensor)
