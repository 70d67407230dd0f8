"""Masks in files, read as hostile: what numpy.save and numpy.savez write, never a pickle."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ..archive import members_of, npy
from ..errors import StudioError

MAX_BYTES = 64 << 20  # of a mask, packed or not: one byte a pair, 8,192 x 8,192 tokens
_ZIP, _NPY = b"PK", b"\x93NUMPY"


def mask_in(source: bytes) -> NDArray[Any]:
    """The array in the bytes of an .npy file, or of an .npz file with one array, as it was saved.

    `read_mask` and `read_block_mask` make a pattern of it and refuse what is no mask. Sizes are checked before anything
    is unpacked or allocated, and nothing is unpickled.

    Raises:
        StudioError: another kind of file, one that is damaged or too large, or more than one array.

    >>> import io, numpy as np
    >>> file = io.BytesIO()
    >>> np.save(file, np.eye(3, dtype=bool))
    >>> mask_in(file.getvalue()).shape
    (3, 3)
    """
    if len(source) > MAX_BYTES:
        raise StudioError(f"expected a mask of at most {MAX_BYTES:,} bytes, got {len(source):,}; save a smaller part")
    if source.startswith(_NPY):
        return npy("mask", source)
    if not source.startswith(_ZIP):
        raise StudioError(
            f"expected a mask as numpy.save or numpy.savez writes it, got a file that begins with {source[:8]!r}; "
            "save the array with numpy.save"
        )
    members = members_of(source, MAX_BYTES)
    if len(members) != 1:
        raise StudioError(
            f"expected an .npz file with one array, got {len(members)}: {', '.join(members)[:80]}; "
            "save the mask by itself with numpy.save"
        )
    ((name, data),) = members.items()
    return npy(name, data)
