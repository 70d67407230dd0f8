"""sums: the sum of each block of tokens, in one pass over q or k."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["heads", "tokens", "blocks", "real_stride"])
def block_sums(X, real, out, heads, tokens, blocks, stride_b, stride_h, stride_t, stride_d, real_stride,
               SIZE: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
               MASKED: tl.constexpr):  # fmt: skip
    """One block of tokens. Grid: [batch * heads * blocks]."""
    program = tl.program_id(0).to(tl.int64)
    block, head, item = program % blocks, program // blocks % heads, program // blocks // heads
    d = tl.arange(0, D_PAD)
    base = X + item * stride_b + head * stride_h + (d * stride_d)[None, :]
    acc = tl.zeros([T, D_PAD], tl.float32)
    for at in range(0, SIZE, T):
        inside = at + tl.arange(0, T)
        token = block * SIZE + inside
        there = (inside < SIZE) & (token < tokens)
        if MASKED:
            there &= tl.load(real + item * real_stride + token, mask=there, other=0) != 0
        rows = tl.load(base + (token * stride_t)[:, None], mask=there[:, None] & (d < D)[None, :], other=0)
        acc += rows.to(tl.float32)
    tl.store(out + program * D + d, tl.sum(acc, 0), mask=d < D)


def sums_of_blocks(x: Tensor, size: int, real: Tensor | None) -> Tensor:
    """float32 [batch, heads, ceil(tokens / size), head_dim] of x [batch, heads, tokens, head_dim].

    What is not `real`, bool [1 or batch, tokens], adds nothing and is not read. Reads x once.
    """
    (batch, heads, tokens, dim), blocks = x.shape, -(-x.shape[2] // size)
    out = torch.empty((batch, heads, blocks, dim), dtype=torch.float32, device=x.device)
    if not out.numel():
        return out
    flags = x if real is None else real.contiguous().view(torch.uint8)
    d_pad = triton.next_power_of_2(dim)
    with torch.cuda.device_of(x):
        block_sums[(batch * heads * blocks,)](
            x, flags, out, heads, tokens, blocks, *x.stride(), 0 if real is None or len(real) == 1 else tokens,
            SIZE=size, T=min(triton.next_power_of_2(size), max(1, 4096 // d_pad)), D=dim, D_PAD=d_pad,
            MASKED=real is not None,
        )  # fmt: skip
    return out
