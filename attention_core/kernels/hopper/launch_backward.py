"""Launch the Hopper backward: delta, dQ by queries, dK and dV by keys, and what merges split lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from ..triton.backward_query import prepare, sum_parts
from ..triton.lists import TileLists
from .backward import backward
from .launch import LOG2E, box, boxable, multiprocessors
from .repair import repair_key, repair_query
from .schedule import work_of


@dataclass(frozen=True)
class Shape:
    """Rows of a streamed tile, buffers of the rows that stay, slots of the rings, registers of a thread."""

    rows: int
    buffers: int
    slots: int
    consumer_registers: int = 240
    producer_registers: int = 24


def query_shape(dim: int, tile: int) -> Shape:
    """Shape of the dQ program: the rings fill what shared memory two buffers of Q and dO leave."""
    return Shape(64, 2, 3) if dim == 128 else Shape(min(tile, 128), 2, 4)


def key_shape(dim: int) -> Shape:
    """Shape of the dK, dV program: 64 queries a tile, or the sums of D 128 leave no registers for scores."""
    return Shape(64, 2, 3) if dim == 128 else Shape(64, 2, 4)


def attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dout: Tensor,
    dlse: Tensor | None,
    by_query: TileLists,
    by_key: TileLists,
    scale: float,
    shapes: tuple[Shape | None, Shape | None] = (None, None),
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk, dv in the inputs' dtypes, bitwise repeatable; scale > 0."""
    (batch, heads, q_len, dim), (kv_heads, kv_len), device = q.shape, k.shape[1:3], q.device
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=device) for x in (q, k, v))
    if not q.numel() or not k.numel():
        return dq.zero_(), dk.zero_(), dv.zero_()
    q, k, v, dout = boxable(q), boxable(k), boxable(v), boxable(dout)
    lse2, delta = torch.empty_like(lse), torch.empty_like(lse)
    flag = torch.zeros(1, dtype=torch.int32, device=device)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *dout.stride()[:3])
    mine, theirs = shapes[0] or query_shape(dim, by_query.tile), shapes[1] or key_shape(dim)
    ratio = heads // kv_heads
    part_q, part_k, part_v = (
        torch.empty(batch * n * lists.slots * lists.line_size * dim, dtype=torch.float32, device=device)
        for n, lists in ((heads, by_query), (kv_heads, by_key), (kv_heads, by_key))
    )
    with torch.cuda.device_of(q):
        prepare[(batch * heads * triton.cdiv(q_len, 64),)](
            out, dout, lse, lse if dlse is None else dlse.contiguous(), lse2, delta, *dout.stride()[:3], heads, q_len,
            DV=dim, DV_PAD=dim, BM=64, HAS_DLSE=dlse is not None,
        )  # fmt: skip
        _program(by_query, mine, (q, dout, k, v), (dq, dq), (part_q, part_q), lse2, delta, flag, scale, False)
        grid = (batch * heads * by_query.jobs.shape[1] * (by_query.line_size // 64),)
        repair_query[grid](
            flag, q, k, v, dout, lse2, delta, dq, part_q, *by_query.walked, *strides, scale * LOG2E, scale, q_len,
            kv_len, by_query.jobs.shape[1], heads, ratio, by_query.slots, by_query.lines,
            D=dim, BM=64, BN=64, **dict(by_query.constants), num_warps=4,
        )  # fmt: skip
        _merge(by_query, part_q, dq, q_len, heads, 1)
        _program(by_key, theirs, (k, v, q, dout), (dk, dv), (part_k, part_v), lse2, delta, flag, scale, True)
        grid = (batch * kv_heads * by_key.jobs.shape[1] * (by_key.line_size // 64),)
        repair_key[grid](
            flag, q, k, v, dout, lse2, delta, dk, dv, part_k, part_v, *by_key.walked, *strides, scale * LOG2E, scale,
            q_len, kv_len, by_key.jobs.shape[1], kv_heads, ratio, by_key.slots, by_key.lines,
            D=dim, BM=64, BN=64, **dict(by_key.constants), num_warps=4,
        )  # fmt: skip
        _merge(by_key, part_k, dk, kv_len, kv_heads, ratio)
        _merge(by_key, part_v, dv, kv_len, kv_heads, ratio)
    return dq, dk, dv


def _program(
    lists: TileLists,
    shape: Shape,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    outputs: tuple[Tensor, Tensor],
    parts: tuple[Tensor, Tensor],
    lse2: Tensor,
    delta: Tensor,
    flag: Tensor,
    scale: float,
    by_key: bool,
) -> None:
    """One of the two programs: the first two inputs stay, the others are streamed."""
    own, _, other, _ = inputs
    (batch, heads, own_len, dim), ratio = (
        own.shape,
        max(own.shape[1], other.shape[1]) // min(own.shape[1], other.shape[1]),
    )
    work = work_of(lists, batch, heads, ratio if by_key else 1)
    n = shape.rows
    streamed = (n, dim) if lists.granule >= n else (lists.granule, 64)
    stay, stream = [box(x, 64, dim) for x in inputs[:2]], [box(x, *streamed) for x in inputs[2:]]
    _, full_units, _, masked_units, low, high, bits, masks, _, _ = lists.walked
    backward[(min(multiprocessors(own.device), len(work.items)),)](
        *stay, *stream, *(box(x, 64, dim) for x in outputs), *outputs, *parts, lse2, delta, flag,
        full_units, masked_units, low, high, bits, masks, work.items, work.counts, scale * LOG2E, scale,
        own_len, other.shape[2], heads, ratio,
        D=dim, N=n, GRANULE=lists.granule, STEPS=lists.tile // n, BLOCK_Q=lists.block_q, BLOCK_K=lists.block_k,
        HAS_BITS=lists.has_bits, MASKED=masked_units.numel() > 0, SPLIT=lists.splits.shape[1] > 0, BY_KEY=by_key,
        BUFFERS=shape.buffers, SLOTS=shape.slots, CONSUMER_REGISTERS=shape.consumer_registers,
        PRODUCER_REGISTERS=shape.producer_registers, num_warps=4, maxnreg=168,
    )  # fmt: skip


def _merge(lists: TileLists, part: Tensor, whole: Tensor, length: int, outer: int, ratio: int) -> None:
    """Add the parts of split lines, in one order."""
    n_splits, dim = lists.splits.shape[1], whole.shape[3]
    if n_splits:
        sum_parts[(whole.shape[0] * outer * n_splits * (lists.line_size // 64),)](
            part, whole, lists.splits, lists.head_group, length, n_splits, outer, ratio, lists.slots,
            D=dim, D_PAD=dim, BM=64, BLOCK=lists.line_size, **dict(lists.groups),
        )  # fmt: skip
