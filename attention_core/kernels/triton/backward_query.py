"""Backward by queries: dQ, and for fine key runs dK and dV too, added to the gathered keys."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from .primitives import (
    dropout_weights,
    group_of,
    job_at,
    load_rows,
    load_tile,
    masked_keys,
    steps_of,
    unit_positions,
    unit_start,
)  # fmt: skip


@triton.jit(do_not_specialize=["q_len"])
def prepare(OUT, DO, LSE, DLSE, LSE2, DELTA, FLAG, OF_QUERIES, OF_KEYS, SUMS, stride_ob, stride_oh, stride_os, heads,
            q_len, DV: tl.constexpr, DV_PAD: tl.constexpr, BM: tl.constexpr, HAS_DLSE: tl.constexpr,
            OVERLAPPED: tl.constexpr = False):  # fmt: skip
    """delta = sum(o * do) - dlse per row, and the LSE in base 2 with +inf for empty rows, whose p is then 0.

    Of a flag, two counters and float32 sums [programs, BM, DV], which may each be None, zeros are made in passing.
    OVERLAPPED: the next program may begin before this one ends. Grid: [batch * heads * ceil(q_len / 64) * 64 / BM], as
    the sums of a head are whole parts of 64 rows.
    """
    if OVERLAPPED:
        gdc_launch_dependents()
    tiles = tl.cdiv(q_len, 64) * (64 // BM)
    program = tl.program_id(0).to(tl.int64)
    if SUMS is not None:
        place = tl.arange(0, BM * DV_PAD)
        tl.store(SUMS + program * BM * DV + place, tl.zeros([BM * DV_PAD], tl.float32), mask=place < BM * DV)
    if FLAG is not None:
        tl.store(FLAG, 0, mask=program == 0)
    if OF_QUERIES is not None:
        tl.store(OF_QUERIES, 0, mask=program == 0)
    if OF_KEYS is not None:
        tl.store(OF_KEYS, 0, mask=program == 0)
    batch_head = program // tiles
    row = (program % tiles).to(tl.int32) * BM + tl.arange(0, BM)
    real = row < q_len
    at = batch_head * q_len + row
    o = load_rows(OUT + batch_head * q_len * DV, row, DV, real, DV, DV_PAD, True)
    do = load_rows(DO + batch_head // heads * stride_ob + batch_head % heads * stride_oh, row, stride_os,
                   real, DV, DV_PAD, True)  # fmt: skip
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    if HAS_DLSE:
        delta -= tl.load(DLSE + at, mask=real, other=0.0)
    lse = tl.load(LSE + at, mask=real, other=0.0)
    empty = lse == -float("inf")
    tl.store(LSE2 + at, tl.where(empty, float("inf"), lse * 1.4426950408889634), mask=real)
    tl.store(DELTA + at, tl.where(empty, 0.0, delta), mask=real)


@triton.jit
def _gradients(q, do, lse, delta, k, v, scale, allowed, weights, MASKED: tl.constexpr, DROPOUT: tl.constexpr,
               PRECISION: tl.constexpr):  # fmt: skip
    """What weights the values and ds of one tile, both [BM, BN] in float32."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale - lse[:, None]
    if MASKED:  # before the exponential: a masked score can be far above its row's LSE
        s = tl.where(allowed, s, -float("inf"))
    p = tl.math.exp2(s)
    dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
    if DROPOUT:
        dp = dp * weights
    ds = p * (dp - delta[:, None])
    if DROPOUT:
        p = p * weights
    # A masked pair can hold anything, NaN included: 0 * NaN must not survive.
    return p, tl.where(allowed, ds, 0.0) if MASKED else ds


@triton.jit
def _scatter(DK, DV_OUT, q, do, p, ds, key, seen, D: tl.constexpr, D_PAD: tl.constexpr, DV: tl.constexpr,
             DV_PAD: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Add this tile's share to the gradients of its keys, float32 [kv_len, .]."""
    dv = tl.dot(tl.trans(p.to(do.dtype)), do, input_precision=PRECISION)
    dk = tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision=PRECISION)
    d, e = tl.arange(0, D_PAD), tl.arange(0, DV_PAD)
    at = key.to(tl.int64)[:, None]
    tl.atomic_add(DK + at * D + d[None, :], dk, mask=seen[:, None] & (d < D)[None, :], sem="relaxed")
    tl.atomic_add(DV_OUT + at * DV + e[None, :], dv, mask=seen[:, None] & (e < DV)[None, :], sem="relaxed")


@triton.jit(do_not_specialize=["q_len", "kv_len", "n_jobs", "heads", "kv_ratio", "n_slots", "n_lines", "threshold"])
def backward_query(
    Q, K, V, K_BOX, V_BOX, DO, LSE2, DELTA, DQ, PART_DQ, DK, DV_OUT,
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    scale2, scale, q_len, kv_len, n_jobs, heads, kv_ratio, n_slots, n_lines, seed, threshold, weight,
    D: tl.constexpr, D_PAD: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr,
    HAS_BITS: tl.constexpr, SCATTER: tl.constexpr, BOXES: tl.constexpr, DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
    program=None,
):  # fmt: skip
    """dQ of BM rows of one query block, or its part from some of the tiles. Grid: as the forward's."""
    ROW_TILES: tl.constexpr = (BLOCK_Q + BM - 1) // BM
    STEPS: tl.constexpr = TILE // BN
    program = tl.cast(tl.program_id(0) if program is None else program, tl.int64)
    row_tile = (program % ROW_TILES).to(tl.int32)
    job = (program // ROW_TILES) % n_jobs
    batch_head = program // ROW_TILES // n_jobs
    batch, head = batch_head // heads, batch_head % heads
    group = group_of(head_group, batch, head, heads, SHARED, BY_BATCH)
    line, part, parts, slot = job_at(jobs, group, n_jobs, job)
    if line >= 0:
        in_block = row_tile * BM + tl.arange(0, BM)
        row = line * BLOCK_Q + in_block  # [BM]
        real = (in_block < BLOCK_Q) & (row < q_len)
        q = load_rows(Q + batch * stride_qb + head * stride_qh, row, stride_qs, real, D, D_PAD, True)
        do = load_rows(DO + batch * stride_ob + head * stride_oh, row, stride_os, real, DV, DV_PAD, True)
        at = batch_head * q_len + row
        lse = tl.load(LSE2 + at, mask=real, other=float("inf"))
        delta = tl.load(DELTA + at, mask=real, other=0.0)
        kv_head = (head // kv_ratio).to(tl.int64)
        k_base = K + batch * stride_kb + kv_head * stride_kh
        v_base = V + batch * stride_vb + kv_head * stride_vh
        kv_row = (batch * (heads // kv_ratio) + kv_head) * kv_len
        owner = group * n_lines + line
        first_row, last_row = line * BLOCK_Q + row_tile * BM, tl.minimum(line * BLOCK_Q + BLOCK_Q, q_len) - 1
        last_row = tl.minimum(last_row, first_row + BM - 1)
        dq = tl.zeros([BM, D_PAD], tl.float32)

        begin, end = steps_of(full_ptr, owner, part, parts, STEPS)
        for step in tl.range(begin, end, num_stages=STAGES):
            key = unit_positions(full_units, step, BN, GRANULE)  # [BN]
            if BOXES:
                start = unit_start(full_units, step, BN, GRANULE)
                k = load_tile(K_BOX, batch.to(tl.int32), kv_head.to(tl.int32), start, BN, D_PAD)
                v = load_tile(V_BOX, batch.to(tl.int32), kv_head.to(tl.int32), start, BN, DV_PAD)
            else:
                k = load_rows(k_base, key, stride_ks, True, D, D_PAD, False)
                v = load_rows(v_base, key, stride_vs, True, DV, DV_PAD, False)
            weights = 1.0
            if DROPOUT:
                weights = dropout_weights(seed, batch, head, row[:, None], key[None, :], threshold, weight)
            p, ds = _gradients(q, do, lse, delta, k, v, scale2, True, weights, False, DROPOUT, PRECISION)
            dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
            if SCATTER:
                _scatter(DK + kv_row * D, DV_OUT + kv_row * DV, q, do, p, ds, key, key >= 0, D, D_PAD, DV, DV_PAD,
                         PRECISION)  # fmt: skip

        begin, end = steps_of(masked_ptr, owner, part, parts, STEPS)
        for step in tl.range(begin, end, num_stages=STAGES):
            key, seen, allowed = masked_keys(masked_units, low, high, bits, masks, step, row, real, first_row, last_row,
                                             kv_len, BN, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS)  # fmt: skip
            k = load_rows(k_base, key, stride_ks, seen, D, D_PAD, True)
            v = load_rows(v_base, key, stride_vs, seen, DV, DV_PAD, True)
            weights = 1.0
            if DROPOUT:
                weights = dropout_weights(seed, batch, head, row[:, None], key[None, :], threshold, weight)
            p, ds = _gradients(q, do, lse, delta, k, v, scale2, allowed, weights, True, DROPOUT, PRECISION)
            dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
            if SCATTER:
                _scatter(DK + kv_row * D, DV_OUT + kv_row * DV, q, do, p, ds, key, seen, D, D_PAD, DV, DV_PAD,
                         PRECISION)  # fmt: skip

        d = tl.arange(0, D_PAD)
        inside = real[:, None] & (d < D)[None, :]
        if slot < 0:
            tl.store(DQ + at[:, None] * D + d[None, :], (dq * scale).to(DQ.dtype.element_ty), mask=inside)
        else:
            at = (batch_head * n_slots + slot) * BLOCK_Q + in_block
            tl.store(PART_DQ + at[:, None] * D + d[None, :], dq * scale, mask=inside)


@triton.jit(do_not_specialize=["length", "n_splits", "outer", "n_slots"])
def sum_parts(
    PART, OUT, splits, head_group, length, n_splits, outer, head_step, n_slots,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr, SHARED: tl.constexpr,
    BY_BATCH: tl.constexpr,
):  # fmt: skip
    """Add the parts of split lines, always in one order. Grid: [batch * heads * splits * row tiles]."""
    ROW_TILES: tl.constexpr = (BLOCK + BM - 1) // BM
    program = tl.program_id(0).to(tl.int64)
    row_tile = (program % ROW_TILES).to(tl.int32)
    split = (program // ROW_TILES) % n_splits
    batch_head = program // ROW_TILES // n_splits
    batch, head = batch_head // outer, batch_head % outer * head_step
    group = group_of(head_group, batch, head, outer * head_step, SHARED, BY_BATCH)
    entry = splits + (group * n_splits + split) * 3
    line, slot, parts = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2)
    if line < 0:
        return
    in_block = row_tile * BM + tl.arange(0, BM)
    row = line * BLOCK + in_block
    d = tl.arange(0, D_PAD)
    inside = ((in_block < BLOCK) & (row < length))[:, None] & (d < D)[None, :]
    total = tl.zeros([BM, D_PAD], tl.float32)
    for n in range(parts):
        at = (batch_head * n_slots + slot + n) * BLOCK + in_block
        total += tl.load(PART + at[:, None] * D + d[None, :], mask=inside, other=0.0)
    at = batch_head * length + row
    tl.store(OUT + at[:, None] * D + d[None, :], total.to(OUT.dtype.element_ty), mask=inside)
