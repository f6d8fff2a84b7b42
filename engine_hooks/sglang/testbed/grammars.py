"""A grammar backend for the tiny model, which has no tokenizer: what it compiles allows every token.

What queues a request, polls its grammar and caches it is the engine's own. Each compilation passes a gate of the
testbed, with a backend of SGLang's as with this one.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend, BaseGrammarObject


class AnyTokens(BaseGrammarObject):  # type: ignore[misc] # SGLang has no types
    """A grammar that every answer is in."""

    def accept_token(self, token: int) -> None:
        """It takes each."""

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: object) -> torch.Tensor:  # noqa: ARG002 - the engine's signature
        """Nothing is ever masked, so there is nothing to keep of a row."""
        return torch.zeros(batch_size, 1)

    def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
        """See `allocate_vocab_mask`."""

    @staticmethod
    def move_vocab_mask(vocab_mask: torch.Tensor, device: object) -> torch.Tensor:  # noqa: ARG004 - the engine's signature
        """It is where it is needed."""
        return vocab_mask

    @staticmethod
    def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        """See `allocate_vocab_mask`."""

    def copy(self) -> AnyTokens:
        """One for each request: the engine writes to it when the request is over."""
        return AnyTokens()


class AnyTokensBackend(BaseGrammarBackend):  # type: ignore[misc] # SGLang has no types
    """Compiles regular expressions, without reading them."""

    def dispatch_regex(self, key_string: str) -> AnyTokens:  # noqa: ARG002 - the engine's signature
        """Called by a thread of the engine."""
        return AnyTokens()


def supply(_result: object, manager: Any, *_args: object, **_kwargs: object) -> None:  # noqa: ANN401 - SGLang ships no types
    """Give a grammar manager a backend where SGLang gives it none, since there is no tokenizer."""
    if manager.grammar_backend is None and manager.server_args.skip_tokenizer_init:
        manager.grammar_backend = AnyTokensBackend()
