"""Hugging Face model types: what their configuration classes fill in where config.json is silent.

A config.json need not say what equals the default of its class, so that reading one takes the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problem import whole


@dataclass(frozen=True)
class Family:
    """What a model type's configuration class fills in: settings, and layer types where none are listed."""

    defaults: Mapping[str, Any]
    layer_types: Callable[[Mapping[str, Any], int], Sequence[str]]


def _kinds(sliding: Iterable[bool], kind: str = "sliding_attention") -> list[str]:
    return [kind if yes else "full_attention" for yes in sliding]


def as_written(c: Mapping[str, Any], n: int) -> list[str]:
    """All layers alike: sliding where a window is set and used, else chunked where a chunk is, else full."""
    if c.get("sliding_window") is not None and c.get("use_sliding_window") is not False:
        return ["sliding_attention"] * n
    return _kinds((c.get("attention_chunk_size") is not None for _ in range(n)), "chunked_attention")


def _full_every(default: int, key: str | None = None) -> Callable[[Mapping[str, Any], int], list[str]]:
    def layer_types(c: Mapping[str, Any], n: int) -> list[str]:
        every = whole(key, c.get(key, default), 1) if key else default
        return _kinds((i + 1) % every != 0 for i in range(n))

    return layer_types


def _late(c: Mapping[str, Any], n: int) -> list[str]:
    used = c["use_sliding_window"] and c["sliding_window"] is not None
    return _kinds(used and i >= c["max_window_layers"] for i in range(n))


def _rope(c: Mapping[str, Any], n: int) -> list[bool]:
    every = c["no_rope_layer_interval"]
    return [bool(flag) for flag in c.get("no_rope_layers") or [(i + 1) % every for i in range(n)]]


def _chunked_with_rope(c: Mapping[str, Any], n: int) -> list[str]:
    return _kinds((c["attention_chunk_size"] is not None and rope for rope in _rope(c, n)), "chunked_attention")


def _sliding_without_rope(c: Mapping[str, Any], n: int) -> list[str]:
    used = c["use_sliding_window"] and c["sliding_window"] is not None
    return _kinds(used and not rope for rope in _rope(c, n))


def _modernbert(c: Mapping[str, Any], n: int) -> list[str]:
    return _kinds(bool(i % c["global_attn_every_n_layers"]) for i in range(n))


_QWEN = Family({"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}, _late)
FAMILIES: Mapping[str, Family] = {
    "llama": Family({}, as_written),
    "mistral": Family({"sliding_window": 4096}, as_written),
    "ministral": Family({"sliding_window": 4096}, as_written),
    "mixtral": Family({"sliding_window": None}, as_written),
    "phi3": Family({"sliding_window": None}, as_written),
    "starcoder2": Family({"sliding_window": None}, as_written),
    "qwen2": _QWEN,
    "qwen2_moe": _QWEN,
    "qwen3": _QWEN,
    "qwen3_moe": _QWEN,
    "gemma2": Family({"sliding_window": 4096}, _full_every(2)),
    "gemma3_text": Family({"sliding_window": 4096}, _full_every(6, "sliding_window_pattern")),
    "cohere2": Family({"sliding_window": 4096}, _full_every(4, "sliding_window_pattern")),
    "olmo3": Family({"sliding_window": 4096}, _full_every(4)),
    "gpt_oss": Family({"sliding_window": 128}, _full_every(2)),
    "exaone4": Family({"sliding_window": 4096}, _full_every(4, "sliding_window_pattern")),
    "llama4_text": Family({"attention_chunk_size": 8192, "no_rope_layer_interval": 4}, _chunked_with_rope),
    "smollm3": Family(
        {"use_sliding_window": False, "sliding_window": None, "no_rope_layer_interval": 4}, _sliding_without_rope
    ),
    "modernbert": Family({"local_attention": 128, "global_attn_every_n_layers": 3, "is_causal": False}, _modernbert),
}
