"""shares: masses of finer rows, as logarithms -> logarithms of tiles' shares of their rows' mass."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["heads", "rows", "blocks", "tiles", "height_stride"])
def shares(mass, height, out, heads, rows, blocks, tiles, height_stride, faint, TALL: tl.constexpr,
           N: tl.constexpr):  # fmt: skip
    """One query block. Grid: [batch * heads * query blocks]."""
    program = tl.program_id(0).to(tl.int64)
    block, item_head = program % blocks, program // blocks
    n = tl.arange(0, N)
    acc, tokens, most_seen = tl.zeros([N], tl.float32), 0.0, tl.zeros([N], tl.float32) - float("inf")
    for part in range(0, TALL):
        row = block * TALL + part
        there = n < tl.where(row < rows, tiles, 0)
        x = tl.load(mass + (item_head * rows + row) * tiles + n, mask=there, other=-float("inf"))
        most_seen = tl.maximum(most_seen, x)
        most = tl.max(x, 0)
        weight = tl.exp(x - tl.where(most == -float("inf"), 0.0, most))
        total = tl.sum(weight, 0)
        tall = tl.load(height + item_head // heads * height_stride + tl.minimum(row, rows - 1)).to(tl.float32)
        tall = tl.where(row < rows, tall, 0.0)
        acc += weight * (tall / tl.where(total > 0, total, 1.0))
        tokens += tall
    share = tl.maximum(acc / tl.maximum(tokens, 1.0), faint)
    tl.store(out + program * tiles + n, tl.where(most_seen == -float("inf"), most_seen, tl.log(share)), mask=n < tiles)


def shares_of_rows(mass: Tensor, height: Tensor, tall: int, faint: float) -> Tensor:
    """float32 [batch, heads, ceil(rows / tall), tiles]: each tile's share, a mean over `tall` rows, as a logarithm.

    mass: float32 [batch, heads, rows, tiles], logarithms of which a row's softmax is taken, -inf where nothing is
    seen. height: whole numbers [1 or batch, rows], tokens of a row, by which rows weigh. A seen tile has at least
    `faint`.
    """
    (batch, heads, rows, tiles), blocks = mass.shape, -(-mass.shape[2] // tall)
    out = torch.empty((batch, heads, blocks, tiles), dtype=torch.float32, device=mass.device)
    size = triton.next_power_of_2(tiles)
    with torch.cuda.device_of(mass):
        shares[(batch * heads * blocks,)](
            mass, height.int().contiguous(), out, heads, rows, blocks, tiles, rows if len(height) > 1 else 0, faint,
            TALL=tall, N=size, num_warps=min(16, max(1, size // 1024)),
        )  # fmt: skip
    return out
