"""Backward by keys: dK and dV of a key block over the query tiles that see it; bitwise repeatable."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

import triton
import triton.language as tl

from .primitives import (
    bit_allowed,
    dropout_weights,
    group_of,
    job_at,
    load_rows,
    load_tile,
    per_unit,
    steps_of,
    unit_positions,
    unit_start,
    word_allowed,
)  # fmt: skip


@triton.jit
def _fold(k, v, dk, dv, q, do, lse, delta, scale, allowed, weights, MASKED: tl.constexpr, DROPOUT: tl.constexpr,
          PRECISION: tl.constexpr):  # fmt: skip
    """Add one query tile to dk and dv. Scores are held keys by queries, so no operand is transposed twice."""
    s = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale - lse[None, :]  # [BN, BM]
    if MASKED:  # before the exponential: a masked score can be far above its row's LSE
        s = tl.where(allowed, s, -float("inf"))
    p = tl.math.exp2(s)
    kept = p * weights if DROPOUT else p
    dv = tl.dot(kept.to(do.dtype), do, dv, input_precision=PRECISION)
    dp = tl.dot(v, tl.trans(do), input_precision=PRECISION)  # [BN, BM]
    if DROPOUT:
        dp = dp * weights
    ds = p * (dp - delta[None, :])
    if MASKED:  # a masked pair can hold anything, NaN included: 0 * NaN must not survive
        ds = tl.where(allowed, ds, 0.0)
    dk = tl.dot(ds.to(q.dtype), q, dk, input_precision=PRECISION)
    return dk, dv


@triton.jit(do_not_specialize=["q_len", "kv_len", "n_jobs", "kv_heads", "kv_ratio", "n_slots", "n_lines", "threshold"])
def backward_key(
    Q, K, V, DO, Q_BOX, DO_BOX, LSE2, DELTA, DK, DV_OUT, PART_DK, PART_DV,
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    scale2, scale, q_len, kv_len, n_jobs, kv_heads, kv_ratio, n_slots, n_lines, seed, threshold, weight,
    D: tl.constexpr, D_PAD: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr,
    HAS_BITS: tl.constexpr, BOXES: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
    program=None,
):  # fmt: skip
    """dK and dV of BN keys of one key block, over all query heads of its group.

    Grid: [batch * kv_heads * jobs * key tiles].
    """
    KEY_TILES: tl.constexpr = (BLOCK_K + BN - 1) // BN
    STEPS: tl.constexpr = TILE // BM
    program = tl.cast(tl.program_id(0) if program is None else program, tl.int64)
    key_tile = (program % KEY_TILES).to(tl.int32)
    job = (program // KEY_TILES) % n_jobs
    batch_kv = program // KEY_TILES // n_jobs
    batch, kv_head = batch_kv // kv_heads, batch_kv % kv_heads
    first_group = group_of(head_group, batch, kv_head * kv_ratio, kv_heads * kv_ratio, SHARED, BY_BATCH)
    line, part, parts, slot = job_at(jobs, first_group, n_jobs, job)
    if line >= 0:
        in_block = key_tile * BN + tl.arange(0, BN)
        key = line * BLOCK_K + in_block  # [BN]
        real = (in_block < BLOCK_K) & (key < kv_len)
        k = load_rows(K + batch * stride_kb + kv_head * stride_kh, key, stride_ks, real, D, D_PAD, True)
        v = load_rows(V + batch * stride_vb + kv_head * stride_vh, key, stride_vs, real, DV, DV_PAD, True)
        dk = tl.zeros([BN, D_PAD], tl.float32)
        dv = tl.zeros([BN, DV_PAD], tl.float32)

        for member in range(kv_ratio):
            head = kv_head * kv_ratio + member
            group = group_of(head_group, batch, head, kv_heads * kv_ratio, SHARED, BY_BATCH)
            owner = group * n_lines + line
            q_base = Q + batch * stride_qb + head * stride_qh
            do_base = DO + batch * stride_ob + head * stride_oh
            base = (batch * kv_heads * kv_ratio + head) * q_len

            begin, end = steps_of(full_ptr, owner, part, parts, STEPS)
            for step in tl.range(begin, end, num_stages=STAGES):
                row = unit_positions(full_units, step, BM, GRANULE)  # [BM]
                if BOXES:
                    start = unit_start(full_units, step, BM, GRANULE)
                    q = load_tile(Q_BOX, batch.to(tl.int32), head.to(tl.int32), start, BM, D_PAD)
                    do = load_tile(DO_BOX, batch.to(tl.int32), head.to(tl.int32), start, BM, DV_PAD)
                else:
                    q = load_rows(q_base, row, stride_qs, True, D, D_PAD, False)
                    do = load_rows(do_base, row, stride_os, True, DV, DV_PAD, False)
                lse, delta = tl.load(LSE2 + base + row), tl.load(DELTA + base + row)
                weights = 1.0
                if DROPOUT:
                    weights = dropout_weights(seed, batch, head, row[None, :], key[:, None], threshold, weight)
                dk, dv = _fold(k, v, dk, dv, q, do, lse, delta, scale2, True, weights, False, DROPOUT, PRECISION)

            begin, end = steps_of(masked_ptr, owner, part, parts, STEPS)
            for step in tl.range(begin, end, num_stages=STAGES):
                row = unit_positions(masked_units, step, BM, GRANULE)
                lo, hi = per_unit(low, step, BM, GRANULE), per_unit(high, step, BM, GRANULE)
                there = (row < q_len) & (lo <= hi)
                distance = key[:, None] - row[None, :]
                allowed = (distance >= lo[None, :]) & (distance <= hi[None, :]) & there[None, :] & real[:, None]
                if HAS_BITS:
                    if masks.dtype.element_ty == tl.int32:
                        first = unit_start(masked_units, step, BM, GRANULE) % BLOCK_Q
                        mask_id = tl.load(bits + step // (GRANULE // BM))
                        allowed &= word_allowed(masks, mask_id, key % BLOCK_K, first, BLOCK_K, BLOCK_Q // 32, BM)
                    else:
                        mask_id = per_unit(bits, step, BM, GRANULE)
                        allowed &= bit_allowed(masks, mask_id[None, :], key[:, None], row[None, :], BLOCK_Q, BLOCK_K)
                q = load_rows(q_base, row, stride_qs, there, D, D_PAD, True)
                do = load_rows(do_base, row, stride_os, there, DV, DV_PAD, True)
                lse = tl.load(LSE2 + base + row, mask=there, other=float("inf"))
                delta = tl.load(DELTA + base + row, mask=there, other=0.0)
                weights = 1.0
                if DROPOUT:
                    weights = dropout_weights(seed, batch, head, row[None, :], key[:, None], threshold, weight)
                dk, dv = _fold(k, v, dk, dv, q, do, lse, delta, scale2, allowed, weights, True, DROPOUT, PRECISION)

        d, e = tl.arange(0, D_PAD), tl.arange(0, DV_PAD)
        if slot < 0:
            at = batch_kv * kv_len + key
            tl.store(DK + at[:, None] * D + d[None, :], (dk * scale).to(DK.dtype.element_ty),
                     mask=real[:, None] & (d < D)[None, :])  # fmt: skip
            tl.store(DV_OUT + at[:, None] * DV + e[None, :], dv.to(DV_OUT.dtype.element_ty),
                     mask=real[:, None] & (e < DV)[None, :])  # fmt: skip
        else:
            at = (batch_kv * n_slots + slot) * BLOCK_K + in_block
            tl.store(PART_DK + at[:, None] * D + d[None, :], dk * scale, mask=real[:, None] & (d < D)[None, :])
            tl.store(PART_DV + at[:, None] * DV + e[None, :], dv, mask=real[:, None] & (e < DV)[None, :])
