"""chosen: scores of means of blocks and, in the same program, each row's best tiles by a budget."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .best import LOW, MOST, best_of_rows
from .launch import launch, power_of_two

LONGEST = 1024  # tiles of a row, all of whose scores stay in registers
ROWS = 16  # of a program: the fewest that tensor cores multiply
PART = 8192  # elements of k's means that a step of the product holds in shared memory; three steps are in flight
PER_WARP = 64  # tiles of a row for each warp: 32 scores a thread, so that four programs fit at 256 tiles, two at 512
HIDDEN, FREE, PROTECTED = 0, 1, 2  # what a table says of a tile


@triton.jit(do_not_specialize=["heads", "kv_heads", "rows", "chunks", "keys_at", "t_item", "e_item",
                               "b_item"])  # fmt: skip
def chosen(
    means, weight, table, ends, budget, out,
    heads, kv_heads, rows, chunks, keys_at, t_item, e_item, b_item, tiles,
    D: tl.constexpr, D_PAD: tl.constexpr, DC: tl.constexpr, BM: tl.constexpr, N: tl.constexpr, MOST: tl.constexpr,
    LOW: tl.constexpr, CHOOSE: tl.constexpr,
):  # fmt: skip
    """BM rows with all their tiles. Grid: [batch * heads * chunks], the rows that may see most tiles first."""
    program = tl.program_id(0).to(tl.int64)
    items_heads = tl.num_programs(0) // chunks
    item_head = program % items_heads
    item, head = item_head // heads, item_head % heads
    row = (chunks - 1 - program // items_heads) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    there = (row < rows)[:, None] & (n < tiles)[None, :]
    needed = n < tl.max(tl.load(ends + item * e_item + row, mask=row < rows, other=0), 0)
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
    rank = tl.load(table + item * t_item + row[:, None] * tiles + n[None, :], mask=there, other=0)
    where_to = out + (item_head * rows + row)[:, None] * tiles + n[None, :]
    if CHOOSE:
        wanted = tl.load(budget + item * b_item + row, mask=row < rows, other=0)
        tl.store(where_to, best_of_rows(s, rank, wanted, MOST, LOW).to(tl.uint8), mask=there)
    else:
        tl.store(where_to, tl.where(rank > 0, s, -float("inf")), mask=there)


def fits(q: Tensor, tiles: int) -> bool:
    """Whether the program takes rows of so many tiles in q's dtype: those of half precision up to LONGEST."""
    return q.element_size() == 2 and 0 < tiles <= LONGEST


class Rows(NamedTuple):
    """What each row may choose from: tables of one item for all, or of each item."""

    table: Tensor  # uint8 [1 or batch, rows, tiles]: HIDDEN, FREE, PROTECTED
    ends: Tensor  # int32 [1 or batch, rows]: one past a row's last tile that is not HIDDEN
    budget: Tensor | None = None  # int32 [1 or batch, rows]: from a row's PROTECTED tiles up to those not HIDDEN

    @classmethod
    def of(cls, visible: Tensor, kept: Tensor | None = None, budget: Tensor | None = None) -> Rows:
        """Of bool [1 or batch, rows, tiles], kept ones visible, and whole numbers [1 or batch, rows]."""
        number = torch.arange(1, visible.shape[-1] + 1, device=visible.device, dtype=torch.int32)
        table = visible.to(torch.uint8)
        return cls(
            (table if kept is None else table + kept).contiguous(),
            (visible * number).amax(-1),
            None if budget is None else budget.int().contiguous(),
        )


def scores_of_means(means: Tensor, weight: Tensor, heads: tuple[int, int, int], rows: Rows) -> Tensor:
    """float32 [batch, heads, rows, tiles]: `mean of q . mean of k + weight`, -inf on what is HIDDEN.

    means, weight: those of `means_of_blocks`. heads: batch, heads, kv_heads.
    """
    out = torch.empty((*heads[:2], *rows.table.shape[1:]), dtype=torch.float32, device=means.device)
    return _launched(means, weight, heads, rows, out)


def chosen_of_means(means: Tensor, weight: Tensor, heads: tuple[int, int, int], rows: Rows) -> Tensor:
    """bool [batch, heads, rows, tiles]: each row's `budget` best tiles by these scores, PROTECTED ones first.

    NaN is below all scores, equal scores go to the lower key. The scores are not written.
    """
    assert rows.budget is not None
    out = torch.empty((*heads[:2], *rows.table.shape[1:]), dtype=torch.uint8, device=means.device)
    return _launched(means, weight, heads, rows, out).view(torch.bool)


def _launched(means: Tensor, weight: Tensor, heads: tuple[int, int, int], rows: Rows, out: Tensor) -> Tensor:
    (batch, q_heads, kv_heads), (lines, tiles), dim = heads, rows.table.shape[1:], means.shape[1]
    choose = out.dtype == torch.uint8
    bounds = rows.budget if choose and rows.budget is not None else rows.ends
    size, chunks = max(16, power_of_two(tiles)), -(-lines // ROWS)
    d_pad = max(16, power_of_two(dim))
    launch(
        chosen, batch * q_heads * chunks,
        (means, weight, rows.table, rows.ends, bounds, out),
        (
            q_heads, kv_heads, lines, chunks, batch * q_heads * lines, *(0 if len(x) == 1 else x[0].numel()
            for x in (rows.table, rows.ends, bounds)), tiles,
        ),
        D=dim, D_PAD=d_pad, DC=min(d_pad, max(16, PART // size)), BM=ROWS, N=size,
        MOST=MOST, LOW=LOW, CHOOSE=choose, num_warps=max(1, min(16, size // PER_WARP)),
        num_stages=3,
    )  # fmt: skip
    return out
