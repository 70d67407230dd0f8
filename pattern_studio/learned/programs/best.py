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

LOW, MOST = -(2**31), torch.finfo(torch.float32).max  # a key below all, the largest score


@triton.jit
def best_of_rows(s, rank, wanted, MOST: tl.constexpr, LOW: tl.constexpr):
    """The `wanted` best tiles of each row, protected ones first, equal scores to the lower key. # bool [BM, N]

    rank: 0 hidden, 1 free, 2 protected. # [BM, N]; wanted: [BM], from the protected tiles up to those not hidden
    """
    s = tl.where(s != s, -MOST, tl.minimum(tl.maximum(s, -MOST), MOST))
    s = tl.where(s == 0, 0.0, s)  # -0 and 0 are equal
    key = s.to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)  # whole numbers in the scores' order
    key = tl.where(rank == 2, 0x7FFFFFFF, tl.where(rank == 1, key, LOW))
    # A bound between the two is looked for: at least `wanted` tiles reach `least`, fewer or just as many reach `over`.
    over = tl.max(tl.where(key == 0x7FFFFFFF, LOW, key), 1) + 1
    least = tl.min(tl.where(key == LOW, 0x7FFFFFFF, key), 1)
    reach = tl.sum((key > LOW).to(tl.int32), 1)  # tiles at or above `least`
    enough = tl.sum((key == 0x7FFFFFFF).to(tl.int32), 1) >= wanted  # with protected ones alone
    least, reach = tl.where(enough, over, least), tl.where(enough, wanted, reach)
    unsure = tl.max(((reach > wanted) & (least < over - 1)).to(tl.int32), 0)
    while unsure > 0:  # halves the distance for all rows; ends early where a bound parts `wanted` tiles from the rest
        middle = (least >> 1) + (over >> 1) + (least & over & 1)
        count = tl.sum((key >= middle[:, None]).to(tl.int32), 1)
        enough = count >= wanted
        least, reach = tl.where(enough, middle, least), tl.where(enough, count, reach)
        over = tl.where(enough, over, middle)
        unsure = tl.max(((reach > wanted) & (least < over - 1)).to(tl.int32), 0)
    taken = key >= least[:, None]
    if tl.max((reach > wanted).to(tl.int32), 0) > 0:  # scores that equal the last one taken: the lower key first
        above, equal = key > least[:, None], key == least[:, None]
        left = wanted - tl.sum(above.to(tl.int32), 1)
        taken = above | (equal & (tl.cumsum(equal.to(tl.int32), 1) <= left[:, None]))
    return taken


@triton.jit(do_not_specialize=["heads", "rows", "tiles", "v_item", "v_head", "k_item", "k_head", "b_item", "b_head"])
def best(scores, visible, kept, budget, out, heads, rows, tiles, v_item, v_head, k_item, k_head, b_item, b_head,
         N: tl.constexpr, MOST: tl.constexpr, LOW: tl.constexpr):  # fmt: skip
    """One row. Grid: [batch * heads * rows]."""
    program = tl.program_id(0).to(tl.int64)
    row, head, item = program % rows, program // rows % heads, program // rows // heads
    n = tl.arange(0, N)
    there = n < tiles
    seen = tl.load(visible + item * v_item + head * v_head + row * tiles + n, mask=there, other=0) != 0
    protected = tl.load(kept + item * k_item + head * k_head + row * tiles + n, mask=there, other=0) != 0
    wanted = tl.load(budget + item * b_item + head * b_head + row)
    x = tl.load(scores + program * tiles + n, mask=there, other=0.0).to(tl.float32)
    rank = tl.where(seen, tl.where(protected, 2, 1), 0)
    # As a table of one row, whose reductions are those of many rows.
    taken = best_of_rows(x[None, :], rank[None, :], wanted + tl.zeros([1], tl.int32), MOST, LOW)
    where_to = out + program * tiles + n
    tl.store(where_to[None, :], taken.to(tl.uint8), mask=there[None, :])


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
        N=size, MOST=MOST, LOW=LOW, num_warps=min(16, max(1, size // 1024)),
    )  # fmt: skip
    return out.view(torch.bool)
