"""crossed: masses of tiles from the lines that cross them, in one pass."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportArgumentType=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _up_to(twice, at, count, slope):
    """Running sum of running sums below a distance, going on in a straight line. # float64"""
    inside = tl.minimum(tl.maximum(at, 0), count - 1)
    return tl.load(twice + inside) + tl.maximum(at - (count - 1), 0).to(tl.float64) * slope


@triton.jit(
    do_not_specialize=["heads", "blocks", "tiles", "keys", "count", "first", "row_stride", "end_stride", "chunks"]
)
def crossed(column, twice, low, high, ends, out, heads, blocks, tiles, keys, count, first, row_stride, end_stride,
            chunks, faint, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr, N: tl.constexpr):  # fmt: skip
    """N tiles of one query block. Grid: [batch * heads * query blocks * chunks]."""
    program = tl.program_id(0).to(tl.int64)
    chunk, row = (program % chunks).to(tl.int32), program // chunks
    block, item_head = (row % blocks).to(tl.int32), row // blocks
    item = item_head // heads
    begin, last = tl.load(low + item * row_stride + block), tl.load(high + item * row_stride + block)
    end = tl.load(ends + item * end_stride)
    n = chunk * N + tl.arange(0, N)
    start = tl.minimum(n, tiles - 1) * BLOCK_K
    stop = tl.maximum(tl.minimum(start + BLOCK_K, end), start)
    column += item_head * (keys + 1)
    twice += item_head * count
    vertical = tl.load(column + stop) - tl.load(column + start)
    slope = tl.load(twice + count - 1) - tl.load(twice + count - 2)
    near, far = begin - first + 1, last + 1 - first + 1
    slash = _up_to(twice, far - start, count, slope) - _up_to(twice, near - start, count, slope)
    slash -= _up_to(twice, far - stop, count, slope) - _up_to(twice, near - stop, count, slope)
    mass = vertical * tl.maximum(last - begin + 1, 0).to(tl.float64) + slash
    seen = (begin <= last) & (start < end)
    if CAUSAL:
        seen &= start <= last
    score = tl.log(tl.maximum(mass.to(tl.float32), faint))
    tl.store(out + row * tiles + n, tl.where(seen, score, -float("inf")), mask=n < tiles)


def masses_crossed(
    column: Tensor, twice: Tensor, rows: tuple[Tensor, Tensor], ends: Tensor, block_k: int, first: int, causal: bool,
    faint: float,
) -> Tensor:  # fmt: skip
    """float32 [batch, heads, q_blocks, kv_blocks]: the logarithm of each tile's mass, -inf where it is not visible.

    column: float64 [batch, heads, kv_len + 1], running sums of verticals. twice: float64 [batch, heads, distances +
    2], running sums of running sums of slashes from distance `first` on. rows: first and last position of each query
    block, whole numbers [1 or batch, q_blocks]. ends: whole numbers [1 or batch], from where on keys are padding.
    """
    (batch, heads), keys, (low, high) = column.shape[:2], column.shape[-1] - 1, rows
    blocks, tiles = low.shape[1], -(-keys // block_k)
    out = torch.empty((batch, heads, blocks, tiles), dtype=torch.float32, device=column.device)
    if not out.numel():
        return out
    low, high = (x.int().expand(max(len(low), len(high)), -1).contiguous() for x in rows)
    size = min(1024, triton.next_power_of_2(tiles))
    chunks = triton.cdiv(tiles, size)
    with torch.cuda.device_of(column):
        crossed[(batch * heads * blocks * chunks,)](
            column.contiguous(), twice.contiguous(), low, high, ends.int(), out, heads, blocks, tiles, keys,
            twice.shape[-1], first, blocks if len(low) > 1 else 0, 1 if len(ends) > 1 else 0, chunks, faint,
            BLOCK_K=block_k, CAUSAL=causal, N=size,
        )  # fmt: skip
    return out
