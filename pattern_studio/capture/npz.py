"""Captures as .npz files: the arrays and the metadata of `pattern-studio-capture/1`, for numpy.

One array `layers.{L}.q`, `.k` or `.v` [heads, tokens, head_dim], and `.gradients` where they were measured, for each
tensor of the safetensors file, float16, float32 or float64 (numpy has no bfloat16), and `header`, the same metadata as
JSON text in uint8. Members are stored, not compressed: `numpy.savez` writes such files, `numpy.savez_compressed` does
not.
"""

from __future__ import annotations

import os
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pattern_studio.archive import MAX_BYTES, pack, unpack
from pattern_studio.capture.container import reason
from pattern_studio.errors import StudioError

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # how a zip file begins, with members or without
_KINDS = ("float16", "float32", "float64")


def is_npz(source: str | os.PathLike[str] | bytes) -> bool:
    """Whether a file, given as its path or its bytes, begins as a zip file. A path that can't be read does not.

    >>> is_npz(b"PK\\x03\\x04 and so on")
    True
    """
    if isinstance(source, bytes):
        return source[:4] in MAGIC
    try:
        with open(source, "rb") as stream:
            return stream.read(4) in MAGIC
    except (OSError, ValueError):
        return False  # read_container says why


def read_npz(source: str | os.PathLike[str] | bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, on the CPU, and the metadata. Nothing is unpickled, and nothing larger than the file is allocated.

    Raises:
        StudioError: the file can't be read, is no such file, is damaged, or claims sizes that it doesn't have.

    >>> tensors, metadata = read_npz(write_npz({"x": torch.zeros(2, 3)}, {"made": "by hand"}))
    >>> tensors["x"].shape, metadata
    (torch.Size([2, 3]), {'made': 'by hand'})
    """
    if not isinstance(source, bytes):
        try:
            if (size := Path(source).stat().st_size) > MAX_BYTES:
                raise StudioError(f"expected at most {MAX_BYTES} bytes, got {size}; record fewer layers or tokens")
            source = Path(source).read_bytes()
        except OSError as error:
            raise StudioError(f"expected a readable file, got {reason(error)!r}; check the path") from error
    header, arrays = unpack(source)
    if not isinstance(header, dict) or not all(isinstance(value, str) for value in header.values()):
        raise StudioError(
            f"expected a header that maps strings to strings, got {short(header)}; save the capture again"
        )
    return {name: _tensor(name, array) for name, array in arrays.items()}, header


def write_npz(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The .npz file of CPU tensors; equal input gives equal bytes.

    Raises:
        StudioError: a tensor is bfloat16, which numpy does not have.
    """
    for name, tensor in tensors.items():
        if tensor.dtype == torch.bfloat16:
            raise StudioError(
                f"expected float16, float32 or float64 for .npz, got bfloat16 in {name}; save as .safetensors"
            )
    return pack(dict(sorted(metadata.items())), {name: tensor.numpy() for name, tensor in tensors.items()})


def _tensor(name: str, array: NDArray[Any]) -> Tensor:
    if array.dtype.name not in _KINDS or not array.dtype.isnative:
        raise StudioError(
            f"expected array {short(name)} to be {', '.join(_KINDS)}, got {short(str(array.dtype))}; convert it"
        )
    return torch.from_numpy(np.ascontiguousarray(array))
