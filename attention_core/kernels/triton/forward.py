"""Forward: one softmax over all tiles of a query block, online, in one pass."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

import triton
import triton.language as tl

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


@triton.jit
def _attend(q, m, total, acc, k, v, scale, allowed, weights, MASKED: tl.constexpr, DROPOUT: tl.constexpr,
            PRECISION: tl.constexpr):  # fmt: skip
    """Fold one tile into the running maximum m, sum total and output acc (base-2 logarithms)."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BM, BN]
    if MASKED:
        s = tl.where(allowed, s, -float("inf"))
    m_new = tl.maximum(m, tl.max(s, 1) * scale)  # [BM]; scale > 0, so it may follow the maximum
    # A row without a key yet has -inf - -inf; its reference is 0 until a key comes.
    reference = tl.where(m_new == -float("inf"), 0.0, m_new) if MASKED else m_new
    p = tl.math.exp2(s * scale - reference[:, None])
    fade = tl.math.exp2(m - reference)
    total = total * fade + tl.sum(p, 1)  # of all allowed keys, dropped ones too
    if DROPOUT:
        p = p * weights
    acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision=PRECISION)
    return m_new, total, acc


@triton.jit(do_not_specialize=["q_len", "kv_len", "n_jobs", "heads", "kv_ratio", "n_slots", "threshold"])
def forward(
    Q, K, V, K_BOX, V_BOX, OUT, LSE, PART_O, PART_LSE,
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    scale, q_len, kv_len, n_jobs, heads, kv_ratio, n_slots, n_lines, seed, threshold, weight,
    D: tl.constexpr, D_PAD: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr,
    HAS_BITS: tl.constexpr, BOXES: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
    program=None,
):  # fmt: skip
    """One program: BM rows of one query block, or one part of its tiles. Grid: [batch * heads * jobs * row tiles]."""
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
        q = load_rows(Q + batch * stride_qb + head * stride_qh, row, stride_qs, real, D, D_PAD, True)  # [BM, D_PAD]
        kv_head = (head // kv_ratio).to(tl.int32)
        k_base = K + batch * stride_kb + kv_head.to(tl.int64) * stride_kh
        v_base = V + batch * stride_vb + kv_head.to(tl.int64) * stride_vh
        owner = group * n_lines + line
        first_row, last_row = line * BLOCK_Q + row_tile * BM, tl.minimum(line * BLOCK_Q + BLOCK_Q, q_len) - 1
        last_row = tl.minimum(last_row, first_row + BM - 1)

        m = tl.full([BM], -float("inf"), tl.float32)
        total = tl.zeros([BM], tl.float32)
        acc = tl.zeros([BM, DV_PAD], tl.float32)

        begin, end = steps_of(full_ptr, owner, part, parts, STEPS)
        for step in tl.range(begin, end, num_stages=STAGES):
            if DROPOUT or not BOXES:
                key = unit_positions(full_units, step, BN, GRANULE)  # [BN]
            if BOXES:
                start = unit_start(full_units, step, BN, GRANULE)
                k = load_tile(K_BOX, batch.to(tl.int32), kv_head, start, BN, D_PAD)
                v = load_tile(V_BOX, batch.to(tl.int32), kv_head, start, BN, DV_PAD)
            else:
                k = load_rows(k_base, key, stride_ks, True, D, D_PAD, False)
                v = load_rows(v_base, key, stride_vs, True, DV, DV_PAD, False)
            weights = 1.0
            if DROPOUT:
                weights = dropout_weights(seed, batch, head, row[:, None], key[None, :], threshold, weight)
            m, total, acc = _attend(q, m, total, acc, k, v, scale, True, weights, False, DROPOUT, PRECISION)

        begin, end = steps_of(masked_ptr, owner, part, parts, STEPS)
        for step in tl.range(begin, end, num_stages=STAGES):
            key, seen, allowed = masked_keys(masked_units, low, high, bits, masks, step, row, real, first_row, last_row,
                                             kv_len, BN, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS)  # fmt: skip
            k = load_rows(k_base, key, stride_ks, seen, D, D_PAD, True)
            v = load_rows(v_base, key, stride_vs, seen, DV, DV_PAD, True)
            weights = 1.0
            if DROPOUT:
                weights = dropout_weights(seed, batch, head, row[:, None], key[None, :], threshold, weight)
            m, total, acc = _attend(q, m, total, acc, k, v, scale, allowed, weights, True, DROPOUT, PRECISION)

        some = total > 0
        out = acc / tl.where(some, total, 1.0)[:, None]
        # Back from base 2: the logarithm of the sum is natural.
        lse = tl.where(some, (m + tl.math.log2(tl.where(some, total, 1.0))) * 0.6931471805599453, -float("inf"))
        d = tl.arange(0, DV_PAD)
        inside = real[:, None] & (d < DV)[None, :]
        if slot < 0:
            at = batch_head * q_len + row
            tl.store(OUT + at[:, None] * DV + d[None, :], out.to(OUT.dtype.element_ty), mask=inside)
            tl.store(LSE + at, lse, mask=real)
        else:
            at = (batch_head * n_slots + slot) * BLOCK_Q + in_block
            tl.store(PART_O + at[:, None] * DV + d[None, :], out, mask=inside)
            tl.store(PART_LSE + at, lse, mask=real)


@triton.jit(do_not_specialize=["q_len", "n_splits", "heads", "n_slots"])
def merge(
    PART_O, PART_LSE, OUT, LSE, splits, head_group, q_len, n_splits, heads, n_slots,
    DV: tl.constexpr, DV_PAD: tl.constexpr, BM: tl.constexpr, BLOCK_Q: tl.constexpr, SHARED: tl.constexpr,
    BY_BATCH: tl.constexpr,
):  # fmt: skip
    """Merge the parts of a split line by their LSE. Grid: [batch * heads * splits * row tiles]."""
    ROW_TILES: tl.constexpr = (BLOCK_Q + BM - 1) // BM
    program = tl.program_id(0).to(tl.int64)
    row_tile = (program % ROW_TILES).to(tl.int32)
    split = (program // ROW_TILES) % n_splits
    batch_head = program // ROW_TILES // n_splits
    group = group_of(head_group, batch_head // heads, batch_head % heads, heads, SHARED, BY_BATCH)
    entry = splits + (group * n_splits + split) * 3
    line, slot, parts = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2)
    if line < 0:
        return
    in_block = row_tile * BM + tl.arange(0, BM)
    row = line * BLOCK_Q + in_block
    real = (in_block < BLOCK_Q) & (row < q_len)
    d = tl.arange(0, DV_PAD)
    inside = real[:, None] & (d < DV)[None, :]
    m = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DV_PAD], tl.float32)
    for n in range(parts):
        at = (batch_head * n_slots + slot + n) * BLOCK_Q + in_block
        lse = tl.load(PART_LSE + at, mask=real, other=-float("inf"))
        out = tl.load(PART_O + at[:, None] * DV + d[None, :], mask=inside, other=0.0)
        m_new = tl.maximum(m, lse)
        reference = tl.where(m_new == -float("inf"), 0.0, m_new)
        weight, fade = tl.exp(lse - reference), tl.exp(m - reference)
        acc = acc * fade[:, None] + out * weight[:, None]
        total = total * fade + weight
        m = m_new
    some = total > 0
    at = batch_head * q_len + row
    out = acc / tl.where(some, total, 1.0)[:, None]
    tl.store(OUT + at[:, None] * DV + d[None, :], out.to(OUT.dtype.element_ty), mask=inside)
    tl.store(LSE + at, tl.where(some, m + tl.log(tl.where(some, total, 1.0)), -float("inf")), mask=real)
