"""The oracle: the token mask first, tiles from it. Readable and O(q_len * kv_len); tests only lean on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import Scope
from ..expr import Pattern
from ..layout import BlockLayout, Runs, TileKind, affordable
from ..problem import Problem, block_shape


def dense_mask(
    pattern: Pattern, problem: Problem, *, block: int | tuple[int, int] = 128, layer: int | None = None
) -> NDArray[np.bool_]:
    """The pattern's token mask, bool [heads, q_len, kv_len], straight from the predicate.

    `block` matters only to patterns with `unit=block`.
    """
    affordable(problem.heads * problem.q_len * problem.kv_len, "token mask")
    scope = Scope(problem.kv_len, problem.doc_ends, block_shape(block))
    i = np.arange(problem.q_len)[:, None] + problem.offset
    j = np.arange(problem.kv_len)[None, :]
    out = np.zeros((problem.heads, problem.q_len, problem.kv_len), bool)
    masks: dict[Pattern, NDArray[np.bool_]] = {}
    for head in range(problem.heads):
        resolved = pattern.resolve(head, layer)
        if resolved not in masks:
            masks[resolved] = resolved.allows(i, j, scope)
        out[head] = masks[resolved]
    return out


def from_mask(mask: NDArray[np.bool_], problem: Problem, block: int | tuple[int, int]) -> BlockLayout:
    """A layout from a token mask, bool [heads, q_len, kv_len]: FULL and BITS tiles only, one group per head."""
    block_q, block_k = block_shape(block)
    heads, q_len, kv_len = mask.shape
    pad = ((0, 0), (0, -q_len % block_q), (0, -kv_len % block_k))
    exists = np.pad(np.ones_like(mask), pad)
    tiles, valid = (
        np.pad(a, pad).reshape(heads, -(-q_len // block_q), block_q, -(-kv_len // block_k), block_k).swapaxes(2, 3)
        if k is None
        else a.reshape(heads, -(-q_len // block_q), block_q, -(-kv_len // block_k), block_k).swapaxes(2, 3)
        for a, k in ((mask, None), (exists, 1))
    )
    some = tiles.any((3, 4))
    full = (tiles == valid).all((3, 4)) & some
    head, row, key = np.nonzero(some)
    kind = np.where(full[head, row, key], TileKind.FULL, TileKind.BITS)
    partial = kind == TileKind.BITS
    packed = np.packbits(tiles[head, row, key][partial].reshape(-1, block_q * block_k), axis=1, bitorder="little")
    bits, which = np.unique(packed, axis=0, return_inverse=True) if len(packed) else (packed, np.zeros(0, int))
    ref = np.zeros(len(head), np.int64)
    ref[partial] = which.reshape(-1)
    line = head * tiles.shape[1] + row
    rows = Runs.from_sorted(heads * tiles.shape[1], line, key, key + 1, kind, ref)
    groups = np.arange(heads, dtype=np.int32)
    return BlockLayout(problem, (block_q, block_k), groups, rows, np.zeros((0, 2), np.int64), bits)
