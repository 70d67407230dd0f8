"""best: each row's best tiles by a budget, exactly, without sorting."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch, power_of_two


@triton.jit(do_not_specialize=["heads", "rows", "tiles", "v_item", "v_head", "k_item", "k_head", "b_item", "b_head"])
def best(scores, visible, kept, budget, out, heads, rows, tiles, v_item, v_head, k_item, k_head, b_item, b_head,
         N: tl.constexpr, MOST: tl.constexpr):  # fmt: skip
    """One row. Grid: [batch * heads * rows]."""
    program = tl.program_id(0).to(tl.int64)
    row, head, item = program % rows, program // rows % heads, program // rows // heads
    n = tl.arange(0, N)
    there = n < tiles
    seen = tl.load(visible + item * v_item + head * v_head + row * tiles + n, mask=there, other=0) != 0
    protected = tl.load(kept + item * k_item + head * k_head + row * tiles + n, mask=there, other=0) != 0
    wanted = tl.load(budget + item * b_item + head * b_head + row)
    x = tl.load(scores + program * tiles + n, mask=there, other=0.0).to(tl.float32)
    x = tl.where(x != x, -MOST, tl.minimum(tl.maximum(x, -MOST), MOST))
    x = tl.where(x == 0, 0.0, x)  # -0 and 0 are equal
    key = x.to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)  # whole numbers in the scores' order
    key = tl.where(protected, 0x7FFFFFFF, key)
    # The largest bound that at least `wanted` tiles reach is the score of the last one taken. Bit by bit.
    positive = tl.sum((seen & (key >= 0)).to(tl.int32), 0) >= wanted
    bound = tl.where(positive, 0, -0x7FFFFFFF - 1).to(tl.int32)
    for n_bit in range(0, 31):
        higher = bound | (1 << (30 - n_bit))
        bound = tl.where(tl.sum((seen & (key >= higher)).to(tl.int32), 0) >= wanted, higher, bound)
    above = seen & (key > bound)
    equal = seen & (key == bound)
    left = wanted - tl.sum(above.to(tl.int32), 0)
    taken = above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= left))  # equal scores: the lower key first
    tl.store(out + program * tiles + n, taken.to(tl.uint8), mask=there)


def best_tiles(scores: Tensor, visible: Tensor, kept: Tensor, budget: Tensor) -> Tensor:
    """bool [batch, heads, rows, tiles]: the `budget` best visible tiles of each row, `kept` ones before all others.

    scores: any floating dtype, NaN below all. visible, kept: bool [1 or batch, 1 or heads, rows, tiles], kept ones
    visible. budget: whole numbers [1 or batch, 1 or heads, rows], from the kept tiles up to the visible ones. Equal
    scores go to the lower key. Reads the scores once and writes the mask.
    """
    batch, heads, rows, tiles = scores.shape
    out = torch.empty(scores.shape, dtype=torch.uint8, device=scores.device)
    tables = [x.contiguous() for x in (visible.view(torch.uint8), kept.view(torch.uint8), budget.int())]
    strides = [s if n > 1 else 0 for x in tables for n, s in zip(x.shape[:2], x.stride(), strict=False)]
    size = power_of_two(tiles)
    launch(
        best, batch * heads * rows, (scores.contiguous(), *tables, out), (heads, rows, tiles, *strides),
        N=size, MOST=torch.finfo(torch.float32).max, num_warps=min(16, max(1, size // 1024)),
    )  # fmt: skip
    return out.view(torch.bool)
