"""Hugging Face's configs: sliding_window, attention_chunk_size and their kin, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from ..problem import whole
from .families import FAMILIES, Family, as_written
from .meaning import Convention, Meaning, where

CAUSAL, DENSE, window, chunk = (PRIMITIVES[word] for word in ("causal", "dense", "window", "chunk"))


def read_config(config: object) -> Convention:
    """What a Hugging Face config (a dict as in config.json, or a config object) means, layer by layer.

    Reads `layer_types`, or what stands for them in the model types that are known (`FAMILIES`), whose
    defaults fill in what the config leaves out; another model type is read as written, with a note.
    Raises StudioError where the config does not say enough.

    Source: transformers 5, `masking_utils.py` and the configuration classes.

    >>> print(read_config({"model_type": "gemma2", "sliding_window": 8, "num_hidden_layers": 3}))
    Hugging Face config of gemma2
    layers 0, 2: sliding_window=8 is causal & window(7, 0): a query sees 8 keys, itself included
    layer 1: full_attention is causal: a query sees every key up to itself
    """
    given = config.to_dict() if callable(getattr(config, "to_dict", None)) else config  # type: ignore[attr-defined]
    if not isinstance(given, Mapping):
        raise StudioError(f"read_config() takes a config as a dict, got {type(config).__name__}; json.load the file")
    given = given.get("text_config") or given  # of models that also see or hear
    model_type = given.get("model_type")
    family = FAMILIES.get(str(model_type))
    notes = [] if family else [f"model_type {model_type!r} is not among {', '.join(FAMILIES)}: read as written"]
    family = family or Family({}, as_written)
    settings = {**family.defaults, **given}
    if "num_hidden_layers" not in settings and not settings.get("layer_types"):
        raise StudioError("the config says neither num_hidden_layers nor layer_types; add num_hidden_layers")
    count = whole("num_hidden_layers", settings.get("num_hidden_layers", len(settings.get("layer_types") or ())), 1)
    types = settings.get("layer_types") or family.layer_types(settings, count)
    if len(types) < count:
        raise StudioError(f"layer_types names {len(types)} layers, fewer than num_hidden_layers {count}; correct one")
    meanings = []
    for kind in dict.fromkeys(types[:count]):
        layers = tuple(n for n, other in enumerate(types[:count]) if other == kind)
        if kind in ("full_attention", "sliding_attention", "chunked_attention"):
            meanings.append(replace(_meaning(kind, settings), layers=layers))
        else:
            notes.append(f"{where(layers)}{kind} has no mask that a pattern could be held against")
    if not meanings:
        raise StudioError(f"no layer of this config attends under a mask: its layer types are {sorted(set(types))}")
    heads = whole("num_attention_heads", settings.get("num_attention_heads", 1), 1, 65536)
    return Convention(f"Hugging Face config of {model_type}", tuple(meanings), heads, tuple(notes))


def _meaning(kind: str, settings: Mapping[str, Any]) -> Meaning:
    both_ways = settings.get("is_causal", True) is False or settings.get("use_bidirectional_attention") is True
    if kind == "full_attention":
        if both_ways:
            slips = ((CAUSAL, "this is causal: the model attends both ways"),)
            return Meaning(kind, DENSE, "a query sees every key", slips)
        slips = ((DENSE, "this looks ahead: causal is missing"),)
        return Meaning(kind, CAUSAL, "a query sees every key up to itself", slips)
    if kind == "chunked_attention":
        return _chunked(_size(settings, "attention_chunk_size", kind))
    if settings.get("model_type") == "modernbert":
        return _around("local_attention", _size(settings, "local_attention", kind), 2)
    size = _size(settings, "sliding_window", kind)
    if settings.get("model_type") == "gemma3_text" and both_ways:
        return _around("sliding_window", size, 2)  # use_bidirectional_attention halves it
    return _around("sliding_window", size, 1) if both_ways else _sliding(size)


def _size(settings: Mapping[str, Any], key: str, kind: str) -> int:
    if settings.get(key) is None:
        raise StudioError(f"the config has {kind} layers and no {key}; add {key}")
    return whole(key, settings[key], 1)


def _sliding(size: int) -> Meaning:
    own = "W in Hugging Face counts the query itself: window(W - 1, 0)"
    slips: list[tuple[Pattern, str]] = [(CAUSAL & window(size, 0), f"{own}; this keeps {size + 1} keys")]
    if size > 1:
        slips.append((CAUSAL & window(size - 2, 0), f"{own}, no less; this keeps {size - 1} keys"))
        slips.append((CAUSAL & chunk(size), "this cuts chunks at fixed borders; a sliding window moves with the query"))
    slips += [(window(n, n), "this looks ahead: causal is missing") for n in (size - 1, size)]
    slips.append((CAUSAL, f"this has no window: every key up to the query is kept, not the last {size}"))
    sentence = f"a query sees {size} keys, itself included"
    return Meaning(f"sliding_window={size}", CAUSAL & window(size - 1, 0), sentence, tuple(slips))


def _chunked(size: int) -> Meaning:
    slips: list[tuple[Pattern, str]] = [
        (chunk(size), "this looks ahead inside a chunk: causal is missing"),
        (CAUSAL & window(size - 1, 0), "this slides with the query; chunks have fixed borders"),
        (CAUSAL, "this has no chunks: every key up to the query is kept"),
        (CAUSAL & chunk(size + 1), f"a chunk has {size} keys; this has one more"),
    ]
    if size > 1:
        slips.append((CAUSAL & chunk(size - 1), f"a chunk has {size} keys; this has one less"))
    sentence = f"a query sees the keys up to itself in its own chunk of {size}"
    return Meaning(f"attention_chunk_size={size}", CAUSAL & chunk(size), sentence, tuple(slips))


def _around(key: str, size: int, parts: int) -> Meaning:
    reach = size // parts
    slips: list[tuple[Pattern, str]] = [
        (CAUSAL & window(n, 0), "this is causal: the model attends both ways") for n in (reach, max(reach - 1, 0))
    ]
    if reach > 0:
        slips.append((window(reach - 1, reach - 1), f"the reach is {reach} keys on each side, the last one included"))
    for wide in {size, size - 1} - {reach} if parts == 2 else set():
        slips.append((window(wide, wide), f"{key} counts both sides: {reach} keys on each"))
    sentence = f"a query sees itself and {reach} keys on each side"
    return Meaning(f"{key}={size}", window(reach, reach), sentence, tuple(slips))
