"""Counterexamples of other profiles on the real engine: grammars, pipelines; and engines that are repaired there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Models

from checker.reproduce.chosen import counterexamples, drivable, remedies_of
from checker.reproduce.results import Outcome, Reproduction
from checker.reproduce.run import Place, reproduce
from checker.reproduce.schedule import Schedule
from checker.verify import Request, verify
from spec.profile import load_profile

if TYPE_CHECKING:
    from engine_hooks.sglang.testbed.warm import Warm

pytestmark = pytest.mark.engine

RUNS = 2
FOUNDING = "paused-flush-succeeds"


@pytest.fixture(scope="module")
def where(models: Models, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("reproduce"), models.old, models.new, warm)


def reproduced(
    where: Place, name: str, loop: str, *properties: str, mode: str = "retract", remedies: tuple[str, ...] = ()
) -> list[Reproduction]:
    """What becomes of the counterexamples of a profile, on engines with these remedies."""
    profile = load_profile(name)
    request = Request(profile, properties=properties, loops=(loop,), modes=(mode,), workers=1)
    engine = remedies_of(profile, remedies)
    found = [drivable(group, profile, engine) for group in counterexamples(verify(request).results)]
    assert [one for one in found if not isinstance(one, Schedule)] == []
    return list(reproduce([one for one in found if isinstance(one, Schedule)], RUNS, where))


@pytest.mark.parametrize("loop", ["normal", "overlap"])
def test_a_grammar_that_compiles_at_the_pause(loop: str, where: Place) -> None:
    """Case B13."""
    found = reproduced(where, "sglang-0.5.23-grammar", loop, FOUNDING, "update-tells-truth")
    assert sorted((r.property, r.reason, r.departure, r.confirmed) for r in found) == [
        (FOUNDING, "grammar is reaped by no paused step", "", RUNS),
        ("update-tells-truth", "a forward runs after an update whose flush was refused", "", RUNS),
    ]
    assert all("request(" in r.schedule[1] and "grammar=True" in r.schedule[1] for r in found)


def test_a_paused_loop_that_polls_grammars(where: Place) -> None:
    (found,) = reproduced(where, "sglang-0.5.23-grammar", "overlap", FOUNDING, remedies=("grammar-while-paused",))
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure.endswith("flush_stays_refused(): all had landed, and flush 1 of 20 was granted")


RUN = "no-forward-while-paused"


def test_a_pipeline_runs_on_while_paused(where: Place) -> None:
    """Case B21: what waits at the pause is admitted, and reads KV of before and after an update."""
    found = reproduced(where, "sglang-0.5.23-no-flag", "pp", RUN, "update-tells-truth", "no-stale-kv")
    found = [r for r in found if r.configuration["storage"] == "none"]
    assert sorted((r.property, r.departure, r.confirmed, r.schedule[-1]) for r in found) == [
        (RUN, "", RUNS, "answers_while_paused()"),
        ("no-stale-kv", "", RUNS, "answers_are_stale()"),
        ("update-tells-truth", "", RUNS, "new_weights_serve_after_failure()"),
    ]


def test_a_pipeline_that_looks_at_the_flag(where: Place) -> None:
    (found,) = reproduced(where, "sglang-0.5.23-no-flag", "pp", RUN, remedies=("pp-honours-pause",))
    assert (found.outcome, found.confirmed) == (Outcome.NOT_REPRODUCED, 0)
    assert found.departure.endswith("while paused, the request got 0 more tokens in 10 s")
