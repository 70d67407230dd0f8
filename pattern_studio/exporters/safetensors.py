"""safetensors: our own file with the lowered layout, for any language that reads safetensors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..layout import BlockLayout
from ._bundle import MAX_BYTES, MAX_HEADER, parsed
from ._frame import Request, Target, Written, readable
from ._native import ARRAYS, arrays, layout_of, sealed

_CODES = {"u1": "U8", "i4": "I32", "i8": "I64"}
_PLAIN = ("schema", "pattern", "hash", "layout")  # metadata kept as they are; the others are JSON text


def write(request: Request) -> Written:
    """The arrays of `npz`, and the header's fields as string metadata, as one safetensors file. Exact.

    Shapes and dtypes as in BlockLayout: head_group I32 [heads]; indptr I64; start, length, ref I32; kind U8; bands I64
    [bands, 2]; bits U8 [masks, bytes]. `pattern`, `hash`, `problem`, `block`, `layer` are in the metadata.

    Source: https://huggingface.co/docs/safetensors.

    >>> import pattern_studio as ps
    >>> from pattern_studio.exporters import export, read
    >>> file = export(ps.causal, ps.Problem(256), 128, to="safetensors")
    >>> read(file.data) == ps.lower(ps.causal, q_len=256, block=128)
    True
    """
    parts = arrays(request.layout)
    fields = sealed(request, "safetensors", parts)
    metadata = {name: value if name in _PLAIN else json.dumps(value) for name, value in fields.items()}
    return Written(_pack(metadata, parts))


def read(source: bytes) -> BlockLayout:
    """The very same layout, or a StudioError that says what is wrong with the file."""
    metadata, parts = _unpack(readable(source, MAX_BYTES))
    return layout_of(fields_of(metadata), parts, "safetensors")


def metadata_of(source: bytes) -> dict[str, Any]:
    """The header's fields, without the arrays."""
    return fields_of(_stated(readable(source, MAX_BYTES))[0])


def fields_of(metadata: dict[str, str]) -> dict[str, Any]:
    """The header's fields from string metadata."""
    return {name: text if name in _PLAIN else parsed(text.encode()) for name, text in metadata.items()}


def _pack(metadata: Mapping[str, str], parts: Mapping[str, NDArray[Any]]) -> bytes:
    # Widest items first keeps every array aligned to its item size.
    names = sorted(parts, key=lambda name: -parts[name].itemsize)
    entries, begin = {}, 0
    for name in names:
        end = begin + parts[name].nbytes
        code = _CODES[parts[name].dtype.str[1:]]
        entries[name] = {"dtype": code, "shape": list(parts[name].shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps({"__metadata__": dict(metadata), **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(parts[name].tobytes() for name in names)])


def _stated(source: bytes) -> tuple[dict[str, str], dict[str, Any], int]:
    """Metadata, tensor entries and the place where the data begins."""
    size = int.from_bytes(source[:8], "little")
    if len(source) < 8 or size > min(MAX_HEADER, len(source) - 8):
        raise StudioError(
            f"expected a safetensors file, got {len(source)} bytes that can't hold the header they announce: "
            "it is truncated or of another type; get it again"
        )
    entries = parsed(source[8 : 8 + size])
    metadata = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise StudioError("expected a safetensors header with metadata of strings; export the file again")
    return metadata, entries, 8 + size


def _unpack(source: bytes) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    metadata, entries, base = _stated(source)
    if entries.keys() != ARRAYS.keys():
        odd = ", ".join(sorted(entries.keys() ^ ARRAYS.keys()))[:200]
        raise StudioError(f"expected the tensors {', '.join(ARRAYS)}; missing or unknown: {odd}")
    parts, spans = {}, []
    for name, (dtype, dimensions) in ARRAYS.items():
        match entries[name]:
            case {"dtype": str(code), "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
                sound = code == _CODES[dtype.str[1:]] and len(shape) == dimensions
                sound = sound and all(type(n) is int and 0 <= n < 2**40 for n in [*shape, begin, end])
            case _:
                sound, shape, begin, end = False, [], 0, 0
        if not sound:
            expected = f"{dimensions} dimension(s) of {_CODES[dtype.str[1:]]}"
            raise StudioError(f"expected tensor {name} with {expected} and its place, got {short(entries[name])}")
        if end > len(source) - base or math.prod(shape) * dtype.itemsize != end - begin:
            raise StudioError(f"tensor {name} of shape {shape} is not where the header says: the file is truncated")
        spans.append((begin, end))
        parts[name] = np.frombuffer(source[base + begin : base + end], dtype).reshape(shape).copy()
    spans.sort()
    if [a for a, _ in spans] != [0, *(b for _, b in spans[:-1])] or spans[-1][1] != len(source) - base:
        raise StudioError("the tensors do not fill the file one after another: it is damaged; export it again")
    return metadata, parts


TARGET = Target(
    name="safetensors",
    about="the lowered layout as tensors: key runs, bands, bit masks",
    consumer="Pattern Studio, schema pattern-studio/safetensors version 1",
    suffix=".safetensors",
    media_type="application/octet-stream",
    write=write,
    proof="run",
    read=read,
)
