"""grouped_mass: masses of tiles where all query heads of a key head share a product.

Rows of all those heads lie under one another in one product: keys are read and multiplied once for them, and its rows
stand nearer to one another, so that it stops nearer to the diagonal.
"""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..tiling import Tiling
from .launch import launch, power_of_two
from .tile_mass import BEFORE_ALL, LN2, LOG2E

ROWS, KEYS = 128, 128  # of a product
STEPS = 16  # of KEYS keys that a program multiplies, at most
TWO = 128  # registers of a thread, with which two programs fit a multiprocessor; more where those would be spilled


@triton.jit
def _masses(s, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, LOG2E: tl.constexpr, LN2: tl.constexpr):
    """`ln sum exp` of each tile's scores, -inf where all are. # [BM, BN] -> [BM, BN // TILE]"""
    s = tl.reshape(s, [BM, BN // TILE, TILE])
    most = tl.max(s, 2)
    reference = tl.where(most == -float("inf"), 0.0, most) * LOG2E
    total = tl.sum(tl.exp2(s * LOG2E - reference[:, :, None]), 2)
    return tl.where(total > 0, (reference + tl.log2(tl.where(total > 0, total, 1.0))) * LN2, -float("inf"))


@triton.jit
def _keys(k_base, real, first, keys, stride_kt, stride_kd, D: tl.constexpr, D_PAD: tl.constexpr, BN: tl.constexpr,
          MASKED: tl.constexpr):  # fmt: skip
    """Keys from `first` on, as columns; 0 where none takes part. # [D_PAD, BN]"""
    n, d = tl.arange(0, BN), tl.arange(0, D_PAD)
    taken = n < keys - first
    if MASKED:
        taken &= tl.load(real + first + n, mask=taken, other=0) != 0
    start = k_base + tl.cast(first, tl.int64) * stride_kt  # one for all, so that each has but a small distance from it
    return tl.load(start + ((d * stride_kd)[:, None] + (n * stride_kt)[None, :]),
                   mask=taken[None, :] & (d < D)[:, None], other=0)  # fmt: skip


@triton.jit
def _seen(s, bound, real, first, keys, BN: tl.constexpr, MASKED: tl.constexpr):
    """Scores, -inf for keys that a row does not see. # [BM, BN]"""
    n = tl.arange(0, BN)
    seen = n[None, :] <= (bound - first)[:, None]
    if MASKED:
        seen &= (tl.load(real + first + n, mask=first + n < keys, other=0) != 0)[None, :]
    return tl.where(seen, s, -float("inf"))


@triton.jit(do_not_specialize=["kv_heads", "rows", "keys", "tiles", "chunks", "parts", "last_stride",
                               "keys_stride"])  # fmt: skip
def grouped_mass(
    A, K, last, real, out,
    kv_heads, rows, keys, tiles, chunks, parts, last_stride, keys_stride,
    stride_kb, stride_kh, stride_kt, stride_kd,
    SHARE: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, LOG2E: tl.constexpr, LN2: tl.constexpr,
):  # fmt: skip
    """BM rows, a chunk of rows of all SHARE heads, in one of `parts` parts of the keys that they see.

    Grid: [batch * kv_heads * chunks * parts].
    """
    EACH: tl.constexpr = BM // SHARE  # rows of a head
    unit, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    group = (unit // chunks).to(tl.int64)  # item and key head
    chunk = chunks - 1 - unit % chunks  # those that see most keys first
    item, kv_head = group // kv_heads, group % kv_heads
    d = tl.arange(0, D_PAD)
    r = tl.arange(0, BM)
    row, member = chunk * EACH + r // SHARE, r % SHARE
    there = (row < rows) & (r < EACH * SHARE)
    line = (group * SHARE + member) * rows + row
    reach = tl.load(last + item * last_stride + row, mask=there, other=-(2**30))  # [BM]
    furthest, nearest = tl.max(reach, 0), tl.min(tl.where(there, reach, 2**30), 0)
    stop = tl.where(furthest > -(2**30), keys, 0)  # past the last key that one of the rows may see
    whole = tl.where(nearest > -(2**30), keys, 0)  # up to here all rows see all keys
    bound = tl.where(reach > -(2**30), keys - 1, -1)  # the last key that a row sees # [BM]
    if CAUSAL:
        stop, whole = tl.minimum(stop, tl.maximum(furthest + 1, 0)), tl.minimum(whole, tl.maximum(nearest + 1, 0))
        bound = tl.minimum(bound, reach)
    steps = tl.cdiv(stop, BN)
    begin, end = (steps * part // parts) * BN, (steps * (part + 1) // parts) * BN
    if MASKED:
        whole = 0
    turn_at = tl.minimum(tl.maximum(whole // BN * BN, begin), end)
    k_base = K + item * stride_kb + kv_head * stride_kh
    row_out = out + line[:, None] * tiles
    beyond = steps * (BN // TILE)
    for first in range(beyond + part * 32, tiles, parts * 32):
        tile = first + tl.arange(0, 32)
        tl.store(row_out + tile[None, :], tl.zeros([BM, 32], tl.float32) - float("inf"),
                 mask=there[:, None] & (tile < tiles)[None, :])  # fmt: skip
    if begin < end:
        a = tl.load(A + line[:, None] * D + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0)
        # A step of the loops takes the masses of the products of the step before, then multiplies: copies of the
        # next keys are asked for at its end and so are under way while masses are taken.
        flags = real + item * keys_stride
        s = tl.dot(a, _keys(k_base, flags, begin, keys, stride_kt, stride_kd, D, D_PAD, BN, MASKED))
        # Two loops, as a comparison and a choice for each score take as long as its exponential.
        if not MASKED:
            for first in tl.range(begin + BN, tl.minimum(turn_at + BN, end), BN, num_stages=2):
                tile = (first - BN) // TILE + tl.arange(0, BN // TILE)
                tl.store(row_out + tile[None, :], _masses(s, BM, BN, TILE, LOG2E, LN2), mask=there[:, None])
                s = tl.dot(a, _keys(k_base, flags, first, keys, stride_kt, stride_kd, D, D_PAD, BN, MASKED))
        for first in tl.range(tl.minimum(turn_at + BN, end), end, BN, num_stages=2):
            s = _seen(s, bound, flags, first - BN, keys, BN, MASKED)
            tile = (first - BN) // TILE + tl.arange(0, BN // TILE)
            tl.store(row_out + tile[None, :], _masses(s, BM, BN, TILE, LOG2E, LN2), mask=there[:, None])
            s = tl.dot(a, _keys(k_base, flags, first, keys, stride_kt, stride_kd, D, D_PAD, BN, MASKED))
        s = _seen(s, bound, flags, end - BN, keys, BN, MASKED)
        tile = (end - BN) // TILE + tl.arange(0, BN // TILE)
        tl.store(row_out + tile[None, :], _masses(s, BM, BN, TILE, LOG2E, LN2),
                 mask=there[:, None] & (tile < tiles)[None, :])  # fmt: skip


def fits(heads: int, k: Tensor, tiling: Tiling) -> bool:
    """Whether the program takes them: half precision, key blocks of 8, 16, ... 128 tokens, lengths up to 2^24."""
    wide = tiling.block[1]
    return (
        k.element_size() == 2
        and k.shape[3] <= 128
        and 8 <= wide <= KEYS
        and wide & (wide - 1) == 0
        and heads // k.shape[1] <= ROWS
        and max(tiling.offset + tiling.q_len, tiling.kv_len) <= 2**24
        and all(abs(step) < 2**22 for step in k.stride()[2:])  # distances in a step fit 32 bits
    )


def mass_by_group(a: Tensor, k: Tensor, last: Tensor, tile: int, *, causal: bool, real: Tensor | None) -> Tensor:
    """`ln sum exp(a . k_j)` over the keys j of each tile that a row sees; -inf if none.

    a: [batch, heads, rows, head_dim], contiguous, of k's dtype, in which it is multiplied and summed in float32.
    k: [batch, kv_heads, keys, head_dim], any strides. last: whole numbers [1 or batch, rows], the last position that
    a row sees if `causal`, `BEFORE_ALL` or below for a row that sees nothing. real: bool [1 or batch, keys], False is
    not read. Returns float32 [batch, heads, rows, ceil(keys / tile)].
    """
    (batch, heads, rows, dim), (kv_heads, keys) = a.shape, k.shape[1:3]
    tiles, share = -(-keys // tile), heads // kv_heads
    out = torch.empty((batch, heads, rows, tiles), dtype=torch.float32, device=k.device)
    if last.dtype != torch.int32:  # positions that may lie beyond what 32 bits hold
        last = last.clamp(min=BEFORE_ALL).int()
    taken = last if real is None else real.contiguous().view(torch.uint8)
    down = min(ROWS, max(16, power_of_two(rows * share)))
    chunks, parts = -(-rows // (down // share)), -(-keys // (KEYS * STEPS))
    launch(
        grouped_mass, batch * kv_heads * chunks * parts,
        (a, k, last.contiguous(), taken, out),
        (
            kv_heads, rows, keys, tiles, chunks, parts, rows if len(last) > 1 else 0,
            keys if real is not None and len(real) > 1 else 0, *k.stride(),
        ),
        SHARE=share, D=dim, D_PAD=max(16, power_of_two(dim)), BM=down, BN=KEYS, TILE=tile, CAUSAL=causal,
        MASKED=real is not None, LOG2E=LOG2E, LN2=LN2, num_warps=8 if down == 128 else 4,
        maxnreg=TWO if down == 128 and tile >= 32 and real is None else None,
    )  # fmt: skip
    return out
