"""Tiny models of every family that captures are recorded from, with random weights, and a tokenizer of bytes."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {"vocab_size": 256, "n_embd": 48, "n_inner": 32, "n_layer": 3, "n_head": 6, "n_positions": 128}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
ALL, CLS = [0, 1, 2], {"cls_token_id": 1, "sep_token_id": 2}
# Family -> (model, causal, KV heads, layers that a capture can hold).
FAMILIES: dict[str, tuple[Any, Any, bool, int, list[int]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, num_key_value_heads=2), True, 2, ALL),
    "mistral": (MistralForCausalLM, MistralConfig(**SIZES, num_key_value_heads=3, sliding_window=None), True, 3, ALL),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, num_key_value_heads=1), True, 1, ALL),
    # With norms of its own on q and k.
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8), True, 2, ALL),
    "gpt2": (GPT2LMHeadModel, GPT2Config(**GPT2), True, 6, ALL),
    "bert": (BertModel, BertConfig(**SIZES), False, 6, ALL),
    # Every third layer is global from layer 0 on, the others see a window of 16.
    "modernbert": (ModernBertModel, ModernBertConfig(**SIZES, local_attention=16, **CLS), False, 6, [0]),
}  # fmt: skip


def build(family: str, attention: str = "sdpa") -> PreTrainedModel:
    kind, config, *_ = FAMILIES[family]
    torch.manual_seed(0)
    model = kind._from_config(deepcopy(config), attn_implementation=attention)
    for parameter in model.parameters():  # the usual small weights give nearly uniform attention, which hides mistakes
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made)


def save(family: str, folder: Path) -> Path:
    """A folder as from_pretrained reads it."""
    build(family).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
