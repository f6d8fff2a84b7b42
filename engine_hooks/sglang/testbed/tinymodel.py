"""A tiny random model whose outputs depend on every token of its context.

Two seeds give two models that differ in nothing but their weights, so a prompt's output tells which weights computed
its KV. The initial weights are large: at the usual scale a random model's attention is so flat that serving it the
wrong KV changes nothing that a test could see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY = 512
"""Token ids 0 to 511; 1 begins and 2 ends a text."""
CONTEXT = 4096
"""Most tokens of one request, prompt and output together."""

_INITIALIZER_RANGE = 0.3
_UNKNOWN = "t0"


def make(path: Path, *, seed: int, layers: int = 2) -> Path:
    """Write a model in float32 and a word-level tokenizer (words `t0` to `t511`) to `path`; returns `path`."""
    torch.manual_seed(seed)
    # Qwen3 is, of the dense models, one that also runs under DP attention.
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        initializer_range=_INITIALIZER_RANGE,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        dtype="float32",
    )
    Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(path)
    _tokenizer().save_pretrained(path)
    return path


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {f"t{i}": i for i in range(VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": _UNKNOWN, "bos_token": "t1", "eos_token": "t2", "pad_token": _UNKNOWN}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)
