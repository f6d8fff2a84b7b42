"""A prefill and a decode worker: one of them is driven, the other goes round freely and is its peer.

A router sends a request to both. Here the driven worker gets it first, and the peer when it is told to, so that what
the driven one waits for from its peer comes at a move of its own. KV on its way between the two is held like any other
transfer.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine_hooks.sglang.testbed.control import Kind, Switch
from engine_hooks.sglang.testbed.drive import Answer
from engine_hooks.sglang.testbed.server import Server, ServerOptions, free_port
from engine_hooks.sglang.testbed.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from pathlib import Path

_OTHER = {"prefill": "decode", "decode": "prefill"}
_HOST = "127.0.0.1"
_MEET_SECONDS = 1.0
"""For what the two say to each other about a request, and for the next write of its KV. None of it shows outside."""


def begin(engines: ExitStack, options: ServerOptions, new_model: Path, role: str = "") -> Witness:
    """Start what is to be driven: an engine, or the worker of a role with its peer.

    Args:
        engines: ends them.
        options: of the engine, or of both workers, each in a folder of its own below that of the options.
        new_model: as `Drive` takes it.
        role: "prefill" or "decode"; an engine that is both otherwise.

    Raises:
        LaunchError: where one does not come up.
    """
    if not role:
        return Witness(engines.enter_context(Server(options)), new_model)
    port = free_port()
    both = {one: engines.enter_context(Server(_worker(options, one, port))) for one in ("prefill", "decode")}
    return Pair(both[role], new_model, both[_OTHER[role]], role, port)


def _worker(options: ServerOptions, role: str, port: int) -> ServerOptions:
    folder = options.folder / role
    folder.mkdir()
    arguments = {
        "disaggregation_mode": role,
        "disaggregation_transfer_backend": "mooncake_tcp",
        "disaggregation_bootstrap_port": port,
        "disaggregation_decode_enable_radix_cache": role == "decode",
    }
    return replace(options, folder=folder, arguments={**options.arguments, **arguments})


class Pair(Witness):
    """The moves, of the worker of `role` and its peer. The prefill worker's bootstrap server listens on `port`."""

    def __init__(self, server: Server, new_model: Path, peer: Server, role: str, port: int) -> None:
        super().__init__(server, new_model)
        self._peer = peer.control.rank()
        self._peer_url, self._port = peer.url, port
        self._ranks.append(self._peer)
        self._sends = self.rank if role == "prefill" else self._peer
        self._alone: list[Mapping[str, object]] = []
        self._stepping = False
        self._answers_of_peer: list[Answer] = []

    def hold(self) -> None:
        """See `Drive`. From here on a request reaches the peer only with `peer_joins`."""
        self._stepping = True
        super().hold()

    def let_go(self) -> None:
        """See `Drive`. The peer gets every request."""
        self._join_all()
        super().let_go()

    def peer_joins(self) -> None:
        """The first request that the driven worker alone has reaches the peer."""
        target = self._peer.requests.done + 1
        self._join()
        self._until(lambda: self._peer.requests.done >= target, "the request reaches the peer")
        time.sleep(_MEET_SECONDS)

    def land(self, kind: str) -> None:
        """See `Drive`. The KV of a request is sent in several writes, each after the end of the one before."""
        if Kind(kind) is not Kind.PD_SEND:
            super().land(kind)
            return
        self._sends.pd_send.release()
        sent = -1
        while sent != self._sends.pd_send.submitted:
            sent = self._sends.pd_send.submitted
            self._sends.pd_send.wait_idle()
            time.sleep(_MEET_SECONDS)
        self._sends.pd_send.hold()

    def end_all(self) -> None:
        """What runs goes on to its end, at both; then every tier of both is emptied."""
        self._restore()
        self._join_all()
        self._send("/continue_generation", {})
        ending = [*self.answers, *self._answers_of_peer]
        self._until(lambda: all(answer.done.is_set() for answer in ending), "all requests have ended")
        self.answers.clear()
        self._answers_of_peer.clear()
        self._wait_idle()
        self._until(lambda: self._flushed(self.server.url), "a flush succeeds")
        self._until(lambda: self._flushed(self._peer_url), "a flush of the peer succeeds")

    def _flushed(self, url: str) -> bool:
        return self._post_to(url, "/flush_cache?timeout=0").ok

    def _switch(self, kind: Kind) -> Switch:
        return self._sends.switches[kind] if kind is Kind.PD_SEND else super()._switch(kind)

    def _generate(self, answer: Answer, body: dict[str, object]) -> None:
        room = {"bootstrap_host": _HOST, "bootstrap_port": self._port, "bootstrap_room": self._sent}
        super()._generate(answer, body | room)
        self._alone.append(body | room)
        if not self._stepping:
            self._join()

    def _join(self) -> None:
        body = self._alone.pop(0)
        answer = Answer([], 0, str(body["rid"]), self._stepped)
        answer.begin(self._peer_url + "/generate", body)
        self._answers_of_peer.append(answer)

    def _join_all(self) -> None:
        self._stepping = False
        while self._alone:
            self._join()
