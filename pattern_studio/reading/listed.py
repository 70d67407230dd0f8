"""The mask as it is: `blocks(...)` at the coarsest block that shows it exactly."""

from __future__ import annotations

from itertools import pairwise
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ..errors import StudioError
from ..expr import Pattern
from ..patterns import PRIMITIVES
from .cells import STEP

LARGEST = 2**16  # tokens of a block
MOST = 2**20  # stretches of blocks that one pattern lists: about 200 MB as Python objects

blocks = PRIMITIVES["blocks"]


def listed(mask: NDArray[np.bool_], cell: tuple[int, int], first: int) -> Pattern:
    """A mask of cells, bool [rows, keys], as blocks of tokens; row 0 of the mask is at token position `first`."""
    rows_change, keys_change = _changes(mask)
    tall, wide = _step(rows_change, len(mask), cell[0]), _step(keys_change, mask.shape[1], cell[1])
    coarse = np.ascontiguousarray(mask[::tall, ::wide])
    edges = np.diff(np.pad(coarse, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    count = int((edges > 0).sum())
    if count > MOST:
        raise StudioError(
            f"this mask has no name in the language, and listing it takes {count:,} stretches of blocks, more than "
            f"the {MOST:,} that are kept; read fewer rows, or keep it as a layout: from_mask() and lower() need no text"
        )
    row, start = np.nonzero(edges > 0)
    stop = np.nonzero(edges < 0)[1]
    spans = [range(a, b) for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    cut = np.searchsorted(row, np.arange(len(coarse) + 1)).tolist()
    rows = tuple(tuple(spans[a:b]) for a, b in pairwise(cut))
    pattern = blocks((tall * cell[0], wide * cell[1]), rows)
    # Blocks count from position 0; a shift of the transpose moves the rows to where they stand.
    return (pattern.T >> first).T if first else pattern


def _changes(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that differ from the row before, and keys that differ from the key before."""
    rows, keys = np.zeros(len(mask), bool), np.zeros(mask.shape[1], bool)
    step = max(1, STEP // max(mask.shape[1], 1))
    for low in range(0, len(mask), step):
        part = mask[low : low + step]
        keys[1:] |= (part[:, 1:] != part[:, :-1]).any(0)
        above = mask[max(low - 1, 0) : low + len(part) - 1]
        rows[low + len(part) - len(above) : low + len(part)] = (part[len(part) - len(above) :] != above).any(1)
    return np.flatnonzero(rows), np.flatnonzero(keys)


def _step(changes: NDArray[np.int64], size: int, cell: int) -> int:
    """Cells that a block can span: a divisor of every place of change, as large as a block may be."""
    most = LARGEST // cell
    step = gcd(*changes.tolist())
    if not step:
        return max(1, min(size, most))
    return next(d for d in range(min(step, most), 0, -1) if step % d == 0)
