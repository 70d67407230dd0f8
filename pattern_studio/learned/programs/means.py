"""means: the mean of each block of q and of k, both in one launch that reads each of them once."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch, power_of_two

# A block of up to 32 KB is asked for in these many steps, all of them under way together, as copies to shared memory.
# Loads to registers are as many on paper, but ptxas saves registers and issues three of sixteen at a time.
STEPS, STEP = 4, 8192  # steps, bytes of one at most; 512 for each warp make copies of 16 bytes a thread


@triton.jit
def _summed(X, real, program, heads, tokens, blocks, stride_b, stride_h, stride_t, stride_d, real_stride,
            SIZE: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, MASKED: tl.constexpr,
            STEPS: tl.constexpr):  # fmt: skip
    """A block's sum and how many tokens are in it. # [D_PAD] and a number, float32"""
    block, head, item = program % blocks, program // blocks % heads, (program // blocks // heads).to(tl.int64)
    d = tl.arange(0, D_PAD)
    base = X + item * stride_b + head.to(tl.int64) * stride_h + (d * stride_d)[None, :]
    acc = tl.zeros([T, D_PAD], tl.float32)
    count = tl.zeros([T], tl.float32)
    for at in tl.range(0, SIZE, T, num_stages=STEPS + 1):
        inside = at + tl.arange(0, T)
        token = block.to(tl.int64) * SIZE + inside
        there = (inside < SIZE) & (token < tokens)
        if MASKED:
            there &= tl.load(real + item * real_stride + token, mask=there, other=0) != 0
        rows = tl.load(base + (token * stride_t)[:, None], mask=there[:, None] & (d < D)[None, :], other=0)
        acc += rows.to(tl.float32)
        count += there.to(tl.float32)
    return tl.sum(acc, 0), tl.maximum(tl.sum(count, 0), 1.0)


@triton.jit(do_not_specialize=["q_programs", "heads", "kv_heads", "q_len", "kv_len", "q_blocks", "kv_blocks", "factor",
                               "rows_stride", "keys_stride"])  # fmt: skip
def means(
    Q, K, rows, keys, out, weight,
    q_programs, heads, kv_heads, q_len, kv_len, q_blocks, kv_blocks, factor, rows_stride, keys_stride,
    stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_kt, stride_kd,
    BLOCK_Q: tl.constexpr, T_Q: tl.constexpr, BLOCK_K: tl.constexpr, T_K: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr, MASKED_Q: tl.constexpr, MASKED_K: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """One block of q or, after those, of k. Grid: [q_programs + batch * kv_heads * kv_blocks]."""
    program = tl.program_id(0)  # 32 bits for its divisions, which take the first load's time otherwise
    d = tl.arange(0, D_PAD)
    where_to = out + program.to(tl.int64) * D + d
    # Two ways through the same lines: a pointer chosen by a condition would lose what is known of its alignment.
    if program < q_programs:
        acc, count = _summed(Q, rows, program, heads, q_len, q_blocks, stride_qb, stride_qh, stride_qt, stride_qd,
                             rows_stride, BLOCK_Q, T_Q, D, D_PAD, MASKED_Q, STEPS)  # fmt: skip
        mean = acc * tl.div_rn(tl.zeros_like(count) + factor, count)
        tl.store(where_to, mean.to(out.dtype.element_ty), mask=d < D)
    else:
        other = program - q_programs
        acc, count = _summed(K, keys, other, kv_heads, kv_len, kv_blocks, stride_kb, stride_kh, stride_kt, stride_kd,
                             keys_stride, BLOCK_K, T_K, D, D_PAD, MASKED_K, STEPS)  # fmt: skip
        mean = tl.div_rn(acc, tl.zeros_like(acc) + count)
        tl.store(where_to, mean.to(out.dtype.element_ty), mask=d < D)
        tl.store(weight + other, tl.log(count))


def means_of_blocks(
    q: Tensor, k: Tensor | None, block: tuple[int, int], factor: float, rows: Tensor | None, keys: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Means of q's blocks times `factor`, then k's, in q's dtype, [blocks of both, head_dim]; ln(tokens) of k's blocks.

    q: [batch, heads, q_len, head_dim]; k: [batch, kv_heads, kv_len, head_dim] of q's dtype, or None. A block's place
    is item, head, block, the last one fastest, and k's come after q's. rows: bool [1 or batch, q_len], keys: bool
    [1 or batch, kv_len]: what is not True is not read and does not count. Sums are float32.
    """
    (batch, heads, q_len, dim), q_blocks = q.shape, -(-q.shape[2] // block[0])
    kv_heads, kv_len = (0, 0) if k is None else k.shape[1:3]
    kv_blocks = -(-kv_len // block[1])
    q_programs, k_programs = batch * heads * q_blocks, batch * kv_heads * kv_blocks
    out, weight = q.new_empty(q_programs + k_programs, dim), q.new_empty(k_programs, dtype=torch.float32)
    d_pad = power_of_two(dim)
    most = max(1, STEP // (d_pad * q.element_size()))
    tall_q, tall_k = (min(power_of_two(-(-size // STEPS)), most) for size in block)
    thinnest = min(tall_q, tall_k if k is not None else tall_q) * d_pad * q.element_size()
    flags = [None if x is None else x.contiguous().view(torch.uint8) for x in (rows, keys)]
    launch(
        means, q_programs + k_programs,
        (q, q if k is None else k, *(out if x is None else x for x in flags), out, weight),
        (
            q_programs, heads, max(kv_heads, 1), q_len, kv_len, q_blocks, max(kv_blocks, 1), factor,
            *(0 if x is None or len(x) == 1 else x.shape[1] for x in flags),
            *q.stride(), *(q if k is None else k).stride(),
        ),
        BLOCK_Q=block[0], T_Q=tall_q, BLOCK_K=block[1],
        T_K=tall_k, D=dim, D_PAD=d_pad,
        MASKED_Q=rows is not None, MASKED_K=keys is not None, STEPS=STEPS, num_warps=max(1, min(4, thinnest // 512)),
    )  # fmt: skip
    return out, weight
