"""The faster backward on Hopper: one program, five products a tile, dQ added up in float32 in no fixed order.

As in backward.py a program owns 128 keys, two consumers with 64 each, whose K and V stay in shared memory
while tiles of Q and dO stream through rings; dK and dV are summed in registers, with the scores transposed:

    S' = K Q',  dP' = V dO',  P = exp2(S - lse),  dS' = P' (dP' - delta),  dV += P' dO,  dK += dS' Q

What is new is dQ = dS K. It needs the keys of both consumers, so dS' goes through shared memory (two buffers), and is
added to a float32 sum in global memory. backward.py computes S and dP twice instead, and its results are bitwise
repeatable. At D 64 the consumers take turns at dQ, a tile each, so that one multiplies while the other computes
exponentials. At D 128, where a tile has half the exponentials, they meet, and each multiplies 64 of dQ's columns: that
was the faster way there, as the turns were at D 64 (notes/hopper.md).

The sums stand in the order of the registers that hold them (`in_register_order`): 4 neighbouring numbers a thread,
512 bytes a warp. So they pass shared memory without bank conflicts on their way to the copy engine.

Between two entries of the table nothing is multiplied, so what comes next is on its way early: the next K has a buffer
of its own, and V's is free at the last product, since dV leaves through a consumer's buffers of dS' and dK through the
one of dQ.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .adding_feed import POSTED, produce
from .boxes import first_row, steps_of
from .claims import new_post, posted
from .gluon_api import box_add, thread_barrier, view
from .masks import allowed_pairs, mask_ahead
from .outputs import clear, leave, raise_flag
from .ring import afresh, await_turn, meet, next_slot, pass_turn


@gluon.jit
def _weights(s, ahead, numbers, slot, half, walked, step, first, q_len, scale, MASKED: gl.constexpr, N: gl.constexpr,
             GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr,
             S: gl.constexpr):  # fmt: skip
    """P' of 64 queries: what their scores weigh. # [64 keys, 64]"""
    lse = numbers.index(slot * (N // 64) + half).load(gl.SliceLayout(0, S))
    p = gl.exp2(s * scale - lse[None, :])
    if MASKED:
        allowed = allowed_pairs(ahead, walked, step * (N // 64) + half, first, q_len, 64, GRANULE, BLOCK_Q, BLOCK_K,
                                HAS_BITS, S, True)  # fmt: skip
        p = gl.where(allowed, p, 0.0)
    return p


@gluon.jit
def _in_register_order(x):
    """A part [64, 64] of the sums, in the layout of a product, as [128, 32]: what memory holds, in its order.

    Of the bits of a product's row and column a thread of a warpgroup has [warp, -, lane // 4] and [-, -, lane % 4, -]:
    the row's free bit comes first, then two bits of the column, the thread, and last two bits of the column.
    """
    x = gl.reshape(x, [4, 2, 8, 4, 2, 4, 2])
    return gl.reshape(gl.permute(x, [1, 3, 0, 2, 5, 4, 6]), [128, 32])


@gluon.jit
def _fold(own, other, bars, extra, slot, phase, parity, dk, dv, walked, units, step, head_rows, first,
          q_len, scale, V_IN_REGISTERS: gl.constexpr, GROUP: gl.constexpr, MASKED: gl.constexpr, N: gl.constexpr,
          D: gl.constexpr, GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr,
          S: gl.constexpr, A: gl.constexpr):  # fmt: skip
    """Add one tile of queries to dK (without the scale) and dV, [64, D] each, and to dQ in global memory."""
    k_ring, v_own, mine = own
    q_ring, do_ring, lse_ring, delta_ring = other
    mine = afresh(mine, slot)
    k_left = k_ring.index(mine + GROUP)
    v_left = v_own if V_IN_REGISTERS else v_own.index(afresh(GROUP, slot))
    x_full, _, y_full, _ = bars
    ds_ring = extra[0]
    half: gl.constexpr = ds_ring.dtype
    HALVES: gl.constexpr = N // 64  # 64 queries each
    zero = gl.zeros([64, 64], gl.float32, S)
    base = slot * HALVES
    row = first_row(units, step, N, GRANULE)
    # In flight at each point: what stands in the comments, first issued first. A wait for n leaves the last n.
    mbarrier.wait(x_full.index(slot), phase)
    scores = warpgroup_mma(k_left, q_ring.index(base).permute([1, 0]), zero, use_acc=False, is_async=True)
    mbarrier.wait(y_full.index(slot), phase)
    weighted = warpgroup_mma(v_left, do_ring.index(base).permute([1, 0]), zero, use_acc=False, is_async=True)
    if HALVES == 2:
        more_scores = warpgroup_mma(k_left, q_ring.index(base + 1).permute([1, 0]), zero, use_acc=False, is_async=True)
    mask = ()
    if MASKED:
        mask = mask_ahead(walked, step * HALVES, first, 64, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, True)
    s = warpgroup_mma_wait(HALVES, deps=[scores])  # dP, S of the second half
    p = _weights(s, mask, lse_ring, slot, 0, walked, step, first, q_len, scale, MASKED, N, GRANULE, BLOCK_Q, BLOCK_K,
                 HAS_BITS, S)  # fmt: skip
    p_half = gl.convert_layout(p.to(half), A)
    dv = warpgroup_mma(p_half, do_ring.index(base), dv, is_async=True)
    dp = warpgroup_mma_wait(HALVES, deps=[weighted])  # S of the second half, dV
    ds = p * (dp - delta_ring.index(base).load(gl.SliceLayout(0, S))[None, :])
    if MASKED:
        ds = gl.where(p == 0, 0.0, ds)
    ds = ds.to(half)
    ds_ring.index((GROUP * 2 + parity) * HALVES).store(ds)
    ds_half = gl.convert_layout(ds, A)
    if HALVES == 2:
        dk = warpgroup_mma(ds_half, q_ring.index(base), dk, is_async=True)
        weighted = warpgroup_mma(v_left, do_ring.index(base + 1).permute([1, 0]), zero, use_acc=False, is_async=True)
        if MASKED:
            mask = mask_ahead(walked, step * 2 + 1, first, 64, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, True)
        s = warpgroup_mma_wait(3, deps=[more_scores])  # dV, dK, dP
        p = _weights(s, mask, lse_ring, slot, 1, walked, step, first, q_len, scale, MASKED, N, GRANULE, BLOCK_Q,
                     BLOCK_K, HAS_BITS, S)  # fmt: skip
        p_more = gl.convert_layout(p.to(half), A)
        dv = warpgroup_mma(p_more, do_ring.index(base + 1), dv, is_async=True)
        dp, dk, ds_half = warpgroup_mma_wait(1, deps=[weighted, dk, ds_half])  # dV
        ds = p * (dp - delta_ring.index(base + 1).load(gl.SliceLayout(0, S))[None, :])
        if MASKED:
            ds = gl.where(p == 0, 0.0, ds)
        ds = ds.to(half)
        ds_ring.index((GROUP * 2 + parity) * HALVES + 1).store(ds)
        ds_last = gl.convert_layout(ds, A)
    else:
        ds_last = ds_half
    fence_async_shared()
    # What the rows are is worked out at the end, not here: their load has come by then.
    tile = slot, parity, head_rows, row
    if HALVES == 2:
        return _end_in_turn(k_ring, mine, bars, extra, tile, dk, dv, p_half, p_more, ds_last, q_ring, GROUP, D)
    else:
        return _end_together(k_ring, mine, bars, extra, tile, dk, dv, p_half, ds_last, q_ring, GROUP, S)


@gluon.jit
def _end_in_turn(k_ring, mine, bars, extra, tile, dk, dv, p_half, p_more, ds_half, q_ring, GROUP: gl.constexpr,
                 D: gl.constexpr):  # fmt: skip
    """The last dK of a tile of 128 queries, and all of dQ by the consumer whose turn it is."""
    _, x_free, _, y_free = bars
    slot, parity, head_rows, row = tile
    ds_ring, stage, stage_box, sum_box = extra
    O: gl.constexpr = dk.type.layout  # noqa: E741
    # Who passes the turn has written its dS', read all of the tile before, whose buffers of dS' are written next, and
    # left the one of dQ.
    if parity != GROUP:
        tma.store_wait(0)
        pass_turn(GROUP, True)
    dk = warpgroup_mma(ds_half, q_ring.index(slot * 2 + 1), dk, is_async=True)
    dk, dv, p_half, p_more, ds_half = warpgroup_mma_wait(0, deps=[dk, dv, p_half, p_more, ds_half])
    mbarrier.arrive(x_free.index(slot))
    mbarrier.arrive(y_free.index(slot))
    if parity == GROUP:
        await_turn(GROUP, True)
        for h in gl.static_range(2):
            dq = gl.zeros([64, D], gl.float32, O)
            for g in gl.static_range(2):
                left = ds_ring.index((g * 2 + parity) * 2 + h).permute([1, 0])
                dq = warpgroup_mma(left, k_ring.index(mine + g), dq, use_acc=g > 0, is_async=True)
            dq = warpgroup_mma_wait(0, deps=[dq])
            stage.index(h).store(_in_register_order(dq))
        fence_async_shared()
        box_add(sum_box, [(head_rows + row) // 64 * 128, 0], stage_box)
    return dk, dv


@gluon.jit
def _end_together(k_ring, mine, bars, extra, tile, dk, dv, p_half, ds_half, q_ring, GROUP: gl.constexpr,
                  S: gl.constexpr):  # fmt: skip
    """The dK of a tile of 64 queries, and this consumer's 64 columns of dQ."""
    _, x_free, _, y_free = bars
    slot, parity, head_rows, row = tile
    ds_ring, stage, _, sum_box = extra
    k_panels = view(k_ring, [k_ring.shape[0] * 2, 64, 64], ds_ring.layout)
    # Past this point both consumers' dS' is written, and both are done with the last tile but one: its buffer may be
    # written again.
    meet()
    dq = gl.zeros([64, 64], gl.float32, S)
    for g in gl.static_range(2):
        left = ds_ring.index(g * 2 + parity).permute([1, 0])
        dq = warpgroup_mma(left, k_panels.index((mine + g) * 2 + GROUP), dq, use_acc=g > 0, is_async=True)
    # dK comes last: while it is multiplied dQ leaves the registers.
    dk = warpgroup_mma(ds_half, q_ring.index(slot), dk, is_async=True)
    dv, dq, p_half = warpgroup_mma_wait(1, deps=[dv, dq, p_half])  # dK
    mbarrier.arrive(y_free.index(slot))
    part = (head_rows + row) // 64 * 2 + GROUP
    tma.store_wait(0)
    stage.index(GROUP).store(_in_register_order(dq))
    fence_async_shared()
    box_add(sum_box, [part * 128, 0], stage.index(GROUP))
    dk, ds_half = warpgroup_mma_wait(0, deps=[dk, ds_half])
    mbarrier.arrive(x_free.index(slot))
    return dk, dv


@gluon.jit
def _consume(
    common, V_IN_REGISTERS: gl.constexpr, GROUP: gl.constexpr, K_BUFFERS: gl.constexpr,
    SLOTS: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, STEPS: gl.constexpr, D: gl.constexpr,
    BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, MASKED: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    (out_boxes, rings, numbers, leaving, bars, posts, extra, walked, full_units, results, items, counts,
     scale2, scale, kv_len, q_len, kv_heads, kv_ratio, flag) = common  # fmt: skip
    k_box, v_box = out_boxes
    k_ring, v_ring, q_ring, do_ring = rings
    lse_ring, delta_ring = numbers
    other = (q_ring, do_ring, lse_ring, delta_ring)
    dk_ring, dk_boxed, dv_ring, dv_boxed = leaving
    k_full, k_free, v_full, v_free, x_full, x_free, y_full, y_free = bars
    streamed = (x_full, x_free, y_full, y_free)
    dk_out, dv_out, k_parts, v_parts = results
    masked_units = walked[0]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])  # noqa: E741
    A: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    k_slot = 0
    k_phase = 0
    v_phase = 0
    slot = 0
    phase = 0
    parity = 0
    entry, post_phase = posted(posts, 0, POSTED, 4)
    while entry[0] >= 0:
        batch, kv_head, first, scratch, turn = entry
        item = items + turn * (4 + 4 * kv_ratio)
        first = first + GROUP * 64
        tma.store_wait(0)  # the previous gradients have left the buffers of dS' and dQ
        mbarrier.wait(k_full.index(k_slot), k_phase)
        mbarrier.wait(v_full.index(0), v_phase)
        K: gl.constexpr = gl.DotOperandLayout(0, S, 2)
        v_own = v_ring
        if V_IN_REGISTERS:
            v_own = v_ring.index(GROUP).load(K)
            thread_barrier()
            mbarrier.arrive(v_free.index(0))
        own = (k_ring, v_own, k_slot * 2)
        dk = gl.zeros([64, D], gl.float32, O)
        dv = gl.zeros([64, D], gl.float32, O)
        for member in range(0, kv_ratio):
            tiles = item + 4 + member * 4
            masked_begin, masked, full_begin, full = steps_of(tiles, STEPS)
            # Sums of each head begin at a whole part.
            head_rows = (batch * kv_heads * kv_ratio + kv_head * kv_ratio + member) * ((q_len + 63) // 64 * 64)
            if MASKED:
                for j in range(0, masked):
                    dk, dv = _fold(
                        own, other, streamed, extra, slot, phase, parity, dk, dv, walked,
                        masked_units, masked_begin + j, head_rows, first, q_len, scale2, V_IN_REGISTERS, GROUP, True, N,
                        D, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, A)  # fmt: skip
                    slot, phase = next_slot(slot, phase, SLOTS)
                    parity = parity ^ 1
            for j in range(0, full):
                dk, dv = _fold(
                    own, other, streamed, extra, slot, phase, parity, dk, dv, walked, full_units,
                    full_begin + j, head_rows, first, q_len, scale2, V_IN_REGISTERS, GROUP, False, N, D, GRANULE,
                    BLOCK_Q, BLOCK_K, HAS_BITS, S, A)  # fmt: skip
                slot, phase = next_slot(slot, phase, SLOTS)
                parity = parity ^ 1
        meet()  # past this point both consumers have read both halves of K, and all of dS'
        mbarrier.arrive(k_free.index(k_slot))
        if not V_IN_REGISTERS:
            mbarrier.arrive(v_free.index(0))
        k_slot, k_phase = next_slot(k_slot, k_phase, K_BUFFERS)
        v_phase = v_phase ^ 1
        raise_flag(flag, dk, first, kv_len, O)
        raise_flag(flag, dv, first, kv_len, O)
        DV_PLACES: gl.constexpr = N // 32 * 64 // D  # of [64, D] in the buffers of dS' of a consumer
        leave(dv, dv_ring, GROUP * DV_PLACES, v_box, dv_boxed, v_parts, batch, kv_head, first, scratch, kv_len, GROUP,
              D, SPLIT, O)  # fmt: skip
        tma.store_wait(1)  # the last dQ has left its buffer; dV may take its time
        if N == 128:
            meet()  # whoever's turn it was
        DK_PLACES: gl.constexpr = 128 // D  # in half of the buffer of dQ
        leave(dk * scale, dk_ring, GROUP * DK_PLACES, k_box, dk_boxed, k_parts, batch, kv_head, first, scratch, kv_len,
              GROUP, D, SPLIT, O)  # fmt: skip
        entry, post_phase = posted(posts, post_phase, POSTED, 4)
    tma.store_wait(0)

    # Keys without tiles come last in the table.
    for turn in range(gl.load(counts) + gl.program_id(0), gl.load(counts + 1), gl.num_programs(0)):
        item = items + turn * (4 + 4 * kv_ratio)
        base = (gl.load(item) * kv_heads + gl.load(item + 1)).to(gl.int64) * kv_len
        clear(dk_out, base, gl.load(item + 2) + GROUP * 64, kv_len, D, O)
        clear(dv_out, base, gl.load(item + 2) + GROUP * 64, kv_len, D, O)


@gluon.jit(do_not_specialize=["kv_len", "q_len", "kv_heads", "kv_ratio"])
def backward_adding(
    k_box, v_box, q_box, do_box, dk_box, dv_box, sum_box, dk_out, dv_out, k_parts, v_parts, lse2, delta,
    flag, counter, full_units, masked_units, low, high, bits, masks, items, counts, scale2, scale, kv_len, q_len,
    kv_heads, kv_ratio,
    D: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, STEPS: gl.constexpr, BLOCK_Q: gl.constexpr,
    BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, MASKED: gl.constexpr, SPLIT: gl.constexpr,
    K_BUFFERS: gl.constexpr, SLOTS: gl.constexpr, V_IN_REGISTERS: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr, OVERLAPPED: gl.constexpr = False,
):  # fmt: skip
    """dK and dV of every key, and dQ without the scale added to the float32 [parts * 128, 32] of `sum_box`.

    `counter` is 0 at first. V_IN_REGISTERS: V is held there as the left operand of dP.
    Grid: [multiprocessors]. GRANULE >= N, a power of two; N * D is 8192. A box of the sums is what a consumer adds of a
    tile: one part of 64 x 64 at D 128, two at D 64.
    """
    gdc_launch_dependents()
    half: gl.constexpr = k_box.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    k_ring = gl.allocate_shared_memory(half, [K_BUFFERS * 2, 64, D], flat)
    v_ring = gl.allocate_shared_memory(half, [2, 64, D], flat)
    q_ring = gl.allocate_shared_memory(half, [SLOTS * (N // 64), 64, D], flat)
    do_ring = gl.allocate_shared_memory(half, [SLOTS * (N // 64), 64, D], flat)
    ds_ring = gl.allocate_shared_memory(half, [4 * (N // 64), 64, 64], flat)
    line: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    lse_ring = gl.allocate_shared_memory(gl.float32, [SLOTS * (N // 64), 64], line)
    delta_ring = gl.allocate_shared_memory(gl.float32, [SLOTS * (N // 64), 64], line)
    stage = gl.allocate_shared_memory(gl.float32, [2, 128, 32], sum_box.layout)
    lse_tiles = view(lse_ring, [SLOTS, N], line)  # as the producer sees them
    delta_tiles = view(delta_ring, [SLOTS, N], line)
    k_boxed = view(k_ring, [K_BUFFERS * 2, 1, 1, 64, D], k_box.layout)
    v_boxed = view(v_ring, [2, 1, 1, 64, D], v_box.layout)
    q_boxed = view(q_ring, [SLOTS, 1, 1, N, D], q_box.layout)
    do_boxed = view(do_ring, [SLOTS, 1, 1, N, D], do_box.layout)
    # What dK and dV leave through: a consumer's buffer of dQ, and its buffers of dS', which follow one another.
    WIDE: gl.constexpr = 4 * (N // 64) // (D // 64)
    dk_ring = view(stage, [256 // D, 64, D], flat, half)
    dv_ring = view(ds_ring, [WIDE, 64, D], flat)
    dk_boxed = view(stage, [256 // D, 1, 1, 64, D], dk_box.layout, half)
    dv_boxed = view(ds_ring, [WIDE, 1, 1, 64, D], dv_box.layout)
    b: gl.constexpr = mbarrier.MBarrierLayout()
    k_full = gl.allocate_shared_memory(gl.int64, [K_BUFFERS, 1], b)
    k_free = gl.allocate_shared_memory(gl.int64, [K_BUFFERS, 1], b)
    v_full = gl.allocate_shared_memory(gl.int64, [1, 1], b)
    v_free = gl.allocate_shared_memory(gl.int64, [1, 1], b)
    x_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    x_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    y_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    y_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    for i in gl.static_range(K_BUFFERS):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)  # both consumers
    mbarrier.init(v_full.index(0), count=1)
    mbarrier.init(v_free.index(0), count=2)
    for i in gl.static_range(SLOTS):
        mbarrier.init(x_full.index(i), count=2)  # the box and the numbers beside it
        mbarrier.init(x_free.index(i), count=2)  # both consumers
        mbarrier.init(y_full.index(i), count=2)
        mbarrier.init(y_free.index(i), count=2)
    bars = (k_full, k_free, v_full, v_free, x_full, x_free, y_full, y_free)
    extra = (ds_ring, stage, view(stage, [256, 32], sum_box.layout), sum_box)
    posts = new_post(POSTED, 2)
    leaving = (dk_ring, dk_boxed, dv_ring, dv_boxed)
    common = ((dk_box, dv_box), (k_ring, v_ring, q_ring, do_ring), (lse_ring, delta_ring), leaving, bars, posts, extra,
              (masked_units, low, high, bits, masks), full_units, (dk_out, dv_out, k_parts, v_parts), items, counts,
              scale2, scale, kv_len, q_len, kv_heads, kv_ratio, flag)  # fmt: skip
    if OVERLAPPED:
        gdc_wait()
    gl.warp_specialize(
        [
            (_consume, (common, V_IN_REGISTERS, 0, K_BUFFERS, SLOTS, N, GRANULE, STEPS, D, BLOCK_Q, BLOCK_K,
                        HAS_BITS, MASKED, SPLIT)),
            (_consume, (common, V_IN_REGISTERS, 1, K_BUFFERS, SLOTS, N, GRANULE, STEPS, D, BLOCK_Q, BLOCK_K,
                        HAS_BITS, MASKED, SPLIT)),
            (produce, ((k_box, v_box, q_box, do_box), (k_boxed, v_boxed, q_boxed, do_boxed), (lse_tiles, delta_tiles),
                       bars, posts, masked_units, full_units, lse2, delta, items, counts, counter, q_len, kv_heads,
                       kv_ratio, K_BUFFERS, SLOTS, N, GRANULE, STEPS, D)),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip


@triton.jit(do_not_specialize=["q_len"])
def finish_queries(SUMS, DQ, FLAG, scale, q_len, D: tl.constexpr, OVERLAPPED: tl.constexpr = False):
    """dq [batch * heads, q_len, D] = sums * scale in its dtype; a sum that is not finite raises the flag.

    Grid: [parts]. A part is 64 rows of 64 columns, in the order of `_in_register_order`; a head has whole parts.
    """
    if OVERLAPPED:
        gdc_launch_dependents()
        gdc_wait()
    PANELS: tl.constexpr = D // 64
    part = tl.program_id(0).to(tl.int64)
    x = tl.load(SUMS + part * 4096 + tl.arange(0, 4096))
    x = tl.permute(tl.reshape(x, [2, 4, 4, 8, 4, 2, 2]), [2, 0, 3, 1, 5, 4, 6])
    x = tl.reshape(x, [64, 64])
    parts = (q_len + 63) // 64 * PANELS
    row = part % parts // PANELS * 64 + tl.arange(0, 64)
    at = (part // parts * q_len + row)[:, None] * D + (part % PANELS * 64 + tl.arange(0, 64))[None, :]
    tl.store(DQ + at, (x * scale).to(DQ.dtype.element_ty), mask=(row < q_len)[:, None])
    if tl.sum(tl.sum(x * 0.0, 1), 0) != 0:  # 0 times what is not finite is NaN
        tl.store(FLAG, 1)
