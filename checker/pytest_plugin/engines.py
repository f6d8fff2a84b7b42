"""The engine behind the fixture `quiesce_engine`: started, controlled, asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import Any

import requests

from engine_hooks.sglang.testbed import tinymodel
from engine_hooks.sglang.testbed.control import RankControl
from engine_hooks.sglang.testbed.server import Server, ServerOptions
from engine_hooks.sglang.testbed.warm import Warm

_REQUEST_SECONDS = 90.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Models:
    """Two models that differ in nothing but their weights."""

    old: Path
    new: Path

    @classmethod
    def make(cls, folder: Path) -> Models:
        """Write them below a folder."""
        return cls(*(tinymodel.make(folder / name, seed=seed) for seed, name in enumerate(("old", "new"), 1)))


@dataclass(frozen=True)
class EngineOptions:
    """Which engine to start."""

    loop: str = "normal"
    """`normal` or `overlap`."""
    storage: bool = False
    """Whether HiCache has a file storage."""
    remedies: str = ""
    """As QUIESCE_REMEDIES."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Arguments of the server beyond those of the testbed and of this class."""
    environment: Mapping[str, str] = field(default_factory=dict)
    model: Path | None = None
    """The model to serve; a tiny random one by default."""
    start_seconds: float = 480.0


@dataclass(frozen=True)
class Reply:
    """The answer to a control request."""

    success: bool
    message: str


class TestbedEngine:
    """A running engine: its transfers (`rank`), its control requests, and where its monitor reports (`status_dir`)."""

    __test__ = False

    def __init__(self, server: Server, status_dir: Path) -> None:
        """`server` is up."""
        self.server = server
        self.status_dir = status_dir

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.server.url

    @property
    def rank(self) -> RankControl:
        """The transfers of rank 0, by kind: `d2h`, `h2d`, `storage_query`, and so on."""
        return self.server.control.rank()

    def generate(self, input_ids: Sequence[int], tokens: int = 16) -> list[int]:
        """The greedy answer of exactly `tokens` tokens, when it is finished."""
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        answer = self._post("/generate", input_ids=list(input_ids), sampling_params=sampling)
        answer.raise_for_status()
        return [int(token) for token in answer.json()["output_ids"]]

    def pause(self, mode: str = "retract") -> None:
        """`retract`, `in_place` or `abort`."""
        self._post("/pause_generation", mode=mode).raise_for_status()

    def continue_(self) -> None:
        """Resume."""
        self._post("/continue_generation").raise_for_status()

    def flush(self, timeout: float = 0) -> Reply:
        """One `/flush_cache`; a refusal is an answer, not an error."""
        answer = self._post(f"/flush_cache?timeout={timeout}")
        return Reply(answer.ok, answer.text)

    def update_from_disk(self, model: Path, *, flush_cache: bool = True) -> Reply:
        """`/update_weights_from_disk`."""
        body = self._post("/update_weights_from_disk", model_path=str(model), flush_cache=flush_cache).json()
        return Reply(bool(body["success"]), str(body["message"]))

    def settle(self) -> None:
        """Until nothing is in flight and the engine has noticed, which a flush that succeeds shows."""
        self.rank.wait_idle()
        self.wait_until(lambda: self.flush().success, "a flush succeeds")

    def restore(self) -> None:
        """Nothing held, delayed, failed or in flight; nothing running, and not paused."""
        if self.server.alive:
            self.rank.restore()
            # Else the next test would hold what this one left.
            self.rank.wait_idle()
            self._post("/abort_request", rid="", abort_all=True)
            self.continue_()

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = _REQUEST_SECONDS) -> None:
        """Raises TimeoutError where `condition()` does not become true; the message says `what`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:g} s: {what}")
            time.sleep(_POLL_SECONDS)

    def _post(self, path: str, **body: Any) -> requests.Response:  # noqa: ANN401 - whatever the engine's API takes
        return requests.post(self.url + path, json=body, timeout=_REQUEST_SECONDS)


@contextmanager
def started(options: EngineOptions, model: Path, folder: Path, warm: Warm) -> Iterator[TestbedEngine]:
    """An engine with `options`, up inside the `with`, gone after it; `folder` is its own. Raises LaunchError.

    It reports below the folder of a watched session where there is one, so that a marked test sees it.
    """
    watched = environ.get("QUIESCE_STATUS_DIR")
    status = Path(watched) / folder.name if watched else folder / "status"
    arguments: dict[str, object] = {
        "disable_overlap_schedule": options.loop == "normal",
        "enable_metrics": True,
        # The default policy gives up on a held read after a second.
        "hicache_storage_prefetch_policy": "wait_complete",
    }
    server_options = ServerOptions(
        options.model or model,
        folder,
        storage=options.storage,
        arguments=arguments | dict(options.arguments),
        environment={
            "QUIESCE": "observe",
            "QUIESCE_REMEDIES": options.remedies,
            "QUIESCE_STATUS_DIR": str(status),
            **options.environment,
        },
        start_seconds=options.start_seconds,
        warm=warm,
    )
    with Server(server_options) as server:
        yield TestbedEngine(server, status)
