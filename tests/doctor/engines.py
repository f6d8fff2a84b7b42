"""Real servers on the loopback that answer as an engine would, or as none should.

What an engine exports is written by the sink that the engine's own process uses.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest

from engine_hooks.compiled import compiled_profile
from engine_hooks.metrics import PrometheusSink, Vocabulary
from engine_hooks.monitor_text import HOOKS, NEEDS, blocker_names
from engine_hooks.sglang.tokenizer import SERIES

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

NOW = 1_800_000_000
"""The clock of these engines (Unix s): 2027-01-15 08:00:00 UTC."""
SGLANG = b"# TYPE sglang:max_total_num_tokens gauge\nsglang:max_total_num_tokens 4096.0\n"
PROFILE = compiled_profile("sglang", "0.5.23")
assert PROFILE is not None
VOCABULARY = Vocabulary(
    tuple(NEEDS),
    tuple(PROFILE.ledgers),
    blocker_names(PROFILE),
    HOOKS,
    tuple(PROFILE.remedies),
    ("0123456789abcdef", "0.1.0", "sglang", "0.5.23"),
)


def exported(*ranks: Callable[[PrometheusSink], object], info: tuple[str, ...] = VOCABULARY.info) -> bytes:
    """`/metrics` of an engine with so many ranks, each written to by its function."""
    registries = []
    for rank, write in enumerate(ranks):
        registry = CollectorRegistry()
        sink = PrometheusSink(Vocabulary(*(vars(VOCABULARY) | {"info": info}).values()), (rank, 0, 0), registry)
        for hook in HOOKS:
            sink.gauge("hook_applied", (hook,), 1)
        write(sink)
        registries.append(generate_latest(registry))
    return SGLANG + b"".join(registries)


def tokenizer_paused(seconds: float) -> bytes:
    """What the tokenizer's process adds once it has been paused for so long."""
    registry = CollectorRegistry()
    sink = PrometheusSink(Vocabulary(process="tokenizer"), ("", "", ""), registry, SERIES)
    sink.gauge("paused", ("tokenizer",), 1)
    sink.gauge("pause_start_timestamp_seconds", ("tokenizer",), NOW - seconds)
    return generate_latest(registry)


def idle(_sink: PrometheusSink) -> None:
    """A rank on which nothing happened."""


def paused(sink: PrometheusSink, seconds: float = 200) -> None:
    """A rank that has been paused for so long."""
    sink.gauge("paused", ("scheduler",), 1)
    sink.gauge("pause_start_timestamp_seconds", ("scheduler",), NOW - seconds)


def blocked(sink: PrometheusSink) -> None:
    """A flush waits for a copy."""
    paused(sink)
    sink.gauge("flush_blocked", ("write_through",), 1)
    sink.gauge("ledger_entries", ("write_through", "submitted"), 2)
    sink.gauge("ledger_oldest_timestamp_seconds", ("write_through",), NOW - 201)


def stuck(sink: PrometheusSink) -> None:
    """The founding case."""
    blocked(sink)
    sink.gauge("stuck", ("paused-flush-succeeds",), 1)
    sink.count("violations_total", ("paused-flush-succeeds",), 1)
    sink.count("violations_total", ("update-flushes",), 1)
    sink.gauge("weight_epoch", (), 1)
    sink.gauge("version_mismatch", (), 1)


@dataclass(frozen=True)
class Page:
    """One answer."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def server_info(*versions: str) -> Page:
    return Page(
        json.dumps({"version": "0.5.23", "internal_states": [{"weight_version": v} for v in versions]}).encode()
    )


def model_info(version: str) -> Page:
    return Page(json.dumps({"weight_version": version, "model_path": "m"}).encode())


def engine(metrics: bytes, scheduler: str = "default", tokenizer: str = "default") -> dict[str, Page]:
    return {"/metrics": Page(metrics), "/server_info": server_info(scheduler), "/model_info": model_info(tokenizer)}


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    """It stands for many engines, each asked three times at once; by default five may wait."""


@contextmanager
def served(pages: Mapping[str, Page], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The base URL of a server with these pages; 404 for all others. Its clock shows NOW."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path, Page(b"", 404))
            self.send_response_only(page.status)
            for name, value in {"Date": formatdate(NOW, usegmt=True), **page.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, *_: object) -> None: ...

    server = _Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def listening(talk: Callable[[socket.socket, threading.Event], object]) -> Iterator[str]:
    """The base URL of a server that says whatever `talk` says, which ends when the event is set."""
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(4096)
                talk(connection, stop)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
