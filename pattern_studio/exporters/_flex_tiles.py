"""A layout's tiles as FlexAttention wants them: one code per tile, which says full, partial, and how to decide a pair.

Read from torch 2.13 (torch/nn/attention/flex_attention.py and its Triton and C++ templates):

- Tiles in neither list of a BlockMask are skipped. Full tiles never meet the mask_mod, so the two lists must be
disjoint,
  and without a mask_mod partial tiles would count as full.
- torch itself lists ragged last tiles as partial, never as full: its kernels are only tried that way, so are ours.
- The kernels' own tiles must divide BLOCK_SIZE. They are powers of two up to 128.
- Where q_len and kv_len are multiples of 128 the kernels skip all bounds checks, so a block beyond 128 that does not
  divide the length would read past its end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layout import UNBOUNDED, BlockLayout, Runs, TileKind

NATIVE = 128  # the block size that every kernel and head dimension takes without kernel_options
SMALL = (16, 32, 64, 128)
RULE = "blocks of 16, 32, 64, 128 or a multiple of 128 that divides the length"
SKIPPED, FULL, PARTIAL = 0, 1, 2  # codes; every code from PARTIAL on is a partial tile


def fits(size: int, length: int) -> bool:
    """Whether FlexAttention takes a block side of this size for this length."""
    return size in SMALL or (size % NATIVE == 0 and length % size == 0)


def codes(layout: BlockLayout, merged: bool = False) -> Runs:
    """The active tiles as runs whose `ref` is their code; `merged` gives all partial tiles the code PARTIAL.

    Code PARTIAL is a ragged tile without forbidden pairs, then follow the bands, then the bit masks.
    """
    line, start, stop, kind, ref = _pieces(layout)
    others = np.where(kind == TileKind.BAND, 3 + ref, 3 + len(layout.bands) + ref)
    code = np.where(kind == TileKind.FULL, FULL, PARTIAL if merged else np.where(kind < 0, PARTIAL, others))
    return Runs.from_sorted(layout.groups * layout.q_blocks, line, start, stop, np.ones(len(code)), code)


def code_table(layout: BlockLayout) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """What each code means: a pair is allowed where `lo <= kv_idx - q_idx <= hi` and the mask has it.

    Returns lo and hi, int32 [codes], on indices (not positions), and the mask's place, int32 [codes]: 0 is the mask
    that allows all, `m + 1` the layout's mask `m`.
    """
    problem, bands, masks = layout.problem, layout.bands, len(layout.bits)
    free = (-UNBOUNDED, UNBOUNDED)
    ends = np.concatenate([[free, free, free], bands, np.tile(free, (masks, 1))])
    ends = np.clip(ends + problem.offset, -problem.q_len, problem.kv_len)  # no difference of indices lies outside
    ends[SKIPPED] = 1, 0
    place = np.concatenate([np.zeros(3 + len(bands), np.int64), np.arange(1, masks + 1)])
    return ends[:, 0].astype(np.int32), ends[:, 1].astype(np.int32), place.astype(np.int32)


def _pieces(layout: BlockLayout) -> tuple[NDArray[Any], ...]:
    """Line, first and end tile, kind and ref of every run; ragged full tiles are cut off and get the kind -1."""
    rows, (block_q, block_k) = layout.rows, layout.block
    line, start, kind, ref = rows.line, rows.start.astype(np.int64), rows.kind.astype(np.int64), rows.ref
    stop = start + rows.length
    if layout.problem.q_len % block_q:
        kind = np.where((kind == TileKind.FULL) & (line % layout.q_blocks == layout.q_blocks - 1), -1, kind)
    if layout.problem.kv_len % block_k:
        cut = np.flatnonzero((kind == TileKind.FULL) & (stop == layout.kv_blocks))
        line, ref = np.r_[line, line[cut]], np.r_[ref, ref[cut]]
        kind, start = np.r_[kind, np.full(len(cut), -1)], np.r_[start, stop[cut] - 1]
        stop = np.r_[stop, stop[cut]]
        stop[cut] -= 1
    order = np.lexsort((start, line))
    order = order[(start < stop)[order]]
    return tuple(part[order] for part in (line, start, stop, kind, ref))
