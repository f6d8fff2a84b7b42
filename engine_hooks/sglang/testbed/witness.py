"""Looks, at the end of a schedule, for the violation of a promise, by what clients and trainers of the engine see.

Each method ends quietly where it has seen the violation, and raises where the engine kept its promise.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine_hooks.sglang.testbed.drive import NEW_VERSION, OLD_VERSION, Answer, DepartedError, Drive

if TYPE_CHECKING:
    from pathlib import Path

_COMPARED_TOKENS = 16
_ANSWER_SECONDS = 2.0
_POLL_SECONDS = 0.01
_NOT_FLUSHED = "not flushed"
"""What SGLang says of an update whose flush was refused
(`srt/managers/scheduler_components/weight_updater.py:flush_cache_after_weight_update`)."""

_WATCHDOG = "Scheduler watchdog timeout"
"""What it logs before it sends SIGQUIT to its parent (`srt/utils/watchdog.py`), which ends the engine."""


class Witness(Drive):
    """The moves, and what is seen after them."""

    # ---- of flushes and updates

    def flush_stays_refused(self, attempts: int = 20, passes: int = 50) -> None:
        """Let go of everything, and ask for a flush `attempts` times, `passes` passes apart: none is granted.

        After that, continue: a flush is granted then, so it was the pause that stood in its way.
        """
        self.let_go()
        for attempt in range(attempts):
            self.wait_passes(passes)
            if self.flush():
                raise DepartedError(f"all had landed, and flush {attempt + 1} of {attempts} was granted")
        self.seen[-attempts:] = [f"all had landed, and {attempts} flushes over {attempts * passes} passes were refused"]
        self.end_all()
        self.seen.append("after continue_generation a flush was granted")

    def deferred_flush_disagrees(self, timeout: float = 2.0) -> None:
        """A flush with a time-out (s) is refused when it is over, and one without is granted at once."""
        if self.flush(timeout=timeout):
            raise DepartedError("the flush with a time-out was granted")
        self.flush(granted=True)

    def update_was_refused_by_its_flush(self) -> None:
        """The last update was answered with failure, for no other reason than its flush."""
        if not self.last_update or self.last_update.success or _NOT_FLUSHED not in self.last_update.message:
            raise DepartedError(f"the last update was not refused by its flush: {self.last_update}")

    # ---- of weights

    def answers_are_stale(self) -> None:
        """After the update the last request got tokens that the new weights, without old KV, do not give."""
        answer, known = self._after_the_update()
        wanted = self._tokens_of(self.new_model, NEW_VERSION, answer.prompt + answer.output_ids[:known])
        got = answer.output_ids[known : known + len(wanted)]
        if got == wanted[: len(got)]:
            raise DepartedError(f"the answer is the one that the new weights give: {got}")
        self.seen.append(f"the new weights were answering {got}; with empty caches they answer {wanted[: len(got)]}")

    def new_weights_serve_after_failure(self) -> None:
        """The last update was answered with failure, and what it loaded serves: the tokens are not the old ones."""
        self.update_was_refused_by_its_flush()
        answer, known = self._after_the_update()
        old = self._tokens_of(self.old_model, OLD_VERSION, answer.prompt + answer.output_ids[:known])
        got = answer.output_ids[known : known + len(old)]
        if got == old[: len(got)]:
            raise DepartedError(f"the answer is the one that the old weights give: {got}")
        self.seen.append(f"after the failure {got} was answered; the old weights answer {old[: len(got)]}")

    def versions_split(self) -> None:
        """A request gets one version from the scheduler and another from the tokenizer, in one answer."""
        self.continue_()
        self.let_go()
        self._until(lambda: all(one.done.is_set() for one in self.answers), "the requests end")
        # A request carries what the scheduler says; the tokenizer is asked itself.
        scheduler = self.send([5, 6, 7], _COMPARED_TOKENS).wait().meta["weight_version"]
        tokenizer = self.weight_version()
        if scheduler == tokenizer:
            raise DepartedError(f"scheduler and tokenizer both say {tokenizer!r}")
        self.seen.append(f"the scheduler says {scheduler!r}, the tokenizer {tokenizer!r}")

    def storage_keeps_old_pages(self) -> None:
        """The last update succeeded, and its storage still has pages that were written before it."""
        if not self.last_update or not self.last_update.success:
            raise DepartedError(f"the last update did not succeed: {self.last_update}")
        pages = [
            p for p in self.server.storage.rglob("*") if p.is_file() and p.stat().st_mtime < self.last_update.began
        ]
        if not pages:
            raise DepartedError("no page from before the update is in storage")
        self.seen.append(f"success, and storage has {len(pages)} files from before the update")

    # ---- of requests and the engine itself

    def answers_while_paused(self, tokens: int = 16, seconds: float = 10.0) -> None:
        """Let go, and nobody continues: the last request gets `tokens` more tokens all the same, within `seconds`."""
        answer = self.answers[-1]
        before = len(answer.output_ids)
        self.let_go()
        deadline = time.monotonic() + seconds
        while len(answer.output_ids) < before + tokens:
            if time.monotonic() > deadline:
                more = len(answer.output_ids) - before
                raise DepartedError(f"while paused, the request got {more} more tokens in {seconds:g} s")
            time.sleep(_POLL_SECONDS)
        self.seen.append(f"paused, and never continued: the request got {tokens} tokens and more")

    def abort_has_no_effect(self, passes: int = 200) -> None:
        """The aborted request is not answered while paused, and after continue it runs to its end."""
        answer = self.answers[-1]
        self.let_go()
        self.wait_passes(passes)
        if answer.done.wait(_ANSWER_SECONDS):
            raise DepartedError(f"the aborted request was answered: {answer.meta or answer.error}")
        self.continue_()
        reason = answer.wait().meta.get("finish_reason") or {}
        if reason.get("type") != "length":
            raise DepartedError(f"after continue the aborted request ended as {reason}")
        count = len(answer.output_ids)
        self.seen.append(f"no answer over {passes} passes; after continue_generation all {count} tokens were made")

    def paused_request_times_out(self, seconds: float = 20.0) -> None:
        """The last request, queued and paused, is aborted by a clock of the engine within `seconds`."""
        self.seen.append(f"while paused, the queued request was answered: {self._turned_away('timeout', seconds)}")

    def retracted_request_is_turned_away(self, seconds: float = 20.0) -> None:
        """The last request, which ran, is retracted and answered that the queue is full, within `seconds`."""
        text = self._turned_away("queue is full", seconds)
        count = len(self.answers[-1].output_ids)
        self.seen.append(f"after {count} tokens the retracted request was answered: {text}")

    def _turned_away(self, why: str, seconds: float) -> str:
        """What the last request is answered while paused, within `seconds`: a text that says `why`."""
        answer = self.answers[-1]
        if not answer.done.wait(seconds):
            raise DepartedError(f"the last request is still unanswered after {seconds:g} s of pause")
        reason = answer.meta.get("finish_reason") or {}
        text = f"{reason.get('message', '')}{answer.error}"
        if why not in text:
            raise DepartedError(f"the last request ended otherwise: {reason} {answer.error}")
        return text

    def watchdog_fires(self, seconds: float = 60.0, passes: int = 200) -> None:
        """Let go: the loop goes round, and all the same the watchdog takes it for hung and asks for its end."""
        self.rank.restore()
        self.wait_passes(passes)
        self._until(lambda: _WATCHDOG in self.server.log(), "the watchdog fires", seconds)
        self.seen.append(f"the loop had gone round {passes} times, and the engine logged: {_WATCHDOG}")

    # ---- how it is seen

    def _after_the_update(self) -> tuple[Answer, int]:
        """The last request, finished, and how many of its tokens may be from before the update: one a pass at most."""
        if self.last_update is None:
            raise DepartedError("there was no update")
        self.let_go()
        answer = self.answers[-1].wait()
        known = max(0, self.last_update.passes - answer.passes)
        if len(answer.output_ids) <= known:
            raise DepartedError(f"no token came after the update: {len(answer.output_ids)} in all, {answer.error}")
        return answer, known

    def _tokens_of(self, model: Path, version: str, ids: list[int]) -> list[int]:
        """What weights answer from empty caches; asked again, from the caches that they filled, they say the same."""
        self.end_all()
        self.load(model, version, success=True)
        first, again = (self.send(ids, _COMPARED_TOKENS).wait() for _ in range(2))
        if first.meta["cached_tokens"] or first.output_ids != again.output_ids:
            raise DepartedError(f"no answer to compare with: {first.meta}, {first.output_ids}, {again.output_ids}")
        return first.output_ids
