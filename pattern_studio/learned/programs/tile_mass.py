"""tile_mass: logarithms of sums of exponentials over the keys of each tile, without writing a score per key."""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch, power_of_two

LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
FAR = 4096.0  # tokens from which exp(-distance / 128) is below 2e-14, nothing beside a float32 score
BEFORE_ALL = -(2**30)  # position of a row that takes part in nothing


@triton.jit(do_not_specialize=["heads", "share", "rows", "keys", "tiles", "last_stride", "real_stride", "step",
                               "row_chunks", "key_chunks"])  # fmt: skip
def tile_mass(
    A, K, last, real, weight, near, out,
    heads, share, rows, keys, tiles, stride_kb, stride_kh, stride_kt, stride_kd, last_stride, real_stride, step,
    row_chunks, key_chunks, scale,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr,
    LOOPS: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, WEIGHTED: tl.constexpr, NEAR: tl.constexpr,
    FAR: tl.constexpr, LOG2E: tl.constexpr, LN2: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """BM rows against LOOPS times BN keys. Grid: [batch * heads * row chunks * key chunks]."""
    program = tl.program_id(0).to(tl.int64)
    key_chunk, row_chunk = (program % key_chunks).to(tl.int32), (program // key_chunks % row_chunks).to(tl.int32)
    item_head = program // key_chunks // row_chunks
    item, head = item_head // heads, item_head % heads
    row, d, n = row_chunk * BM + tl.arange(0, BM), tl.arange(0, D_PAD), tl.arange(0, BN)
    there = row < rows
    a = tl.load(A + (item_head * rows + row)[:, None] * D + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0)
    reach = tl.load(last + item * last_stride + row, mask=there, other=-(2**30))  # [BM]
    furthest = tl.max(reach, 0)
    k_base = K + item * stride_kb + (head // share) * stride_kh
    row_out = out + (item_head * rows + row)[:, None] * tiles
    if NEAR:
        w_log, w_short = tl.load(near + head * 4), tl.load(near + head * 4 + 1)
        w_long, w_first = tl.load(near + head * 4 + 2), tl.load(near + head * 4 + 3)
        asked = tl.maximum(reach, 0).to(tl.float32)
    begin, end = key_chunk * (LOOPS * BN), tl.minimum((key_chunk + 1) * (LOOPS * BN), keys)
    stop = tl.where(furthest > -(2**30), end, begin)  # past the last key that a row of the program may see
    if CAUSAL:
        stop = tl.minimum(stop, tl.where(furthest < 0, 0, furthest // step + 1))
    # No condition inside: so the next keys are on their way while these are multiplied;
    # one step ahead, as shared memory and registers then hold two programs of half precision on a multiprocessor.
    for first in tl.range(begin, stop, BN, num_stages=2):
        key = first + n  # [BN]
        tile = first // TILE + tl.arange(0, BN // TILE)
        where_to = row_out + tile[None, :]
        store = there[:, None] & (tile < tiles)[None, :]
        taken = key < keys
        if MASKED:
            taken &= tl.load(real + item * real_stride + key, mask=taken, other=0) != 0
        k = tl.load(k_base + (key.to(tl.int64) * stride_kt)[None, :] + (d * stride_kd)[:, None],
                    mask=taken[None, :] & (d < D)[:, None], other=0)  # fmt: skip
        s = tl.dot(a, k, input_precision=PRECISION) * scale  # [BM, BN]
        if WEIGHTED:
            s += tl.load(weight + item * real_stride + key, mask=taken, other=0.0)[None, :]
        if NEAR:
            apart = tl.abs(asked[:, None] - (key * step).to(tl.float32)[None, :])
            s += (w_log * 0.125) * tl.log2(apart + 1.0)
            if tl.min(apart) < FAR:
                s += w_short * tl.exp2(apart * (-LOG2E / 16)) + w_long * tl.exp2(apart * (-LOG2E / 128))
            s += tl.where(key == 0, w_first, 0.0)[None, :]
        seen = taken[None, :] & (reach > -(2**30))[:, None]
        if CAUSAL:
            seen &= (key * step)[None, :] <= reach[:, None]
        if TILE == 1:
            tl.store(where_to, tl.where(seen, s, -float("inf")), mask=store)
        else:
            s = tl.reshape(tl.where(seen, s * LOG2E, -float("inf")), [BM, BN // TILE, TILE])
            most = tl.max(s, 2)
            reference = tl.where(most == -float("inf"), 0.0, most)
            total = tl.sum(tl.exp2(s - reference[:, :, None]), 2)
            mass = (reference + tl.log2(tl.where(total > 0, total, 1.0))) * LN2
            tl.store(where_to, tl.where(total > 0, mass, -float("inf")), mask=store)
    for first in range(begin + tl.cdiv(tl.maximum(stop - begin, 0), BN) * BN, end, BN):
        tile = first // TILE + tl.arange(0, BN // TILE)
        store = there[:, None] & (tile < tiles)[None, :]
        tl.store(row_out + tile[None, :], tl.zeros([BM, BN // TILE], tl.float32) - float("inf"), mask=store)


def fits(tile: int) -> bool:
    """Whether tiles of this many keys have a program: a power of two up to 128."""
    return tile <= 128 and tile & (tile - 1) == 0


def mass_of_tiles(
    a: Tensor,
    k: Tensor,
    last: Tensor,
    tile: int,
    *,
    causal: bool,
    scale: float = 1.0,
    step: int = 1,
    real: Tensor | None = None,
    weight: Tensor | None = None,
    near: Tensor | None = None,
) -> Tensor:
    """`ln sum exp(scale * a . k_j + weight_j + near)` over the keys j of each tile that a row sees; -inf if none.

    a: [batch, heads, rows, head_dim], multiplied in k's dtype, on tensor cores where that is half precision, summed
    in float32. k: [batch, kv_heads, keys, head_dim], any strides; key j stands at position `step * j`. last: whole
    numbers [1 or batch, rows], the last position that a row sees if `causal`, `BEFORE_ALL` or below for a row that
    sees nothing. real: bool [1 or batch, keys], False is not read. weight: float32 like real. near: float32
    [heads, 4], weights of log2(1 + distance) / 8, exp(-distance / 16), exp(-distance / 128) and of key 0.

    Returns float32 [batch, heads, rows, ceil(keys / tile)]. Reads k once for each head and 128 rows (64 in single
    precision, 32 where it is wide), mostly from the cache. Rounding a and k to b bits moves a score by at most 2^-b
    times the sum of |a_d k_d|.
    """
    (batch, heads, rows, dim), (kv_heads, keys) = a.shape, k.shape[1:3]
    tiles = -(-keys // tile)
    out = torch.empty((batch, heads, rows, tiles), dtype=torch.float32, device=k.device)
    if not out.numel():
        return out
    a = a.to(k.dtype).contiguous()
    if last.dtype != torch.int32:  # positions that may lie beyond what 32 bits hold
        last = last.clamp(min=BEFORE_ALL).int()
    last = last.contiguous()
    items = max(len(x) for x in (last[:1], real, weight) if x is not None)
    real, weight = (None if x is None else x.expand(items, -1).contiguous() for x in (real, weight))
    single = k.dtype == torch.float32
    across, loops, pad = max(64 if single else 128, tile), 8, max(16, power_of_two(dim))
    # Single precision is multiplied number by number: as many as 64 rows of the widest tiles take a minute to compile.
    wide = single and across * pad > 8192
    down = min(32 if wide else 64 if single else 128, max(16, power_of_two(rows)))
    row_chunks, key_chunks = -(-rows // down), -(-keys // (across * loops))
    launch(
        tile_mass, batch * heads * row_chunks * key_chunks,
        (
            a, k, last, last if real is None else real.view(torch.uint8), last if weight is None else weight,
            last if near is None else near, out,
        ),
        (
            heads, heads // kv_heads, rows, keys, tiles, *k.stride(), rows if len(last) > 1 else 0,
            keys if items > 1 else 0, step, row_chunks, key_chunks, scale,
        ),
        D=dim, D_PAD=pad, BM=down, BN=across, TILE=tile, LOOPS=loops, CAUSAL=causal,
        MASKED=real is not None, WEIGHTED=weight is not None, NEAR=near is not None, FAR=FAR, LOG2E=LOG2E, LN2=LN2,
        PRECISION="ieee" if single else "tf32", num_warps=8 if wide or down == 128 else 4,
    )  # fmt: skip
    return out
