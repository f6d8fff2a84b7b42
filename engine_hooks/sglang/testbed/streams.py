"""Streams and events for the CPU device.

PyTorch's CPU streams do nothing, and its CPU events are always complete. Here compute stays synchronous (an operation
runs where it is issued), and a stream can become a *lane*: a queue with a worker thread, on which operations run later
and in order, as copies do on an accelerator's copy stream. An event recorded on a lane completes when the lane reaches
it; an event recorded on a synchronous stream is complete at once.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Event:
    """Complete until it is first recorded, like an accelerator's event. Accepts and ignores a device's arguments."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        self._reached = threading.Event()
        self._reached.set()
        self._seconds = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Complete when `stream` (the current one by default) has run all that is on it now."""
        # A new flag for each record: whoever waits, waits for the record that it saw.
        self._reached = reached = threading.Event()

        def finish() -> None:
            self._seconds = time.perf_counter()
            reached.set()

        (stream or current_stream()).enqueue(finish)

    def query(self) -> bool:
        """Whether the last record has been reached."""
        return self._reached.is_set()

    def synchronize(self) -> None:
        """Block until the last record has been reached."""
        self._reached.wait()

    def wait(self, stream: Stream | None = None) -> None:
        """Make `stream` (the current one by default) wait for the last record."""
        (stream or current_stream()).wait_event(self)

    def waiter(self) -> Callable[[], object]:
        """What blocks until the record that is the last one now has been reached."""
        return self._reached.wait

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to `end`."""
        return 1000.0 * (end._seconds - self._seconds)


class Stream:
    """Runs operations where they are issued or, once it is a lane, later and in order."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        self._work: queue.SimpleQueue[Callable[[], object]] | None = None

    def make_lane(self, name: str) -> None:
        """Give this stream a worker thread of its own, called `lane-<name>`."""
        self._work = queue.SimpleQueue()
        threading.Thread(target=_run_lane, args=(self._work,), name=f"lane-{name}", daemon=True).start()

    def enqueue(self, operation: Callable[[], object]) -> None:
        """Run `operation` now, or after all that is on the lane."""
        if self._work is None:
            operation()
        else:
            self._work.put(operation)

    def record_event(self, event: Event | None = None) -> Event:
        """An event that completes when this stream has run all that is on it now."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Run nothing more before `event` completes."""
        self.enqueue(event.waiter())

    def wait_stream(self, stream: Stream) -> None:
        """Run nothing more before `stream` has run all that is on it now."""
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        """Block until this stream has run all that is on it now."""
        self.record_event().synchronize()


def _run_lane(work: queue.SimpleQueue[Callable[[], object]]) -> None:
    # The pools may be inference tensors, which can be written to only in this mode.
    with torch.inference_mode():
        while True:
            operation = work.get()
            try:
                operation()
            except BaseException:  # noqa: BLE001 - a fault of the device takes its process down, whatever it is
                traceback.print_exc()
                os._exit(1)


class _Current(threading.local):
    """The calling thread's current stream."""

    def __init__(self) -> None:
        self.stream = _DEFAULT


_DEFAULT = Stream()
_CURRENT = _Current()


def current_stream(_device: object = None) -> Stream:
    """The calling thread's current stream."""
    return _CURRENT.stream


class StreamContext:
    """Makes `stream` the calling thread's current one inside a `with`; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream
        self._outer: list[Stream] = []

    def __enter__(self) -> None:
        self._outer.append(_CURRENT.stream)
        if self._stream is not None:
            _CURRENT.stream = self._stream

    def __exit__(self, *_exc_info: object) -> None:
        _CURRENT.stream = self._outer.pop()


def install() -> None:
    """Make these the streams and events of the CPU device, which SGLang looks up on each use."""
    cpu: Any = torch.cpu
    cpu.Event = Event
    cpu.Stream = Stream
    cpu.StreamContext = cpu.stream = StreamContext
    cpu.current_stream = current_stream
    # Prefill workers name the event of CUDA, whatever the device.
    torch.cuda.Event = Event
    # A CUDA build of PyTorch names CUDA when asked for no device in particular. There is no such device here.
    device_module = torch.get_device_module
    torch.get_device_module = lambda device="cpu": device_module(device)
