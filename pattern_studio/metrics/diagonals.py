"""Allowed pairs by diagonal, counted from a layout's runs: what distances are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..layout import BlockLayout, TileKind

CELLS = 2**22  # of the temporaries that bit masks need, 32 MiB each


def diagonal_counts(layout: BlockLayout) -> NDArray[np.int64]:
    """Allowed pairs by `j - row`, int64 [groups, q_len + kv_len - 1]: entry `c` is where `j - row = c - (q_len - 1)`.

    `row` is a query's index, not its position: `j - i` is smaller by the problem's offset. Time grows
    with runs and tokens, and for masks of bits with the different places that they stand at.

    >>> from pattern_studio import causal, lower, window
    >>> diagonal_counts(lower(causal & window(1, 0), q_len=4, block=2)).tolist()
    [[0, 0, 3, 4, 0, 0, 0]]
    """
    q_len, kv_len = layout.problem.q_len, layout.problem.kv_len
    out = np.zeros((layout.groups, max(q_len + kv_len - 1, 0)), np.int64)
    for group in range(layout.groups if out.size else 0):
        out[group] = _group_counts(layout, group)
    return out


def _group_counts(layout: BlockLayout, group: int) -> NDArray[np.int64]:
    block_q, block_k = layout.block
    q_len, kv_len, rows = layout.problem.q_len, layout.problem.kv_len, layout.rows
    span = slice(rows.indptr[group * layout.q_blocks], rows.indptr[(group + 1) * layout.q_blocks])
    kind, ref = rows.kind[span], rows.ref[span]
    top = rows.line[span] % layout.q_blocks * block_q
    bottom = np.minimum(top + block_q, q_len)
    left = rows.start[span].astype(np.int64) * block_k
    right = np.minimum(left + rows.length[span].astype(np.int64) * block_k, kv_len)
    distance = np.arange(1 - q_len, kv_len) - layout.problem.offset  # j - i of each entry

    def rectangles(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        # The pairs of a rectangle by diagonal are a trapezoid, and its second differences four ones.
        bends = np.zeros(q_len + kv_len + 1, np.int64)
        for corner, sign in ((left - bottom, 1), (left - top, -1), (right - bottom, -1), (right - top, 1)):
            np.add.at(bends, corner[chosen] + q_len, sign)
        return bends.cumsum().cumsum()[: len(distance)]

    counts = rectangles(kind == TileKind.FULL)
    for band in np.unique(ref[kind == TileKind.BAND]):
        low, high = layout.bands[band]
        inside = (distance >= low) & (distance <= high)
        counts += np.where(inside, rectangles((kind == TileKind.BAND) & (ref == band)), 0)
    bits = kind == TileKind.BITS
    if bits.any():
        length = rows.length[span][bits].astype(np.int64)
        step = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        place = np.repeat((left - top)[bits], length) + step * block_k
        counts += _bits(layout, np.stack([np.repeat(ref[bits].astype(np.int64), length), place], 1))
    return counts


def _bits(layout: BlockLayout, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same of tiles with masks: [tiles, 2] of the mask and `key - row` of the first corner."""
    block_q, block_k = layout.block
    q_len, kv_len = layout.problem.q_len, layout.problem.kv_len
    width = block_q + block_k - 1
    padded = np.zeros(q_len + kv_len - 1 + 2 * width, np.int64)  # ragged tiles reach over the ends, with nothing there
    places, often = np.unique(tiles, axis=0, return_counts=True)
    for part in np.array_split(np.arange(len(places)), len(places) * block_q * width // CELLS + 1):
        masks, which = np.unique(places[part, 0], return_inverse=True)
        first = places[part, 1] - (block_q - 1) + q_len - 1 + width
        profile = _profiles(layout, masks)[which] * often[part, None]
        np.add.at(padded, first[:, None] + np.arange(width), profile)
    return padded[width : width + q_len + kv_len - 1]


def _profiles(layout: BlockLayout, masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Set bits of each mask by `key - row`, [masks, block_q + block_k - 1], from `1 - block_q` on."""
    block_q, block_k = layout.block
    flat = np.unpackbits(layout.bits[masks], axis=1, count=block_q * block_k, bitorder="little")
    # Row r moves left by r where lines are read back one cell wider than they were written.
    width = block_q + block_k - 1
    line = np.zeros((len(masks), block_q * (width + 1)), np.uint8)
    line[:, : block_q * width].reshape(-1, block_q, width)[..., block_q - 1 :] = flat.reshape(-1, block_q, block_k)
    return line.reshape(-1, block_q, width + 1).sum(1, dtype=np.int64)[:, :width]
