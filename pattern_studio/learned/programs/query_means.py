"""query_means: the mean of each block of q, several blocks a program, on tensor cores."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch, power_of_two

STEP = 32768  # bytes of a block, which is read in one step, at most
TOKENS = 512  # that a program reads, in steps that are under way together
UNDER_WAY = 3 * STEP  # bytes of them at most: two programs fit a multiprocessor


@triton.jit(do_not_specialize=["heads", "tokens", "blocks", "chunks", "factor", "real_stride"])
def query_means(
    Q, real, out,
    heads, tokens, blocks, chunks, factor, real_stride,
    stride_b, stride_h, stride_t, stride_d,
    D: tl.constexpr, D_PAD: tl.constexpr, SIZE: tl.constexpr, T: tl.constexpr, BLOCKS: tl.constexpr,
    STAGES: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of a head. Grid: [batch * heads * chunks]."""
    program = tl.program_id(0)
    chunk, line = program % chunks, (program // chunks).to(tl.int64)  # item and head
    item = line // heads
    base = Q + item * stride_b + line % heads * stride_h
    inside, d = tl.arange(0, T), tl.arange(0, D_PAD)
    ones = tl.full([16, T], 1.0, Q.dtype.element_ty)
    for step in tl.range(0, BLOCKS, num_stages=STAGES):
        block = chunk * BLOCKS + step
        token = block * SIZE
        there = inside < tl.minimum(tokens - token, SIZE)
        if MASKED:
            there &= tl.load(real + item * real_stride + token + inside, mask=there, other=0) != 0
            count = tl.maximum(tl.sum(there.to(tl.float32), 0), 1.0)
        else:
            count = tl.maximum(tl.minimum(tokens - token, SIZE), 1).to(tl.float32)
        start = base + tl.cast(token, tl.int64) * stride_t  # one for all, so that each has but a small distance from it
        x = tl.load(start + ((inside * stride_t)[:, None] + (d * stride_d)[None, :]),
                    mask=there[:, None] & (d < D)[None, :], other=0, eviction_policy="evict_first")  # fmt: skip
        # A sum is a product with ones: under half the instructions that converting and adding takes. Sixteen rows are
        # the fewest that are multiplied; one of them is stored.
        mean = tl.dot(ones, x) * tl.div_rn(tl.zeros_like(count) + factor, count)
        where_to = out + (line * blocks + block) * D + d
        tl.store(where_to[None, :] + tl.zeros([16, 1], tl.int32), mean.to(out.dtype.element_ty),
                 mask=(tl.arange(0, 16) == 0)[:, None] & (d < tl.where(block < blocks, D, 0))[None, :])  # fmt: skip


def fits(q: Tensor, size: int) -> bool:
    """Whether the program takes q in blocks of `size` tokens: half precision, a block of up to 32 KB."""
    return (
        q.element_size() == 2
        and q.shape[3] <= 128
        and max(16, power_of_two(size)) * max(16, power_of_two(q.shape[3])) * 2 <= STEP
        and all(abs(step) < 2**20 for step in q.stride()[2:])  # distances in a block fit 32 bits
    )


def means_of_queries(q: Tensor, size: int, factor: float, real: Tensor | None) -> Tensor:
    """Means of q's blocks of `size` tokens times `factor`, in q's dtype, [batch, heads, blocks, head_dim].

    q: [batch, heads, tokens, head_dim], any strides. real: bool [1 or batch, tokens]; what is not True is not read and
    does not count. Sums are float32.
    """
    (batch, heads, tokens, dim), blocks = q.shape, -(-q.shape[2] // size)
    out = q.new_empty((batch, heads, blocks, dim))
    d_pad, t = max(16, power_of_two(dim)), max(16, power_of_two(size))
    each = max(1, min(blocks, TOKENS // t))
    chunks = -(-blocks // each)
    launch(
        query_means, batch * heads * chunks,
        (q, out if real is None else real.contiguous().view(torch.uint8), out),
        (
            heads, tokens, blocks, chunks, factor, 0 if real is None or len(real) == 1 else tokens, *q.stride(),
        ),
        D=dim, D_PAD=d_pad, SIZE=size, T=t, BLOCKS=each, STAGES=1 + min(each, UNDER_WAY // (t * d_pad * 2)),
        MASKED=real is not None, num_warps=8 if t * d_pad >= 2048 else 4,
    )  # fmt: skip
    return out
