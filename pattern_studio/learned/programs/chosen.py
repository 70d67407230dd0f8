"""chosen: scores of means of blocks and, in the same program, each row's best tiles by a budget."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch

LONGEST = 1024  # tiles of a row, all of whose scores stay in registers
ROWS = 16  # of a program: the fewest that tensor cores multiply
HIDDEN, FREE, PROTECTED = 0, 1, 2  # what a table says of a tile


@triton.jit
def _best(s, rank, wanted, MOST: tl.constexpr):
    """The `wanted` best tiles of each row, protected ones first, equal scores to the lower key. # bool [BM, N]"""
    low: tl.constexpr = -0x7FFFFFFF - 1
    s = tl.where(s != s, -MOST, tl.minimum(tl.maximum(s, -MOST), MOST))
    s = tl.where(s == 0, 0.0, s)  # -0 and 0 are equal
    key = s.to(tl.int32, bitcast=True)
    key = tl.where(key < 0, key ^ 0x7FFFFFFF, key)  # whole numbers in the scores' order
    free, protected = rank == 1, rank == 2
    # A bound between the two is looked for: at least `wanted` tiles reach `least`, fewer or just as many reach `over`.
    over = tl.max(tl.where(free, key, low), 1) + 1
    key = tl.where(protected, 0x7FFFFFFF, tl.where(free, key, low))
    least = tl.min(tl.where(rank > 0, key, 0x7FFFFFFF), 1)
    reach = tl.sum((rank > 0).to(tl.int32), 1)  # tiles at or above `least`
    enough = tl.sum(protected.to(tl.int32), 1) >= wanted
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


@triton.jit(do_not_specialize=["heads", "kv_heads", "rows", "chunks", "keys_at", "t_item", "b_item"])  # fmt: skip
def chosen(
    means, weight, table, budget, out,
    heads, kv_heads, rows, chunks, keys_at, t_item, b_item, tiles,
    D: tl.constexpr, D_PAD: tl.constexpr, DC: tl.constexpr, BM: tl.constexpr, N: tl.constexpr, MOST: tl.constexpr,
    CHOOSE: tl.constexpr,
):  # fmt: skip
    """BM rows with all their tiles. Grid: [batch * heads * chunks], the rows that may see most tiles first."""
    program = tl.program_id(0).to(tl.int64)
    items_heads = tl.num_programs(0) // chunks
    item_head = program % items_heads
    item, head = item_head // heads, item_head % heads
    row = (chunks - 1 - program // items_heads) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    there = (row < rows)[:, None] & (n < tiles)[None, :]
    rank = tl.load(table + item * t_item + row[:, None] * tiles + n[None, :], mask=there, other=0)
    needed = n <= tl.max(tl.max(tl.where(rank > 0, n[None, :], -1), 1), 0)
    kv_group = item * kv_heads + head // (heads // kv_heads)
    s = tl.zeros([BM, N], tl.float32)
    for first in range(0, D_PAD, DC):
        d = first + tl.arange(0, DC)
        a = tl.load(means + (item_head * rows + row)[:, None] * D + d[None, :],
                    mask=(row < rows)[:, None] & (d < D)[None, :], other=0)  # fmt: skip
        k = tl.load(means + (keys_at + kv_group * tiles + n)[None, :] * D + d[:, None],
                    mask=needed[None, :] & (d < D)[:, None], other=0)  # fmt: skip
        s = tl.dot(a, k, s)
    s += tl.load(weight + kv_group * tiles + n, mask=needed, other=0.0)[None, :]
    where_to = out + (item_head * rows + row)[:, None] * tiles + n[None, :]
    if CHOOSE:
        wanted = tl.load(budget + item * b_item + row, mask=row < rows, other=0)
        tl.store(where_to, _best(s, rank, wanted, MOST).to(tl.uint8), mask=there)
    else:
        tl.store(where_to, tl.where(rank > 0, s, -float("inf")), mask=there)


def fits(q: Tensor, tiles: int) -> bool:
    """Whether the program takes rows of so many tiles in q's dtype: those of half precision up to LONGEST."""
    return q.element_size() == 2 and 0 < tiles <= LONGEST


def scores_of_means(means: Tensor, weight: Tensor, shape: tuple[int, int, int], table: Tensor) -> Tensor:
    """float32 [batch, heads, rows, tiles]: `mean of q . mean of k + weight`, -inf where the table says HIDDEN.

    means, weight: those of `means_of_blocks`. shape: batch, heads, kv_heads. table: uint8 [1 or batch, rows, tiles].
    """
    out = torch.empty((*shape[:2], *table.shape[1:]), dtype=torch.float32, device=means.device)
    return _launched(means, weight, shape, table, None, out)


def chosen_of_means(
    means: Tensor, weight: Tensor, shape: tuple[int, int, int], table: Tensor, budget: Tensor
) -> Tensor:
    """bool [batch, heads, rows, tiles]: the `budget` best tiles of each row by these scores, PROTECTED ones first.

    budget: int32 [1 or batch, rows], from the protected tiles up to those that are not HIDDEN. NaN is below all
    scores, equal scores go to the lower key. The scores are not written.
    """
    out = torch.empty((*shape[:2], *table.shape[1:]), dtype=torch.uint8, device=means.device)
    return _launched(means, weight, shape, table, budget, out).view(torch.bool)


def _launched(
    means: Tensor, weight: Tensor, shape: tuple[int, int, int], table: Tensor, budget: Tensor | None, out: Tensor
) -> Tensor:
    (batch, heads, kv_heads), (rows, tiles), dim = shape, table.shape[1:], means.shape[1]
    size, chunks, d_pad = max(16, triton.next_power_of_2(tiles)), triton.cdiv(rows, ROWS), triton.next_power_of_2(dim)
    d_pad = max(16, d_pad)
    launch(
        chosen, batch * heads * chunks,
        (means, weight, table, table if budget is None else budget, out),
        (
            heads, kv_heads, rows, chunks, batch * heads * rows, rows * tiles if len(table) > 1 else 0,
            rows if budget is not None and len(budget) > 1 else 0, tiles,
        ),
        D=dim, D_PAD=d_pad, DC=min(d_pad, max(16, 16384 // size)), BM=ROWS, N=size,
        MOST=torch.finfo(torch.float32).max, CHOOSE=budget is not None, num_warps=max(1, min(8, size // 64)),
    )  # fmt: skip
    return out
