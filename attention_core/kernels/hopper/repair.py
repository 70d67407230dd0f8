"""What the Hopper programs marked, computed again by the portable ones.

In the forward these are rows with lse = +inf; a gradient that is not finite has all gradients computed again.

Marked are rows whose scores left the range of a frozen reference, and rows whose output is not finite:
either it truly is not, or a key that no row of the block may see holds NaN or an infinity, which p = 0
times it lets through. The portable program reads no such key. Without marks all programs end at once.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..triton.backward_key import backward_key
from ..triton.backward_query import backward_query, sum_parts
from ..triton.forward import forward as portable
from ..triton.primitives import group_of, job_at


@triton.jit(do_not_specialize=["q_len", "kv_len", "n_jobs", "heads", "kv_ratio", "n_slots", "programs", "threshold"])
def repair(
    MARKED, Q, K, V, OUT, LSE, PART_O, PART_LSE,
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    scale, q_len, kv_len, n_jobs, heads, kv_ratio, n_slots, n_lines, programs, seed, threshold, weight,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr,
    HAS_BITS: tl.constexpr, DROPOUT: tl.constexpr, MANY: tl.constexpr, OVERLAPPED: tl.constexpr = False,
):  # fmt: skip
    """The portable forward's programs, MANY to one of these: those work of which a row is marked.

    MARKED: whether a row may be; nobody takes it back, since another stream may use the same table.
    One to one, programs of so many registers come one by one to a multiprocessor, and each waits for three loads.
    Grid: [programs / MANY].
    """
    if OVERLAPPED:
        gdc_wait()
    if tl.load(MARKED) == 0:
        return
    ROW_TILES: tl.constexpr = (BLOCK_Q + BM - 1) // BM
    first = tl.program_id(0) * MANY
    program = (first + tl.arange(0, MANY)).to(tl.int64)  # [MANY]
    there = program < programs
    program = tl.where(there, program, 0)
    row_tile = (program % ROW_TILES).to(tl.int32)
    job = (program // ROW_TILES) % n_jobs
    batch_head = program // ROW_TILES // n_jobs
    group = group_of(head_group, batch_head // heads, batch_head % heads, heads, SHARED, BY_BATCH)
    line, _, _, slot = job_at(jobs, group, n_jobs, job)
    in_block = row_tile[:, None] * BM + tl.arange(0, BM)[None, :]  # [MANY, BM]
    row = line[:, None] * BLOCK_Q + in_block
    real = (there & (line >= 0))[:, None] & (in_block < BLOCK_Q) & (row < q_len)
    whole = (slot < 0)[:, None]
    at = ((batch_head * n_slots + slot) * BLOCK_Q)[:, None] + in_block
    lse = tl.load(LSE + batch_head[:, None] * q_len + row, mask=real & whole, other=0.0)
    part_lse = tl.load(PART_LSE + at, mask=real & ~whole, other=0.0)
    marked = (tl.max(tl.maximum(lse, part_lse), 1) == float("inf")).to(tl.int32)  # [MANY]
    marks = tl.max(marked, 0) * MANY  # without any the loop is empty
    for i in range(marks):
        if tl.sum(tl.where(tl.arange(0, MANY) == i, marked, 0), 0) > 0:
            portable(
                Q, K, V, K, V, OUT, LSE, PART_O, PART_LSE,
                full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
                stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
                scale, q_len, kv_len, n_jobs, heads, kv_ratio, n_slots, n_lines, seed, threshold, weight,
                D, D, D, D, BM, BN, TILE, GRANULE, BLOCK_Q, BLOCK_K, SHARED, BY_BATCH, HAS_BITS, False, DROPOUT,
                "tf32", 2, first + i,
            )  # fmt: skip


@triton.jit(do_not_specialize=["q_len", "kv_len", "n_jobs", "heads", "kv_ratio", "n_slots", "programs", "threshold"])
def repair_query(
    FLAG, Q, K, V, DO, LSE2, DELTA, DQ, PART_DQ,
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    scale2, scale, q_len, kv_len, n_jobs, heads, kv_ratio, n_slots, n_lines, programs, seed, threshold, weight,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr,
    HAS_BITS: tl.constexpr, DROPOUT: tl.constexpr, OVERLAPPED: tl.constexpr = False,
):  # fmt: skip
    """dQ by the portable programs, walked by few of these, if the flag is up. Grid: any."""
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    programs = programs if tl.load(FLAG) != 0 else 0
    for program in range(tl.program_id(0), programs, tl.num_programs(0)):
        backward_query(
            Q, K, V, K, V, DO, LSE2, DELTA, DQ, PART_DQ, DQ, DQ,
            full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
            stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
            stride_ob, stride_oh, stride_os,
            scale2, scale, q_len, kv_len, n_jobs, heads, kv_ratio, n_slots, n_lines, seed, threshold, weight,
            D, D, D, D, BM, BN, TILE, GRANULE, BLOCK_Q, BLOCK_K, SHARED, BY_BATCH, HAS_BITS, False, False, DROPOUT,
            "tf32", 2, program,
        )  # fmt: skip


@triton.jit(do_not_specialize=["q_len", "kv_len", "n_jobs", "kv_heads", "kv_ratio", "n_slots", "programs", "threshold"])
def repair_key(
    FLAG, Q, K, V, DO, LSE2, DELTA, DK, DV, PART_DK, PART_DV,
    full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    scale2, scale, q_len, kv_len, n_jobs, kv_heads, kv_ratio, n_slots, n_lines, programs, seed, threshold, weight,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr, GRANULE: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, SHARED: tl.constexpr, BY_BATCH: tl.constexpr,
    HAS_BITS: tl.constexpr, DROPOUT: tl.constexpr, OVERLAPPED: tl.constexpr = False,
):  # fmt: skip
    """dK and dV by the portable programs, walked by few of these, if the flag is up. Grid: any."""
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    programs = programs if tl.load(FLAG) != 0 else 0
    for program in range(tl.program_id(0), programs, tl.num_programs(0)):
        backward_key(
            Q, K, V, DO, Q, DO, LSE2, DELTA, DK, DV, PART_DK, PART_DV,
            full_ptr, full_units, masked_ptr, masked_units, low, high, bits, masks, head_group, jobs,
            stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
            stride_ob, stride_oh, stride_os,
            scale2, scale, q_len, kv_len, n_jobs, kv_heads, kv_ratio, n_slots, n_lines, seed, threshold, weight,
            D, D, D, D, BM, BN, TILE, GRANULE, BLOCK_Q, BLOCK_K, SHARED, BY_BATCH, HAS_BITS, False, DROPOUT,
            "tf32", 2, program,
        )  # fmt: skip


@triton.jit(do_not_specialize=["length", "n_splits", "outer", "kv_ratio", "n_slots"])
def repair_parts(
    FLAG, PART, WHOLE, splits, head_group, length, n_splits, outer, kv_ratio, n_slots,
    D: tl.constexpr, D_PAD: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr, SHARED: tl.constexpr,
    BY_BATCH: tl.constexpr, OVERLAPPED: tl.constexpr = False,
):  # fmt: skip
    """Add the parts of split lines, unless there is a flag and it is down."""
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    if FLAG is not None:  # noqa: SIM102 - decided before the program is compiled
        if tl.load(FLAG) == 0:
            return
    sum_parts(PART, WHOLE, splits, head_group, length, n_splits, outer, kv_ratio, n_slots, D, D_PAD, BM, BLOCK, SHARED,
              BY_BATCH)  # fmt: skip
