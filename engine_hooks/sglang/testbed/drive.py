"""Drives one engine through a schedule, step by step, and says where it departs from it.

Each method is one move: of the client, of the trainer, of the event loop, or of a device or storage. A schedule is a
sequence of calls. While the loop is held, the scheduler handles what the client and the trainer send and does nothing
else, and a transfer lands only when it is told to; so what the engine does follows from the calls alone.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import requests

from engine_hooks.sglang.testbed.control import Kind, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from engine_hooks.sglang.testbed.server import Server

HELD = (Kind.D2H, Kind.STORAGE_QUERY, Kind.STORAGE_READ, Kind.STORAGE_WRITE, Kind.PD_SEND, Kind.GRAMMAR)
"""What lands only when it is told to. A load to the device is not held: the forward that needs it would wait for it in
the scheduler's thread, and hold the pass."""
WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.01
_SETTLE_SECONDS = 0.05
_PARK_SECONDS = 0.5
_ARRIVE_SECONDS = 30.0
"""The first call of a storage waits until the engine has compiled its hash."""
OLD_VERSION, NEW_VERSION = "old", "new"
"""Weight versions as the trainer calls them."""


class DepartedError(AssertionError):
    """The engine did something else than the schedule says. The text tells what was expected, and what it did."""


@dataclass
class Answer:
    """One streaming request: what its client has seen so far."""

    prompt: list[int]
    tokens: int
    rid: str
    passes: int
    """How many passes had been stepped when it was sent."""
    output_ids: list[int] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    done: threading.Event = field(default_factory=threading.Event)

    def begin(self, url: str, body: Mapping[str, object]) -> None:
        """Send it, in a thread that reads what comes."""
        threading.Thread(target=self.read, args=(url, body), daemon=True).start()

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

    def wait(self) -> Self:
        """Until it has ended. Raises DepartedError."""
        if not self.done.wait(WAIT_SECONDS):
            raise DepartedError(
                f"request {self.rid} has no end after {WAIT_SECONDS:g} s: {len(self.output_ids)} tokens"
            )
        return self

    def _take(self, line: str) -> None:
        if line.startswith("data: {"):
            event = json.loads(line.removeprefix("data: "))
            self.error = str(event.get("error", ""))
            self.output_ids = event.get("output_ids", self.output_ids)
            self.meta = event.get("meta_info", self.meta)


def token_ids(count: int) -> list[int]:
    """The first ids of a prompt in the tiny model's vocabulary."""
    return [(7 * (i + 1) + 21) % 500 + 3 for i in range(count)]


@dataclass(frozen=True)
class Update:
    """A weight update as it was answered."""

    success: bool
    message: str
    began: float
    """When it was sent (s since the epoch)."""
    passes: int
    """How many passes had been stepped by then."""


class Drive:
    """The moves.

    Args:
        server: an engine of one rank or one pipeline, just started. The first stage of a pipeline is stepped; the
            others wait for what it hands them in each step.
        new_model: folder of a model that differs from the served one in nothing but its weights.
    """

    def __init__(self, server: Server, new_model: Path) -> None:
        self.server = server
        self.old_model, self.new_model = server.options.model, new_model
        self.rank = server.control.rank()
        self._ranks = [self.rank, *(server.control.rank(pp=stage) for stage in range(1, server.options.ranks))]
        self.answers: list[Answer] = []
        self.seen: list[str] = []
        """What the engine answered, in order, for people."""
        self._serves = self.old_model
        self._sent = self._stepped = 0
        self.last_update: Update | None = None

    # ---- the event loop

    def hold(self) -> None:
        """Hold the event loop before its next pass, and every transfer."""
        for kind in HELD:
            self._switch(kind).hold()
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
        self._stepped += count
        self.rank.passes.step(count)
        self._until(lambda: self.rank.passes.done >= target, "the pass ends")

    def let_go(self) -> None:
        """Nothing is held from now on: the loop goes round, and all that is in flight lands."""
        self._restore()
        self._wait_idle()

    def wait_passes(self, count: int) -> None:
        """Until the loop, let go, has made `count` more passes."""
        target = self.rank.passes.done + count
        self._until(lambda: self.rank.passes.done >= target, f"{count} passes")

    # ---- devices and storage

    def land(self, kind: str) -> None:
        """What is in flight of this kind of transfer is done; what is submitted later is held."""
        switch = self._switch(Kind(kind))
        switch.step(switch.in_flight)
        self._until(lambda: switch.in_flight == 0, f"{switch} lands")

    def expect_in_flight(self, *kinds: str) -> None:
        """Of the kinds of transfer that are held, exactly these are in flight."""
        for kind in HELD:
            switch = self._switch(kind)
            if kind in kinds:
                # The storage is called by threads of the engine, which need their time.
                self._arrive(switch)
            elif switch.in_flight:
                raise DepartedError(f"no {kind} was to be in flight, and {switch.in_flight} is")

    def _arrive(self, switch: Switch) -> None:
        try:
            switch.wait_in_flight(seconds=_ARRIVE_SECONDS)
        except TimeoutError as error:
            raise DepartedError(f"a transfer was to be in flight, and none is: {switch}") from error

    def _switch(self, kind: Kind) -> Switch:
        """The switch of what this engine waits for."""
        return self.rank.switches[kind]

    def land_all(self) -> None:
        """What is in flight of every kind of transfer is done."""
        for kind in HELD:
            self.land(kind)

    # ---- clients

    def request(self, prompt: int, tokens: int, *, grammar: bool = False) -> Answer:
        """A greedy request of `prompt` tokens for `tokens` more; all have the same first token ids.

        `grammar`: it has one of its own, to be compiled. The scheduler has handled it when this returns.
        """
        target = self.rank.requests.done + 1
        answer = self.send(token_ids(prompt), tokens, grammar=grammar)
        self._until(
            lambda: self.rank.requests.done >= target or answer.done.is_set(), "the request reaches the scheduler"
        )
        if self.rank.requests.done < target:
            raise DepartedError(f"the request never reached the scheduler: {answer.meta} {answer.error}")
        return answer

    def late_request(self, prompt: int, tokens: int, *, grammar: bool = False) -> Answer:
        """A request that has passed the tokenizer, and stays on its way to the scheduler."""
        self.rank.requests.hold()
        target = self.rank.requests.submitted + 1
        answer = self.send(token_ids(prompt), tokens, grammar=grammar)
        self._until(lambda: self.rank.requests.submitted >= target, "the request leaves the tokenizer")
        return answer

    def late_arrives(self) -> None:
        """The first request that is still on its way reaches the scheduler."""
        target = self.rank.requests.done + 1
        self.rank.requests.step()
        self._until(lambda: self.rank.requests.done >= target, "the late request reaches the scheduler")
        if not self.rank.requests.in_flight:
            self.rank.requests.release()

    def park(self, prompt: int, tokens: int, *, grammar: bool = False) -> Answer:
        """A request that the paused tokenizer keeps: the scheduler does not get it."""
        came = self.rank.requests.submitted
        answer = self.send(token_ids(prompt), tokens, grammar=grammar)
        time.sleep(_PARK_SECONDS)
        if self.rank.requests.submitted > came:
            raise DepartedError("the request was to wait at the tokenizer, and reached the scheduler")
        return answer

    def abort(self) -> None:
        """`abort_request` of the last request."""
        self._post("/abort_request", rid=self.answers[-1].rid).raise_for_status()

    def send(self, ids: list[int], tokens: int, *, grammar: bool = False) -> Answer:
        """A greedy request for `tokens` tokens after these; the answer fills as they come."""
        self._sent += 1
        answer = Answer(ids, tokens, f"driven-{self._sent}", self._stepped)
        sampling: dict[str, object] = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        if grammar:
            sampling["regex"] = answer.rid  # one that is in no cache; the tiny model's backend does not read it
        self._generate(answer, {"input_ids": ids, "sampling_params": sampling, "stream": True, "rid": answer.rid})
        self.answers.append(answer)
        return answer

    def _generate(self, answer: Answer, body: dict[str, object]) -> None:
        answer.begin(self.server.url + "/generate", body)

    # ---- the trainer

    def pause(self, mode: str) -> None:
        """`pause_generation`. The scheduler has handled it when this returns; mode abort is answered only later."""
        target = self.rank.messages.done + 1
        arguments = ("/pause_generation", {"mode": mode})
        threading.Thread(target=self._send, args=arguments, daemon=True).start()
        self._until(lambda: self.rank.messages.done >= target, "the scheduler handles the pause")

    def continue_(self) -> None:
        """`continue_generation`. The scheduler has handled it when this returns."""
        target = self.rank.messages.done + 1
        self._send("/continue_generation", {})
        self._until(lambda: self.rank.messages.done >= target, "the scheduler handles the message")

    def flush(self, *, granted: bool | None = None, timeout: float = 0) -> bool:
        """`flush_cache`: one immediate attempt, or one that waits `timeout` s. `granted`: what is expected."""
        response = self._post(f"/flush_cache?timeout={timeout:g}")
        call = f"flush_cache(timeout={timeout:g})" if timeout else "flush_cache"
        # The granted answer goes on about what may be seen in a log.
        return self._answered(call, response.ok, " ".join(response.text.split()).split(". ")[0], granted)

    def update(self, *, success: bool | None = None, flush_cache: bool = True) -> bool:
        """`update_weights_from_disk` to the new model. `success`: what is expected, if anything is."""
        return self.load(self.new_model, NEW_VERSION, success=success, flush_cache=flush_cache)

    def load(self, model: Path, version: str, *, success: bool | None = None, flush_cache: bool = True) -> bool:
        """`update_weights_from_disk` to any model."""
        self._serves = model
        began = time.time()
        body = {"model_path": str(model), "flush_cache": flush_cache, "weight_version": version}
        answer = self._post("/update_weights_from_disk", **body).json()
        self.last_update = Update(answer["success"], answer["message"], began, self._stepped)
        return self._answered("update_weights_from_disk", answer["success"], answer["message"], success)

    def clear_storage(self) -> None:
        """`clear_hicache_storage`."""
        self._post("/hicache/storage-backend/clear").raise_for_status()

    def weight_version(self) -> str:
        """What the tokenizer says is served."""
        return str(requests.get(self.server.url + "/model_info", timeout=WAIT_SECONDS).json()["weight_version"])

    # ---- from one schedule to the next

    def reset(self) -> None:
        """Everything as after the start: nothing held or in flight, the first weights, no KV in any tier."""
        self.end_all()
        if self._serves != self.old_model:
            self.load(self.old_model, OLD_VERSION, success=True)
        self.seen.clear()
        self.last_update = None

    def end_all(self) -> None:
        """Abort what runs, resume, and empty every tier; the weights stay."""
        self._restore()
        self._post("/abort_request", rid="", abort_all=True)
        self._send("/continue_generation", {})
        self._until(lambda: all(answer.done.is_set() for answer in self.answers), "all requests have ended")
        self.answers.clear()
        if self.server.options.storage:
            self._wait_idle()
            self.clear_storage()
        self._wait_idle()
        self._until(lambda: self._post("/flush_cache?timeout=0").ok, "a flush succeeds")

    def _restore(self) -> None:
        for rank in self._ranks:
            rank.restore()

    def _wait_idle(self) -> None:
        for rank in self._ranks:
            rank.wait_idle(WAIT_SECONDS)

    # ---- how a move is made

    def _post(self, path: str, **body: object) -> requests.Response:
        return self._post_to(self.server.url, path, **body)

    def _post_to(self, url: str, path: str, **body: object) -> requests.Response:
        try:
            return requests.post(url + path, json=body, timeout=WAIT_SECONDS)
        except requests.RequestException as error:
            raise DepartedError(f"{path.strip('/')} got no answer: {error}") from error

    def _send(self, path: str, body: Mapping[str, object]) -> None:
        """What has no answer to look at; who waits for its effect notices where there is none."""
        with contextlib.suppress(DepartedError):
            self._post(path, **body)

    def _answered(self, call: str, got: bool, text: str, expected: bool | None) -> bool:  # noqa: FBT001 - what was answered
        said = f"{call}: {'success' if got else 'refused'}: {' '.join(text.split())}"
        self.seen.append(said)
        if expected is not None and got is not expected:
            raise DepartedError(
                f"{call} was to be {'granted' if expected else 'refused'}, and the engine answered {said}"
            )
        return got

    def _until(self, condition: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.server.alive:
                raise DepartedError(f"the engine ended before {what}")
            if time.monotonic() > deadline:
                raise DepartedError(f"not within {seconds:g} s: {what}")
            time.sleep(_POLL_SECONDS)
