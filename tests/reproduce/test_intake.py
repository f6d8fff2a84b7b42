"""The hooks that step the event loop, around a scheduler of a few lines: what they hold, hand over and count."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine_hooks.sglang.testbed.control import Control, Kind, RankControl, RankGates, RankId
from engine_hooks.sglang.testbed.intake import Intake, kind_of


class TokenizedGenerateReqInput: ...


class PauseGenerationReqInput: ...


@dataclass
class Loop:
    """Polls a list as the engine's loop polls its socket, and keeps what it handled and how often it went round."""

    intake: Intake
    arriving: list[object] = field(default_factory=list)
    handled: list[object] = field(default_factory=list)
    rounds: int = 0
    ended: bool = False

    def receive(self) -> list[object]:
        came, self.arriving = self.arriving, []
        return came

    def ingest(self) -> list[object]:
        came = self.intake.receive(lambda _receiver: self.receive(), object())
        self.handled += came
        return came

    def run(self) -> None:
        while not self.ended:
            self.intake.ingest(lambda _scheduler: self.ingest(), object())
            self.rounds += 1


@pytest.fixture
def rank(tmp_path: Path) -> RankControl:
    return Control(tmp_path).rank()


@pytest.fixture
def loop(tmp_path: Path, rank: RankControl) -> Loop:
    gates = RankGates(tmp_path, RankId())
    rank.passes.hold()
    one = Loop(Intake(lambda kind: gates[kind]))
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    yield one
    one.ended = True
    rank.restore()
    thread.join(5)
    assert not thread.is_alive()


def test_what_is_a_request() -> None:
    assert kind_of(TokenizedGenerateReqInput()) is Kind.REQUEST
    assert kind_of(PauseGenerationReqInput()) is Kind.MESSAGE


def test_a_held_pass_handles_what_comes_and_goes_no_further(loop: Loop, rank: RankControl) -> None:
    loop.arriving = [PauseGenerationReqInput()]
    rank.messages.wait(lambda switch: switch.done == 1)
    loop.arriving = [TokenizedGenerateReqInput()]
    rank.requests.wait(lambda switch: switch.done == 1)
    assert loop.rounds == 0
    assert [type(message).__name__ for message in loop.handled] == [
        "PauseGenerationReqInput",
        "TokenizedGenerateReqInput",
    ]


def test_a_step_is_one_pass(loop: Loop, rank: RankControl) -> None:
    for count in (1, 2, 3):
        rank.passes.step()
        rank.passes.wait(lambda switch, count=count: switch.done == count)
        assert (loop.rounds, rank.passes.started) == (count, count)


def test_a_request_held_on_its_way_is_overtaken(loop: Loop, rank: RankControl) -> None:
    rank.requests.hold()
    late, pause = TokenizedGenerateReqInput(), PauseGenerationReqInput()
    loop.arriving = [late, pause]
    rank.messages.wait(lambda switch: switch.done == 1)
    assert loop.handled == [pause]
    assert rank.requests.in_flight == 1
    rank.requests.step()
    rank.requests.wait(lambda switch: switch.done == 1)
    assert loop.handled == [pause, late]


def test_passes_are_no_transfers(rank: RankControl) -> None:
    """`wait_idle` waits for transfers: a loop never ends."""
    assert set(rank.switches) == set(Kind) - {Kind.LOOP_PASS, Kind.REQUEST, Kind.MESSAGE}
    rank.wait_idle(1)
