"""Drives one engine through a schedule, step by step, and says where it departs from it.

Each method is one move: of the client, of the trainer, of the event loop, or of a device or storage. A schedule is a
sequence of calls. While the loop is held, the scheduler handles what the client and the trainer send and does nothing
else, and a transfer lands only when it is told to; so what the engine does follows from the calls alone.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests

from engine_hooks.sglang.testbed.control import Kind, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from engine_hooks.sglang.testbed.server import Server

HELD = (Kind.D2H, Kind.STORAGE_QUERY, Kind.STORAGE_READ, Kind.STORAGE_WRITE)
"""What lands only when it is told to. A load to the device is not held: the forward that needs it would wait for it in
the scheduler's thread, and hold the pass."""
WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.01
_SETTLE_SECONDS = 0.05
_PAGE_TOKENS = 16


class DepartedError(AssertionError):
    """The engine did something else than the schedule says. The text tells what was expected, and what it did."""


@dataclass
class Answer:
    """One streaming request: what its client has seen so far."""

    prompt: list[int]
    tokens: int
    rid: str
    output_ids: list[int] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def read(self, url: str, body: Mapping[str, object]) -> None:
        """Until the engine ends it."""
        try:
            with requests.post(url, json=body, stream=True, timeout=600) as response:
                for line in response.iter_lines():
                    self._take(line.decode())
        except requests.RequestException as error:
            self.error = str(error)
        finally:
            self.done.set()

    def _take(self, line: str) -> None:
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            self.error = str(event.get("error", ""))
            self.output_ids = event.get("output_ids", self.output_ids)
            self.meta = event.get("meta_info", self.meta)


class Drive:
    """The moves.

    Args:
        server: an engine of one rank, just started.
        new_model: folder of a model that differs from the served one in nothing but its weights.
    """

    def __init__(self, server: Server, new_model: Path) -> None:
        self.server = server
        self.rank = server.control.rank()
        self.answers: list[Answer] = []
        self.seen: list[str] = []
        """What the engine answered, in order, for people."""
        self._new_model = new_model

    # ---- the event loop

    def hold(self) -> None:
        """Hold the event loop before its next pass, and every transfer."""
        for kind in HELD:
            self.rank.switches[kind].hold()
        passes = self.rank.passes
        passes.hold()
        started = -1
        # A pass that the scheduler had begun to let through may still start.
        while started != passes.started or passes.submitted == passes.started:
            started = passes.started
            time.sleep(_SETTLE_SECONDS)

    def run_pass(self, count: int = 1) -> None:
        """`count` passes of the loop; then it is held again."""
        target = self.rank.passes.done + count
        self.rank.passes.step(count)
        self._until(lambda: self.rank.passes.done >= target, "the pass ends")

    def let_go(self) -> None:
        """Nothing is held from now on: the loop goes round, and all that is in flight lands."""
        self.rank.restore()
        self.rank.wait_idle(WAIT_SECONDS)

    def wait_passes(self, count: int) -> None:
        """Until the loop, let go, has made `count` more passes."""
        target = self.rank.passes.done + count
        self._until(lambda: self.rank.passes.done >= target, f"{count} passes")

    # ---- devices and storage

    def land(self, kind: str) -> None:
        """What is in flight of this kind of transfer is done; what is submitted later is held."""
        switch = self.rank.switches[Kind(kind)]
        switch.step(switch.in_flight)
        self._until(lambda: switch.in_flight == 0, f"{switch} lands")

    def expect_in_flight(self, *kinds: str) -> None:
        """Of the kinds of transfer that are held, exactly these are in flight."""
        for kind in HELD:
            switch = self.rank.switches[kind]
            if kind in kinds:
                # The storage is called by threads of the engine, which need their time.
                self._arrive(switch)
            elif switch.in_flight:
                raise DepartedError(f"no {kind} was to be in flight, and {switch.in_flight} is")

    def _arrive(self, switch: Switch) -> None:
        try:
            switch.wait_in_flight(seconds=10)
        except TimeoutError as error:
            raise DepartedError(f"a transfer was to be in flight, and none is: {switch}") from error

    # ---- clients

    def request(self, prompt: int, tokens: int, *, arrives: bool = True) -> Answer:
        """A greedy request; all have the same first token ids.

        Args:
            prompt: its length in tokens.
            tokens: how many it generates.
            arrives: whether the scheduler gets it now; otherwise it stays in the tokenizer, which is paused.
        """
        ids = [(7 * (i + 1) + 21) % 500 + 3 for i in range(prompt)]
        answer = Answer(ids, tokens, f"driven-{len(self.answers)}")
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": ids, "sampling_params": sampling, "stream": True, "rid": answer.rid}
        target = self.rank.requests.done + 1
        arguments = (self.server.url + "/generate", body)
        threading.Thread(target=answer.read, args=arguments, daemon=True).start()
        if arrives:
            self._until(lambda: self.rank.requests.done >= target, "the request reaches the scheduler")
        self.answers.append(answer)
        return answer

    # ---- the trainer

    def pause(self, mode: str) -> None:
        """`pause_generation`. The scheduler has handled it when this returns."""
        self._handled(lambda: self._post("/pause_generation", mode=mode))

    def continue_(self) -> None:
        """`continue_generation`. The scheduler has handled it when this returns."""
        self._handled(lambda: self._post("/continue_generation"))

    def flush(self, *, granted: bool | None = None) -> bool:
        """`flush_cache`, one immediate attempt. `granted`: what is expected, if anything is."""
        response = self._post("/flush_cache?timeout=0")
        return self._answered("flush_cache", response.ok, response.text, granted)

    def update(self, *, success: bool | None = None, flush_cache: bool = True) -> bool:
        """`update_weights_from_disk`. `success`: what is expected, if anything is."""
        body = {"model_path": str(self._new_model), "flush_cache": flush_cache}
        answer = self._post("/update_weights_from_disk", **body).json()
        return self._answered("update_weights_from_disk", answer["success"], answer["message"], success)

    # ---- what is claimed, and seen or not

    def flush_stays_refused(self, attempts: int = 20, passes: int = 50) -> None:
        """Let go of everything, and ask for a flush `attempts` times, `passes` passes apart: none is granted."""
        self.let_go()
        for attempt in range(attempts):
            self.wait_passes(passes)
            if self.flush():
                raise DepartedError(f"flush {attempt + 1} of {attempts} after everything had landed was granted")
        self.seen[-attempts:] = [
            f"everything had landed, and {attempts} flushes over {attempts * passes} paused passes: all refused"
        ]

    # ---- how a move is made

    def _post(self, path: str, **body: object) -> requests.Response:
        return requests.post(self.server.url + path, json=body, timeout=WAIT_SECONDS)

    def _handled(self, send: Callable[[], requests.Response]) -> None:
        """Send what the scheduler does not answer, and wait until it has handled it."""
        target = self.rank.messages.done + 1
        send().raise_for_status()
        self._until(lambda: self.rank.messages.done >= target, "the scheduler handles the message")

    def _answered(self, call: str, got: bool, text: str, expected: bool | None) -> bool:  # noqa: FBT001 - what was answered
        said = f"{call}: {'success' if got else 'refused'}: {' '.join(text.split())}"
        self.seen.append(said)
        if expected is not None and got is not expected:
            raise DepartedError(
                f"{call} was to be {'granted' if expected else 'refused'}, and the engine answered {said}"
            )
        return got

    def _until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if not self.server.alive:
                raise DepartedError(f"the engine ended before {what}")
            if time.monotonic() > deadline:
                raise DepartedError(f"not within {WAIT_SECONDS:g} s: {what}")
            time.sleep(_POLL_SECONDS)
