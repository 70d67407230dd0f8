"""mean_mass: mean queries of blocks and, in the same launch, their masses of tiles, while later means are still read.

Reading q keeps the memory busy and multiplying keys the tensor cores, so both go on at once. A *unit* is a chunk of
query blocks of all query heads that share a key head: their rows lie under one another in one product, which so stops
nearer to the diagonal, and keys are read and multiplied once for them. Programs take tickets; tickets of a unit's
masses come `AHEAD` units after those of its means and wait until these are there. Who waits holds a later ticket than
those it waits for, so in whatever order programs start, they come to an end.
"""

# Programs of Triton's language only look like Python.
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..tables import kept_table
from ..tiling import Tiling
from .launch import launch, power_of_two
from .tile_mass import LN2, LOG2E

ROWS, KEYS = 128, 128  # of a product
READ = 32768  # bytes of q's block that a program reads in one step, at most
TOKENS = 512  # of q that a program of means reads, in steps that are under way together
UNDER_WAY = 3 * READ  # bytes of them at most: two programs, of means or masses, fit a multiprocessor
STEPS = 16  # of KEYS keys that a program of masses multiplies, at most
AHEAD = 6  # units whose means come before the first masses
TWO = 128  # registers of a thread, with which two programs fit a multiprocessor; more where those would be spilled
TOGETHER = True  # in one launch; in two where False


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


@triton.jit(do_not_specialize=["factor", "kv_heads", "rows", "tokens", "keys", "tiles", "units", "chunks", "reads",
                               "parts", "ahead", "shift", "last_stride", "rows_stride", "keys_stride"])  # fmt: skip
def mean_mass(
    Q, K, last, there_q, there_k, counters, asked, out,
    factor, kv_heads, rows, tokens, keys, tiles, units, chunks, reads, parts, ahead, shift,
    last_stride, rows_stride, keys_stride,
    stride_qb, stride_qh, stride_qt, stride_qd, stride_kb, stride_kh, stride_kt, stride_kd,
    SHARE: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, SIZE: tl.constexpr, T: tl.constexpr,
    READS: tl.constexpr, STAGES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, TILE: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED_Q: tl.constexpr, MASKED_K: tl.constexpr, LOG2E: tl.constexpr, LN2: tl.constexpr,
    PART: tl.constexpr,
):  # fmt: skip
    """READS blocks' means, or masses of BM rows in one of `parts` parts of their keys. Grid: [units * (reads + parts)].

    PART: 0 both, 1 means alone, 2 masses alone, with a grid of [units * reads] and [units * parts].
    """
    BLOCKS: tl.constexpr = BM // SHARE  # of a unit, for each of its heads
    place = tl.program_id(0)
    call = place.to(tl.int64) * 0
    if PART == 0:
        # Counters only ever grow, so nobody has to clear them: a call takes 2^shift tickets, its last program the rest.
        ticket = tl.atomic_add(counters, 1, sem="relaxed")
        call, place = ticket >> shift, (ticket & ((1 << shift) - 1)).to(tl.int32)
        if place == tl.num_programs(0) - 1:
            tl.atomic_add(counters, (1 << shift) - tl.num_programs(0).to(tl.int64), sem="relaxed")
        # First means of `ahead` units, then both in turns, then masses of the last `ahead` units.
        both = reads + parts
        turn = place - ahead * reads
        turns = (units - ahead) * both
        if turn < 0:
            reading, unit, part = 1, place // reads, place % reads
        elif turn >= turns:
            reading, unit, part = 0, units - ahead + (turn - turns) // parts, (turn - turns) % parts
        else:
            at = turn % both
            part = at * parts // both  # masses up to here
            reading = ((at + 1) * parts // both == part).to(tl.int32)
            part = tl.where(reading > 0, at - part, part)
            unit = turn // both + tl.where(reading > 0, ahead, 0)
    elif PART == 1:
        reading, unit, part = 1, place // reads, place % reads
    else:
        reading, unit, part = 0, place // parts, place % parts
    group = (unit // chunks).to(tl.int64)  # item and key head
    chunk = chunks - 1 - unit % chunks  # those that see most keys first
    item, kv_head = group // kv_heads, group % kv_heads
    d = tl.arange(0, D_PAD)
    if reading > 0:
        inside, ones = tl.arange(0, T), tl.full([16, T], 1.0, Q.dtype.element_ty)
        q_base = Q + item * stride_qb + kv_head * SHARE * stride_qh
        for read in tl.range(0, READS, num_stages=STAGES):
            index = part * READS + read
            member, block = index // BLOCKS, chunk * BLOCKS + index % BLOCKS
            real = (member < SHARE) & (block < rows)
            token = block * SIZE
            there = inside < tl.where(real, tl.minimum(tokens - token, SIZE), 0)
            if MASKED_Q:
                there &= tl.load(there_q + item * rows_stride + token + inside, mask=there, other=0) != 0
            start = q_base + member.to(tl.int64) * stride_qh + token.to(tl.int64) * stride_qt
            x = tl.load(start + ((inside * stride_qt)[:, None] + (d * stride_qd)[None, :]),
                        mask=there[:, None] & (d < D)[None, :], other=0, eviction_policy="evict_first")  # fmt: skip
            if MASKED_Q:
                count = tl.maximum(tl.sum(there.to(tl.float32), 0), 1.0)
            else:
                count = tl.maximum(tl.minimum(tokens - token, SIZE), 1).to(tl.float32)
            # A sum is a product with ones: a sixth of the instructions that converting and adding takes, which masses
            # on the same multiprocessor need. Sixteen rows are the fewest that are multiplied; one of them is stored.
            mean = tl.dot(ones, x) * tl.div_rn(tl.zeros_like(count) + factor, count)
            where_to = asked + ((group * SHARE + member) * rows + block) * D + d
            tl.store(where_to[None, :] + tl.zeros([16, 1], tl.int32), mean.to(asked.dtype.element_ty),
                     mask=(tl.arange(0, 16) == 0)[:, None] & (d < tl.where(real, D, 0))[None, :])  # fmt: skip
        if PART == 0:
            tl.debug_barrier()  # all threads have stored
            tl.atomic_add(counters + 1 + unit, 1, sem="release")
    else:
        r = tl.arange(0, BM)
        row, member = chunk * BLOCKS + r // SHARE, r % SHARE
        there = (row < rows) & (r < BLOCKS * SHARE)
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
        if MASKED_K:
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
            if PART == 0:
                wanted = (call + 1) * reads
                while tl.atomic_add(counters + 1 + unit, 0, sem="acquire") < wanted:
                    pass
            a = tl.load(asked + line[:, None] * D + d[None, :], mask=there[:, None] & (d < D)[None, :], other=0)
            # A step of the loops takes the masses of the products of the step before, then multiplies: copies of the
            # next keys are asked for at its end and so are under way while masses are taken.
            real_k = there_k + item * keys_stride
            s = tl.dot(a, _keys(k_base, real_k, begin, keys, stride_kt, stride_kd, D, D_PAD, BN, MASKED_K))
            # Two loops, as a comparison and a choice for each score take as long as its exponential.
            if not MASKED_K:
                for first in tl.range(begin + BN, tl.minimum(turn_at + BN, end), BN, num_stages=2):
                    tile = (first - BN) // TILE + tl.arange(0, BN // TILE)
                    tl.store(row_out + tile[None, :], _masses(s, BM, BN, TILE, LOG2E, LN2), mask=there[:, None])
                    s = tl.dot(a, _keys(k_base, real_k, first, keys, stride_kt, stride_kd, D, D_PAD, BN, MASKED_K))
            for first in tl.range(tl.minimum(turn_at + BN, end), end, BN, num_stages=2):
                s = _seen(s, bound, real_k, first - BN, keys, BN, MASKED_K)
                tile = (first - BN) // TILE + tl.arange(0, BN // TILE)
                tl.store(row_out + tile[None, :], _masses(s, BM, BN, TILE, LOG2E, LN2), mask=there[:, None])
                s = tl.dot(a, _keys(k_base, real_k, first, keys, stride_kt, stride_kd, D, D_PAD, BN, MASKED_K))
            s = _seen(s, bound, real_k, end - BN, keys, BN, MASKED_K)
            tile = (end - BN) // TILE + tl.arange(0, BN // TILE)
            tl.store(row_out + tile[None, :], _masses(s, BM, BN, TILE, LOG2E, LN2),
                     mask=there[:, None] & (tile < tiles)[None, :])  # fmt: skip


def fits(q: Tensor, k: Tensor, tiling: Tiling) -> bool:
    """Whether the program takes them: half precision, a block of q in one step, key blocks of 8, 16, ... 128 tokens."""
    wide, share = tiling.block[1], q.shape[1] // k.shape[1]
    return (
        q.element_size() == 2
        and q.shape[3] <= 128
        and power_of_two(tiling.block[0]) * max(16, power_of_two(q.shape[3])) * 2 <= READ
        and 8 <= wide <= KEYS
        and wide & (wide - 1) == 0
        and share <= ROWS
        and max(tiling.offset + tiling.q_len, tiling.kv_len) <= 2**24
        and all(abs(step) < 2**22 for x in (q, k) for step in x.stride()[2:])
    )


def counters_of(tiling: Tiling, device: torch.device, units: int, reads: int, parts: int) -> Tensor:
    """Tickets taken and, for each unit, programs of means that are done, in all calls alike on a stream together."""
    return torch.zeros(1 + units, dtype=torch.int64, device=device)


def masses_of_mean_queries(
    q: Tensor, k: Tensor, last: Tensor, tiling: Tiling, factor: float, rows: Tensor | None, keys: Tensor | None
) -> Tensor:
    """`ln sum exp(factor * mean of q's block . k_j)` over the keys j of each tile that the block sees; -inf if none.

    q: [batch, heads, q_len, head_dim]; k: [batch, kv_heads, kv_len, head_dim] of its dtype, in which means are
    multiplied. last: int32 [1 or batch, q_blocks], the position of a block's last row, -2^30 or below if it sees
    nothing. rows: bool [1 or batch, q_len], keys: bool [1 or batch, kv_len]: what is not True takes no part and is not
    read. Returns float32 [batch, heads, q_blocks, kv_blocks]. Reads q once.
    """
    (batch, heads, q_len, dim), (kv_heads, kv_len) = q.shape, k.shape[1:3]
    (size, wide), q_blocks, kv_blocks, share = tiling.block, tiling.q_blocks, tiling.kv_blocks, heads // kv_heads
    out = q.new_empty((batch, heads, q_blocks, kv_blocks), dtype=torch.float32)
    asked = q.new_empty((batch, heads, q_blocks, dim))
    d_pad, t = max(16, power_of_two(dim)), power_of_two(size)
    down = min(ROWS, max(16, power_of_two(q_blocks * share)))
    blocks = down // share
    chunks = -(-q_blocks // blocks)
    units = batch * kv_heads * chunks
    each = max(1, min(blocks, TOKENS // t))  # blocks of q that a program reads
    reads, parts = -(-blocks * share // each), -(-kv_len // (KEYS * STEPS))
    ahead = min(AHEAD, units)
    flags = [None if x is None else x.contiguous().view(torch.uint8) for x in (rows, keys)]
    counters = kept_table(counters_of, tiling, q.device, units, reads, parts) if TOGETHER else last
    grids = ((0, units * (reads + parts)),) if TOGETHER else ((1, units * reads), (2, units * parts))
    for part, grid in grids:
        launch(
            mean_mass, grid,
            (q, k, last, *(last if x is None else x for x in flags), counters, asked, out),
            (
                factor, kv_heads, q_blocks, q_len, kv_len, kv_blocks, units, chunks, reads, parts, ahead,
                (grid - 1).bit_length(), *(0 if x is None or len(x) == 1 else x.shape[1] for x in (last, *flags)),
                *q.stride(), *k.stride(),
            ),
            SHARE=share, D=dim, D_PAD=d_pad, SIZE=size, T=max(16, t), READS=each,
            STAGES=1 + min(each, UNDER_WAY // (t * d_pad * 2)), BM=down, BN=KEYS, TILE=wide, CAUSAL=tiling.causal,
            MASKED_Q=rows is not None, MASKED_K=keys is not None, LOG2E=LOG2E, LN2=LN2, PART=part,
            num_warps=8 if down == 128 else 4,
            maxnreg=TWO if down == 128 and wide >= 32 and keys is None else None,
        )  # fmt: skip
    return out
