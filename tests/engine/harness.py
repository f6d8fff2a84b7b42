"""Drives one real engine under the testbed, as a trainer, its clients and a scraper of metrics would."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from engine_hooks.sglang.testbed import launch
from engine_hooks.sglang.testbed.tinymodel import VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_hooks.sglang.testbed.server import Server

WAIT_SECONDS = 90.0
"""How long a condition may take on a machine shared with others. Nothing is asserted about how long it does take."""
_POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(_POLL_SECONDS)


def prompt(length: int, seed: int = 7) -> list[int]:
    """`length` token ids in the vocabulary; different seeds share no prefix."""
    return [(seed * (i + 1) + 3 * seed) % 500 + 3 for i in range(length)]


PROMPT = prompt(600)
"""Long enough for HiCache to write through and for its storage to be asked (256 tokens)."""
ASKED_TOKENS = 16
REMEDY = "reap-while-paused"


@dataclass(frozen=True)
class Setup:
    """One engine: its loop, its storage, and the remedies that it runs with."""

    loop: str
    storage: str
    remedies: str = ""

    def __str__(self) -> str:
        return f"{self.loop}-{self.storage}-{'repaired' if self.remedies else 'bare'}"

    @property
    def arguments(self) -> dict[str, object]:
        return {
            "disable_overlap_schedule": self.loop == "normal",
            "enable_metrics": True,
            # The default policy gives up on a held read after a second.
            "hicache_storage_prefetch_policy": "wait_complete",
        }

    @property
    def environment(self) -> dict[str, str]:
        return {"QUIESCE": "observe", "QUIESCE_REMEDIES": self.remedies}


SETUPS = [
    Setup(loop, storage, r) for loop in ("normal", "overlap") for storage in ("none", "file") for r in ("", REMEDY)
]


def on(**wanted: str) -> pytest.MarkDecorator:
    """Run a test once on each engine whose setup has these values, e.g. `on(storage="file", remedies="")`."""
    chosen = [setup for setup in SETUPS if all(getattr(setup, name) == value for name, value in wanted.items())]
    return pytest.mark.parametrize("served", chosen, indirect=True, ids=str)


@dataclass(frozen=True)
class Models:
    """Two models that differ only in their weights."""

    old: Path
    new: Path


def modules(name: str, **variables: str) -> dict[str, str]:
    """The environment of an engine that loads the `sitecustomize` in this folder of ours, and what it reads."""
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    path = [str(Path(__file__).parent / name), *launch.standin_paths(), *inherited]
    return {"PYTHONPATH": os.pathsep.join(path), **variables}


def rewritten(old: str, new: str) -> dict[str, str]:
    """That of an engine whose source says `new` wherever it said the word `old`, as a later version might."""
    return modules("rewriting", QUIESCE_TEST_REWRITE=f"{old}={new}")


def renamed(old: str, new: str) -> dict[str, str]:
    """The same after the import, for an engine from the warm process: functions of classes, texts of modules."""
    return modules("renaming", QUIESCE_TEST_RENAME=f"{old}={new}")


def records_of(folder: Path) -> Path:
    """Where the flight records of the engine in this folder are."""
    return folder / "records"


class Metrics:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def get(self, name: str, **labels: str) -> float | None:
        """Sum over all series of `name` that carry `labels`; None where there is none."""
        values = [s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(values) if values else None

    def value(self, name: str, **labels: str) -> float:
        """Like `get`, where the series must be there."""
        value = self.get(name, **labels)
        assert value is not None, f"no series {name} {labels}"
        return value

    @property
    def stuck(self) -> bool:
        """Whether the monitor says that the flush which is wanted cannot succeed."""
        return self.value("quiesce_stuck", property="paused-flush-succeeds") == 1

    def by(self, name: str, label: str) -> dict[str, float]:
        """Label value to the sum over all series of `name` with it."""
        values = {s.labels[label] for s in self._samples if s.name == name and label in s.labels}
        return {value: self.value(name, **{label: value}) for value in sorted(values)}

    def violations_since(self, before: Metrics) -> dict[str, float]:
        """Property to how often it was violated after `before` was scraped; those that were not are left out."""
        return {p: count - before.violations[p] for p, count in self.violations.items() if count > before.violations[p]}

    @property
    def violations(self) -> dict[str, float]:
        """Property to how often it was violated since the engine started."""
        return self.by("quiesce_violations_total", "property")


@dataclass(frozen=True)
class Reply:
    """The answer to a control request."""

    success: bool
    message: str


@dataclass(frozen=True)
class Finding:
    """One line that the monitor logged."""

    pass_number: int
    loop: str
    text: str


@dataclass(frozen=True)
class Scores:
    """For each token of an answer the logits that it was chosen by: of the whole vocabulary, less their log-sum."""

    by_token: tuple[tuple[float, ...], ...]

    @staticmethod
    def of(meta: Mapping[str, Any]) -> Scores:
        """From what an engine says of an answer that was asked with `ASKING_SCORES`."""
        rows = [sorted((token, score) for score, token, _ in row) for row in meta["output_top_logprobs"]]
        assert all(len(row) == VOCABULARY for row in rows)
        return Scores(tuple(tuple(score for _, score in row) for row in rows))

    def apart(self, other: Scores) -> float:
        """The largest difference (nats) of the first token's logits: later ones follow other tokens."""
        return max(abs(a - b) for a, b in zip(self.by_token[0], other.by_token[0], strict=True))

    def equals(self, other: Scores) -> bool:
        """Whether all are the same but for the order in which floats are added."""
        rows = zip(self.by_token, other.by_token, strict=True)
        return all(abs(a - b) < SAME_SCORE for row in rows for a, b in zip(*row, strict=True))


ASKING_SCORES: dict[str, object] = {"return_logprob": True, "top_logprobs_num": VOCABULARY}
SAME_SCORE = 1e-3


@dataclass(frozen=True)
class Fresh:
    """What an engine answers to PROMPT that has never seen other weights than the new ones."""

    answer: list[int]
    scores: Scores


@dataclass
class Stream:
    """One streaming request, read by a thread of its own."""

    tokens: int
    output_ids: list[int] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    thread: threading.Thread | None = None

    def read(self, url: str, body: Mapping[str, object]) -> None:
        try:
            with requests.post(url, json=body, stream=True, timeout=600) as response:
                for line in response.iter_lines():
                    self._take(line.decode())
        except requests.RequestException as error:
            self.error = str(error)

    def _take(self, line: str) -> None:
        if not line.startswith("data: {"):
            return
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            self.error = str(event["error"])
            return
        self.output_ids = event["output_ids"]
        self.meta = event["meta_info"]

    def wait_tokens(self, count: int) -> None:
        """Until the client has seen `count` tokens."""
        wait_until(lambda: self.error or len(self.output_ids) >= count, f"{count} tokens")
        assert not self.error

    def result(self, seconds: float = WAIT_SECONDS) -> list[int]:
        """All output ids; the request must have finished by its length."""
        assert self.thread is not None
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"unfinished after {seconds:g} s with {len(self.output_ids)} tokens"
        assert not self.error
        assert self.meta["finish_reason"]["type"] == "length"
        assert len(self.output_ids) == self.tokens
        return self.output_ids

    @property
    def running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Engine:
    """The engine of `server`, serving `model` at first."""

    def __init__(self, server: Server, model: Path) -> None:
        self.server = server
        self.records = records_of(server.options.folder)
        self.rank = server.control.rank()
        self._first_model = self._model = model
        self._streams: list[Stream] = []

    def generate(self, input_ids: list[int], tokens: int, **asking: object) -> Stream:
        """Start a greedy request for exactly `tokens` tokens; the returned stream fills as they come."""
        stream = Stream(tokens)
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": input_ids, "sampling_params": sampling, "stream": True, **asking}
        target = self.server.url + "/generate"
        stream.thread = threading.Thread(target=stream.read, args=(target, body), daemon=True)
        stream.thread.start()
        self._streams.append(stream)
        return stream

    def ask(self, input_ids: list[int], tokens: int = 16, **asking: object) -> Stream:
        """A request, finished."""
        stream = self.generate(input_ids, tokens, **asking)
        stream.result()
        return stream

    def pause(self, mode: str = "retract") -> None:
        """Has no acknowledgement from the scheduler, but comes before every later control request."""
        self._post("/pause_generation", mode=mode).raise_for_status()

    def continue_(self) -> None:
        self._post("/continue_generation").raise_for_status()

    def update_from_disk(self, model: Path, *, flush_cache: bool = True) -> Reply:
        body = self._post("/update_weights_from_disk", model_path=str(model), flush_cache=flush_cache).json()
        # The weights are loaded before the flush is tried, so a refused flush leaves the new ones.
        self._model = model
        return Reply(body["success"], body["message"])

    def flush(self, timeout: float = 0) -> Reply:
        response = self._post(f"/flush_cache?timeout={timeout}")
        return Reply(response.ok, response.text)

    def clear_storage(self) -> None:
        self._post("/hicache/storage-backend/clear").raise_for_status()

    def metrics(self) -> Metrics:
        response = requests.get(self.server.url + "/metrics", timeout=WAIT_SECONDS)
        response.raise_for_status()
        return Metrics(response.text)

    def log(self) -> str:
        return self.server.log()

    def findings(self, prop: str) -> list[Finding]:
        """What the monitor has logged of violations of a property, since the engine started."""
        pattern = rf"quiesce: {prop} does not hold on .*, pass (\d+) of loop (\S+?)[,:] (.*)"
        return [Finding(int(found[1]), found[2], found[3]) for found in re.finditer(pattern, self.log())]

    def wait_metric(self, expected: float, name: str, **labels: str) -> None:
        """Until a series has a value; a gauge may be up to a second late."""
        wait_until(lambda: self.metrics().get(name, **labels) == expected, f"{name} {labels} == {expected:g}")

    def wait_passes(self, count: int, prop: str = "paused-flush-succeeds") -> None:
        """Until the monitor has checked `count` more passes of the loop. Needs the hook."""
        first = self._passes(prop)
        wait_until(lambda: self._passes(prop) >= first + count, f"{count} passes checked for {prop}")

    def _passes(self, prop: str) -> float:
        return self.metrics().value("quiesce_checks_total", property=prop)

    def flush_until_done(self) -> int:
        """What a correct trainer does: flush again until it succeeds. Returns the number of refusals."""
        refusals = 0

        def flushed() -> bool:
            nonlocal refusals
            done = self.flush().success
            refusals += not done
            return done

        wait_until(flushed, "a flush succeeds")
        return refusals

    def settle(self) -> None:
        """Until nothing is in flight and the engine has noticed: shown by a flush that succeeds."""
        self.rank.wait_idle()
        self.flush_until_done()

    def reset(self) -> None:
        """Everything as after the start, whatever a test left behind; violations stay counted."""
        self.rank.restore()
        self._post("/abort_request", rid="", abort_all=True)
        self.continue_()
        wait_until(lambda: not any(stream.running for stream in self._streams), "all requests have ended")
        self._streams.clear()
        if self.server.options.storage:
            self.rank.wait_idle()
            self.clear_storage()
        self.settle()
        if self._model != self._first_model:
            wait_until(lambda: self.update_from_disk(self._first_model).success, "the first weights are back")

    def _post(self, path: str, **body: object) -> requests.Response:
        return requests.post(self.server.url + path, json=body, timeout=WAIT_SECONDS)


class Spoilable(Engine):
    """One that was started with `modules("defects", QUIESCE_TEST_DEFECTS=folder)`, and what switches its defects on."""

    def __init__(self, server: Server, model: Path, folder: Path) -> None:
        super().__init__(server, model)
        self.defects = folder

    def spoil(self, *defects: str) -> None:
        """These from now on, and no others."""
        new = self.defects / "new"
        new.write_text(" ".join(defects))
        new.replace(self.defects / "defects")
