"""What the clients get after an update: every token that they asked for, and nothing that the old weights computed."""

from __future__ import annotations

import pytest
from harness import ASKED_TOKENS, PROMPT, REMEDY, Engine, Models, on, prompt

pytestmark = pytest.mark.engine

LENGTHS = (40, 90, 150)


@on(loop="normal", storage="none", remedies="")
def test_the_two_models_answer_differently(engine: Engine, fresh_answer: list[int]) -> None:
    assert engine.ask(PROMPT, ASKED_TOKENS).output_ids != fresh_answer


@on(remedies="")
def test_without_the_remedy_new_weights_read_the_kv_of_the_old(
    engine: Engine, models: Models, fresh_answer: list[int]
) -> None:
    engine.rank.d2h.hold()
    stream = engine.generate(PROMPT, 200)
    engine.rank.d2h.wait_in_flight()
    engine.pause("retract")
    assert not engine.update_from_disk(models.new).success
    engine.rank.d2h.release()
    engine.rank.wait_idle()
    assert not engine.flush().success
    # Continuing is the only way out.
    engine.continue_()
    stream.result()
    again = engine.ask(PROMPT, ASKED_TOKENS)
    assert again.meta["cached_tokens"] > 0
    assert again.output_ids != fresh_answer


@on(storage="none", remedies=REMEDY)
def test_with_the_remedy_every_request_ends_and_answers_are_fresh(
    engine: Engine, models: Models, fresh_answer: list[int]
) -> None:
    update_under_load(engine, models)
    assert engine.ask(PROMPT, ASKED_TOKENS).output_ids == fresh_answer


@on(storage="file", remedies=REMEDY)
def test_with_the_remedy_answers_are_fresh_once_the_storage_is_cleared(
    engine: Engine, models: Models, fresh_answer: list[int]
) -> None:
    """No flush reaches the file storage, which goes on serving the KV of the old weights (SGLang 0.5.23)."""
    update_under_load(engine, models)
    engine.settle()
    stale = engine.ask(PROMPT, ASKED_TOKENS)
    assert stale.meta["cached_tokens_details"]["storage"] > 0
    assert stale.output_ids != fresh_answer

    engine.rank.wait_idle()
    engine.clear_storage()
    engine.settle()
    assert engine.ask(PROMPT, ASKED_TOKENS).output_ids == fresh_answer


def update_under_load(engine: Engine, models: Models) -> None:
    """Several requests running, the longest's prompt still being written through; pause, update, continue."""
    others = [engine.generate(prompt(100, seed=20 + i), tokens) for i, tokens in enumerate(LENGTHS)]
    for stream in others:
        stream.wait_tokens(1)
    engine.rank.d2h.hold()
    main = engine.generate(PROMPT, 200)
    engine.rank.d2h.wait_in_flight()
    main.wait_tokens(1)
    engine.pause("retract")
    assert not engine.update_from_disk(models.new).success
    engine.rank.d2h.release()
    engine.flush_until_done()
    assert engine.update_from_disk(models.new).success
    seen = len(main.output_ids)
    engine.wait_passes(500)
    assert len(main.output_ids) == seen  # nothing is generated while paused
    engine.continue_()
    for stream in (main, *others):
        stream.result()
