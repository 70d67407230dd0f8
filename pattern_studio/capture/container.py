"""Safetensors bytes read as hostile: every size is checked against the file before anything is allocated.

A safetensors file is 8 bytes of header length, a JSON header (tensor name -> dtype, shape and byte range, and a map of
string metadata), then the data. Source: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import io
import json
import math
import os
from reprlib import repr as short  # what a hostile file says may be megabytes long
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
from torch import Tensor

from pattern_studio.errors import StudioError

MAX_FILE_BYTES = 4 << 30  # a file is read whole, and reading takes twice its size for a moment
MAX_HEADER_BYTES = 16 << 20  # holds the token strings of a million positions
_ITEM_BYTES = {"F16": 2, "BF16": 2, "F32": 4, "F64": 8}


def read_container(source: str | os.PathLike[str] | bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file, given as a path or as its bytes.

    Tensors are float16, bfloat16, float32 or float64, on the CPU. Nothing is unpickled or run.

    Raises:
        StudioError: the file can't be read, is no safetensors file, is truncated, or claims sizes that it doesn't have.

    Example:
        >>> import torch
        >>> tensors, metadata = read_container(write_container({"x": torch.zeros(2, 3)}, {"made": "by hand"}))
        >>> tensors["x"].shape, metadata
        (torch.Size([2, 3]), {'made': 'by hand'})
    """
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), len(source))
    try:
        stream = open(source, "rb")  # noqa: SIM115  (closed below; only the opening may fail for the path's sake)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise StudioError(f"expected a readable file, got {reason(error)!r}; check the path") from error
    with stream:
        return _read(stream, os.fstat(stream.fileno()).st_size)


def write_container(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The safetensors file of contiguous CPU tensors that share no memory; equal input gives equal bytes.

    Example:
        >>> import torch
        >>> write_container({"x": torch.zeros(1)}, {"b": "2", "a": "1"})[8:41]
        b'{"__metadata__":{"a":"1","b":"2"}'
    """
    data = safetensors.torch.save(tensors, metadata)
    # The library orders metadata differently in every process. Offsets count from the end of the header, so the header
    # can be replaced by a sorted one.
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[end:]


def reason(error: Exception) -> str:
    """What the system said, without the path that an OSError repeats."""
    return getattr(error, "strerror", None) or str(error)


def _read(stream: BinaryIO, size: int) -> tuple[dict[str, Tensor], dict[str, str]]:
    if size > MAX_FILE_BYTES:
        raise StudioError(f"expected at most {MAX_FILE_BYTES} bytes, got {size}; record fewer layers or tokens")
    prefix = stream.read(8)
    header_bytes = int.from_bytes(prefix, "little")
    if size < 8 or header_bytes > size - 8:
        raise StudioError(
            f"expected a safetensors file, got {size} bytes that can't hold the header they announce: the file is "
            "truncated or of another type; get it again"
        )
    if header_bytes > MAX_HEADER_BYTES:
        raise StudioError(
            f"expected a header of at most {MAX_HEADER_BYTES} bytes, got {header_bytes}; record fewer tokens"
        )
    header = stream.read(header_bytes)
    try:
        parsed = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise StudioError(
            "expected a safetensors file, got a header that is not JSON: the file is damaged or of another type; "
            "get it again"
        ) from error
    metadata = _checked_metadata(parsed)
    for name, entry in parsed.items():
        _check_tensor(name, entry, data_bytes=size - 8 - header_bytes)
    try:
        return safetensors.torch.load(prefix + header + stream.read()), metadata
    except (safetensors.SafetensorError, ValueError, RuntimeError) as error:
        raise StudioError(f"expected a safetensors file, got a damaged one ({error}); get it again") from error


def _checked_metadata(header: Any) -> dict[str, str]:
    """The metadata, taken out of the header so that only tensors are left in it."""
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise StudioError(
            "expected a safetensors header, a JSON object whose __metadata__ maps strings to strings, got other JSON; "
            "get the file again"
        )
    return metadata


def _check_tensor(name: str, entry: Any, data_bytes: int) -> None:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [begin, end]} if len(shape) <= 8 and all(
            type(size) is int and 0 <= size < 2**63 for size in [*shape, begin, end]
        ):
            pass
        case _:
            raise StudioError(
                f"expected tensor {short(name)} to have a dtype, a shape and two offsets, got {short(entry)}; "
                "get the file again"
            )
    if dtype not in _ITEM_BYTES:
        raise StudioError(
            f"expected tensor {short(name)} to be of dtype {', '.join(_ITEM_BYTES)}, got {short(dtype)}; convert it"
        )
    needed = math.prod(shape) * _ITEM_BYTES[dtype]
    if needed != end - begin:
        raise StudioError(
            f"tensor {short(name)} of shape {shape} and dtype {dtype} takes {needed} bytes, but the header gives it "
            f"{end - begin}; get the file again"
        )
    if end > data_bytes:
        raise StudioError(
            f"tensor {short(name)} ends at byte {end}, but the file has {data_bytes} bytes of data: it is truncated; "
            "get it again"
        )
