"""The file format `pattern-studio-capture/1`.

A safetensors file, or the same as .npz (see npz.py), with tensors `layers.{L}.q`, `.k` and `.v`
[heads, tokens, head_dim] (k and v may have fewer heads) and exactly these metadata, all strings: format, model, text,
tokens (a JSON list, one string per position), scale, causal (`true` or `false`), dtype (of q, k and v). Where they were
measured, and so not in files written before they were thought of: sensitivity (a JSON list, one number per layer) and a
tensor `layers.{L}.gradients` [draws, heads, tokens, head_dim] of every layer, float16, bfloat16 or float32; and, all
three of every layer and each of one of these dtypes, `layers.{L}.rows` [heads, tokens], `.projection`
[width, heads * head_dim] and `.stream` [tokens]: what the model minds of it (see minds.py).
"""

from __future__ import annotations

import json
import os
import re
from reprlib import repr as short  # what a hostile file says may be megabytes long
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pattern_studio.capture.container import read_container, write_container
from pattern_studio.capture.gradients import LossGradients
from pattern_studio.capture.layer import LayerCapture
from pattern_studio.capture.minds import LayerMinds, Minds
from pattern_studio.capture.npz import is_npz, read_npz, write_npz
from pattern_studio.errors import StudioError

if TYPE_CHECKING:
    from pattern_studio.capture.capture import Capture

FORMAT = "pattern-studio-capture/1"
_METADATA = ("format", "model", "text", "tokens", "scale", "causal", "dtype")
_OPTIONAL = ("sensitivity",)
_MINDS = ("rows", "projection", "stream")


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")


def metadata_of(
    model: str,
    text: str,
    tokens: tuple[str, ...],
    scale: float,
    causal: bool,
    dtype: str,
    sensitivity: tuple[float, ...] | None = None,
) -> dict[str, str]:
    """What a file says beside its tensors."""
    measured = {} if sensitivity is None else {"sensitivity": json.dumps(sensitivity)}
    return measured | {
        "format": FORMAT,
        "model": model,
        "text": text,
        "tokens": json.dumps(tokens),
        "scale": repr(scale),  # repr gives back the very same float
        "causal": json.dumps(causal),
        "dtype": dtype,
    }


def encode(capture: Capture, npz: bool = False) -> bytes:
    """The file's bytes, safetensors or .npz; the same capture gives the same bytes."""
    metadata = metadata_of(
        capture.model, capture.text, capture.tokens, capture.scale, capture.causal, dtype_name(capture.dtype),
        capture.sensitivity,
    )  # fmt: skip
    named = {(number, name): part for number, layer in capture.layers.items() for name, part in layer.named().items()}
    if capture.gradients is not None:
        named |= {(number, "gradients"): part for number, part in capture.gradients.layers.items()}
    if capture.minds is not None:
        named |= {(n, name): part for n, one in capture.minds.layers.items() for name, part in one.named().items()}
    tensors = {
        # Cloned because safetensors refuses tensors that share memory, as slices of one projection do.
        f"layers.{number}.{name}": part.detach().cpu().clone(memory_format=torch.contiguous_format)
        for (number, name), part in named.items()
    }
    return (write_npz if npz else write_container)(tensors, metadata)


def decode(source: str | os.PathLike[str] | bytes) -> dict[str, Any]:
    """The fields of a Capture from a file's path or bytes; Capture itself checks that they agree.

    Raises:
        StudioError: another kind of file, another format or version, or keys, metadata or tensors that don't fit it.
    """
    tensors, metadata = (read_npz if is_npz(source) else read_container)(source)
    fields, parts = _fields(metadata), _by_layer(tensors)
    gradients = {number: named.pop("gradients") for number, named in parts.items() if "gradients" in named}
    minds = {number: found for number, named in parts.items() if (found := _layer_minds(number, named))}
    for number, named in parts.items():
        for name, tensor in named.items():
            if dtype_name(tensor.dtype) != metadata["dtype"]:
                raise StudioError(
                    f"expected q, k and v of the stated dtype {short(metadata['dtype'])}, got "
                    f"{dtype_name(tensor.dtype)} in 'layers.{number}.{name}'; save it again"
                )
    layers = {number: _layer(number, named) for number, named in parts.items()}
    measured = {"gradients": LossGradients(gradients) if gradients else None, "minds": Minds(minds) if minds else None}
    return {"layers": layers, **measured, **fields}


def _fields(metadata: dict[str, str]) -> dict[str, Any]:
    stated = metadata.get("format", "")
    if stated != FORMAT:
        versioned = re.fullmatch(r"pattern-studio-capture/[0-9]{1,9}", stated)
        remedy = "another version made it: update Pattern Studio" if versioned else "record one from a model"
        raise StudioError(f"expected a capture of format {FORMAT!r}, got {short(stated)}; {remedy}")
    listed = ", ".join(_METADATA)
    if missing := [key for key in _METADATA if key not in metadata]:
        raise StudioError(f"expected metadata {listed}, got no {', '.join(missing)}; save it again")
    if unknown := sorted(metadata.keys() - {*_METADATA, *_OPTIONAL}):
        raise StudioError(f"expected metadata {listed}, got also {short(unknown)}; remove what is not listed")
    if metadata["causal"] not in ("true", "false"):
        raise StudioError(f"expected causal 'true' or 'false', got {short(metadata['causal'])}; save it again")
    try:
        scale = float(metadata["scale"])
    except ValueError as error:
        raise StudioError(f"expected scale as a number, got {short(metadata['scale'])}; save it again") from error
    lists: dict[str, Any] = {"sensitivity": None}
    for key in ("tokens", *(key for key in _OPTIONAL if key in metadata)):
        try:
            lists[key] = json.loads(metadata[key])
        except (ValueError, RecursionError) as error:
            raise StudioError(f"expected {key} as a JSON list, got {short(metadata[key])}; save it again") from error
        if lists[key] is None:  # Capture takes no sensitivity for one that was not measured, but no file says so
            raise StudioError(f"expected {key} as a JSON list, got 'null'; save it again")
    return {
        **lists,
        "model": metadata["model"],
        "text": metadata["text"],
        "scale": scale,
        "causal": metadata["causal"] == "true",
    }


def _by_layer(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """The tensors by layer, in order, and by name: q, k, v or what was measured."""
    parts: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = re.fullmatch(r"layers\.(0|[1-9][0-9]{0,5})\.(q|k|v|gradients|rows|projection|stream)", key)
        if match is None:
            raise StudioError(
                f"expected tensors layers.{{L}}.q, .k, .v and, where measured, .gradients, .rows, .projection and "
                f".stream, got {short(key)}; remove what is not listed"
            )
        parts.setdefault(int(match[1]), {})[match[2]] = tensor
    return dict(sorted(parts.items()))


def _layer_minds(number: int, named: dict[str, Tensor]) -> LayerMinds | None:
    """Takes what the model minds of a layer out of its tensors, None where there is nothing of it."""
    found = {name: named.pop(name) for name in _MINDS if name in named}
    if found and (missing := [f"layers.{number}.{name}" for name in _MINDS if name not in found]):
        raise StudioError(f"expected {', '.join(_MINDS)} together, got no {', '.join(missing)}; measure it again")
    return LayerMinds(**found) if found else None


def _layer(number: int, named: dict[str, Tensor]) -> LayerCapture:
    if missing := [f"layers.{number}.{name}" for name in "qkv" if name not in named]:
        raise StudioError(f"expected q, k and v of every layer, got no {', '.join(missing)}; record it again")
    try:
        return LayerCapture(**named)
    except StudioError as error:
        raise StudioError(f"layers.{number}: {error}") from error
