"""Backward on Hopper: two programs of one shape, dQ by queries and dK, dV by keys; bitwise repeatable.

A program stays on its multiprocessor and works entries of the work table (schedule.py), which its producer claims
(claims.py). 128 rows of two matrices stay in shared memory (Q and dO for dQ, K and V for dK and dV) while tiles of the
other two stream through rings. Whoever works an entry sums its tiles in the order of the lists, so claims leave the
results bitwise what they are.
Each of two consumers owns 64 of the rows; scores, P and dS never leave its registers, where they are the
first operand of the products that sum the gradients. By keys the scores are held transposed, and the producer brings
a tile's LSE and delta beside it (row_numbers.py).

    by queries   S = Q K',  dP = dO V',  dS = P (dP - delta),  dQ += dS K                     3 products a tile
    by keys      S' = K Q', dP' = V dO', dV += P' dO,          dK += dS' Q                    4 products a tile

A gradient that is not finite raises `flag`: repair.py then computes all again by the portable program, which
reads nothing that may not be seen (0 * NaN from such a row is what makes a sum NaN here).

With dropout, D being the weight of a kept pair or 0: dV += (P D)' dO and dS = P (D dP - delta). Between the two
the sign of P, never negative itself, says whether a pair is kept: no register more.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .boxes import boxed, first_row, load_own, load_tile, steps_of
from .claims import claim, new_post, post, posted
from .dropout_mask import kept, positions, seed_halves
from .gluon_api import view
from .masks import allowed_pairs, mask_ahead
from .outputs import clear, leave, raise_flag
from .ring import afresh, next_slot
from .row_numbers import load_numbers, send_numbers

POSTED: gl.constexpr = gl.constexpr(5)  # numbers: batch, head, first row, scratch or -1, entry


@gluon.jit
def _produce(boxes, rings, numbers, bars, posts, masked_units, full_units, lse2, delta, items, counts, counter, q_len,
             kv_heads, kv_ratio, BUFFERS: gl.constexpr, SLOTS: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr,
             STEPS: gl.constexpr, D: gl.constexpr, BY_KEY: gl.constexpr):  # fmt: skip
    a_box, b_box, x_box, y_box = boxes
    a_ring, b_ring, x_ring, y_ring = rings
    own_full, own_free, x_full, x_free, y_full, y_free = bars
    members = kv_ratio if BY_KEY else 1
    own_slot = 0
    own_phase = 0
    slot = 0
    phase = 0
    post_phase = 0
    busy = gl.load(counts)
    turn = claim(counter, 0, True)
    while turn < busy:
        following = -1
        item = items + turn * (4 + 4 * members)
        batch = gl.load(item)
        head = gl.load(item + 1)
        first = gl.load(item + 2)
        post_phase = post(posts, post_phase, (batch, head, first, gl.load(item + 3), turn))
        load_own((a_box, b_box), (a_ring, b_ring), own_full, own_free, batch, head, first, own_slot, own_phase, D)
        own_slot, own_phase = next_slot(own_slot, own_phase, BUFFERS)
        for member in range(0, members):
            other = head * kv_ratio + member if BY_KEY else head // kv_ratio
            tiles = item + 4 + member * 4
            masked_begin, masked, full_begin, full = steps_of(tiles, STEPS)
            for j in range(0, masked + full):
                units = gl.where(j < masked, masked_units, full_units)
                step = gl.where(j < masked, masked_begin + j, full_begin + j - masked)
                if BY_KEY:  # loaded before the slot is free: what the loads take is hidden behind that wait
                    base = (batch * kv_heads * kv_ratio + other).to(gl.int64) * q_len
                    loaded = load_numbers(lse2, delta, base, first_row(units, step, N, GRANULE), q_len, N)
                mbarrier.wait(x_free.index(slot), phase ^ 1)
                mbarrier.expect(x_full.index(slot), N * D * 2)
                load_tile(x_box, batch, other, units, step, x_full.index(slot), x_ring, slot, N, GRANULE, D)
                mbarrier.wait(y_free.index(slot), phase ^ 1)
                mbarrier.expect(y_full.index(slot), N * D * 2)
                load_tile(y_box, batch, other, units, step, y_full.index(slot), y_ring, slot, N, GRANULE, D)
                if BY_KEY:
                    send_numbers(loaded, numbers, x_full, y_full, slot)
                slot, phase = next_slot(slot, phase, SLOTS)
                if following < 0:
                    following = claim(counter, turn, True)  # while the consumers have something to do
        turn = following
    post(posts, post_phase, (-1,))


@gluon.jit
def _signed(p, dropout, row, key):
    """p where a pair is kept, -p where it is dropped."""
    halves, threshold, _, batch, head = dropout
    return gl.where(kept(halves, threshold, batch, head, row, key), p, -p)


@gluon.jit
def _fold_keys(q_own, do_own, k_ring, v_ring, bars, mine, slot, phase, acc, lse, delta, walked, units, step, first,
               kv_len, scale, dropout, MASKED: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr,
               BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, DROPOUT: gl.constexpr,
               S: gl.constexpr, A: gl.constexpr):  # fmt: skip
    """Add one tile of keys to dQ (without the scale). # [64, D]"""
    x_full, x_free, y_full, y_free = bars
    mine = afresh(mine, slot)
    q, do = q_own.index(mine), do_own.index(mine)
    zero = gl.zeros([64, N], gl.float32, S)
    mbarrier.wait(x_full.index(slot), phase)
    scores = warpgroup_mma(q, k_ring.index(slot).permute([1, 0]), zero, use_acc=False, is_async=True)
    mbarrier.wait(y_full.index(slot), phase)
    weighted = warpgroup_mma(do, v_ring.index(slot).permute([1, 0]), zero, use_acc=False, is_async=True)
    if MASKED:
        mask = mask_ahead(walked, step, first, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
    s = warpgroup_mma_wait(1, deps=[scores])
    p = gl.exp2(s * scale - lse[:, None])
    if MASKED:
        allowed = allowed_pairs(mask, walked, step, first, kv_len, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
        p = gl.where(allowed, p, 0.0)
    if DROPOUT:
        row = first + gl.arange(0, 64, layout=gl.SliceLayout(1, S))
        p = _signed(p, dropout, row[:, None], positions(units, step, N, GRANULE, S)[None, :])
    dp = warpgroup_mma_wait(0, deps=[weighted])
    mbarrier.arrive(y_free.index(slot))
    if DROPOUT:
        dp = gl.where(p > 0, dp * dropout[2], 0.0)
        p = gl.abs(p)
    ds = p * (dp - delta[:, None])
    if MASKED:  # a masked pair's dP can hold anything
        ds = gl.where(p == 0, 0.0, ds)
    ds_half = gl.convert_layout(ds.to(q.dtype), A)
    sums = warpgroup_mma(ds_half, k_ring.index(slot), acc, is_async=True)
    acc, ds_half = warpgroup_mma_wait(0, deps=[sums, ds_half])
    mbarrier.arrive(x_free.index(slot))
    return acc


@gluon.jit
def _fold_queries(k_own, v_own, q_ring, do_ring, numbers, bars, mine, slot, phase, dk, dv, walked, units, step, first,
                  q_len, scale, dropout, MASKED: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr,
                  BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, DROPOUT: gl.constexpr,
                  S: gl.constexpr, A: gl.constexpr):  # fmt: skip
    """Add one tile of queries to dK (without the scale) and dV (without a kept pair's weight). # [64, D] each"""
    x_full, x_free, y_full, y_free = bars
    lse_ring, delta_ring = numbers
    mine = afresh(mine, slot)
    k, v = k_own.index(mine), v_own.index(mine)
    zero = gl.zeros([64, N], gl.float32, S)
    if DROPOUT:
        row = positions(units, step, N, GRANULE, S)
    mbarrier.wait(x_full.index(slot), phase)
    scores = warpgroup_mma(k, q_ring.index(slot).permute([1, 0]), zero, use_acc=False, is_async=True)
    mbarrier.wait(y_full.index(slot), phase)
    weighted = warpgroup_mma(v, do_ring.index(slot).permute([1, 0]), zero, use_acc=False, is_async=True)
    lse = lse_ring.index(slot).load(gl.SliceLayout(0, S))
    if MASKED:
        mask = mask_ahead(walked, step, first, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, True)
    s = warpgroup_mma_wait(1, deps=[scores])
    p = gl.exp2(s * scale - lse[None, :])
    if MASKED:
        allowed = allowed_pairs(mask, walked, step, first, q_len, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S, True)
        p = gl.where(allowed, p, 0.0)
    if DROPOUT:
        key = first + gl.arange(0, 64, layout=gl.SliceLayout(1, S))
        p = _signed(p, dropout, row[None, :], key[:, None])
        p_half = gl.convert_layout(gl.maximum(p, 0.0).to(k.dtype), A)
    else:
        p_half = gl.convert_layout(p.to(k.dtype), A)
    values = warpgroup_mma(p_half, do_ring.index(slot), dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=[weighted])
    if DROPOUT:
        dp = gl.where(p > 0, dp * dropout[2], 0.0)
        p = gl.abs(p)
    ds = p * (dp - delta_ring.index(slot).load(gl.SliceLayout(0, S))[None, :])
    if MASKED:
        ds = gl.where(p == 0, 0.0, ds)
    ds_half = gl.convert_layout(ds.to(k.dtype), A)
    keys = warpgroup_mma(ds_half, q_ring.index(slot), dk, is_async=True)
    dv, dk, p_half, ds_half = warpgroup_mma_wait(0, deps=[values, keys, p_half, ds_half])
    mbarrier.arrive(x_free.index(slot))
    mbarrier.arrive(y_free.index(slot))
    return dk, dv


@gluon.jit
def _consume(
    common, GROUP: gl.constexpr, BUFFERS: gl.constexpr, SLOTS: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr,
    STEPS: gl.constexpr, D: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr,
    MASKED: gl.constexpr, SPLIT: gl.constexpr, BY_KEY: gl.constexpr, DROPOUT: gl.constexpr,
):  # fmt: skip
    (out_boxes, rings, numbers, own_boxed, bars, posts, walked, full_units, results, lse2, delta, items, counts, scale2,
     scale, own_len, other_len, heads, kv_ratio, flag, dropped) = common  # fmt: skip
    a_box, b_box = out_boxes
    a_ring, b_ring, x_ring, y_ring = rings
    a_boxed, b_boxed = own_boxed
    own_full, own_free, x_full, x_free, y_full, y_free = bars
    streamed = (x_full, x_free, y_full, y_free)
    a_out, b_out, a_parts, b_parts = results
    masked_units = walked[0]
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])  # noqa: E741
    A: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    R: gl.constexpr = gl.SliceLayout(1, S)
    members = kv_ratio if BY_KEY else 1
    halves = seed_halves(dropped[0]) if DROPOUT else None
    own_slot = 0
    own_phase = 0
    slot = 0
    phase = 0
    begun = 0
    last = 0
    entry, post_phase = posted(posts, 0, POSTED, 4)
    while entry[0] >= 0:
        batch, head, first, scratch, turn = entry
        item = items + turn * (4 + 4 * members)
        first = first + GROUP * 64
        mine = own_slot * 2 + GROUP
        tma.store_wait(0)
        mbarrier.arrive(own_free.index(last), pred=begun > 0)  # the previous gradients have left their buffers
        begun = 1
        mbarrier.wait(own_full.index(mine), own_phase)
        acc = gl.zeros([64, D], gl.float32, O)
        second = gl.zeros([64, D], gl.float32, O)
        if BY_KEY:
            for member in range(0, members):
                tiles = item + 4 + member * 4
                masked_begin, masked, full_begin, full = steps_of(tiles, STEPS)
                dropout = (halves, dropped[1], dropped[2], batch, head * kv_ratio + member) if DROPOUT else None
                if MASKED:
                    for j in range(0, masked):
                        acc, second = _fold_queries(
                            a_ring, b_ring, x_ring, y_ring, numbers, streamed, mine, slot, phase, acc,
                            second, walked, masked_units, masked_begin + j, first, other_len, scale2, dropout, True, N,
                            GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, DROPOUT, S, A)  # fmt: skip
                        slot, phase = next_slot(slot, phase, SLOTS)
                for j in range(0, full):
                    acc, second = _fold_queries(
                        a_ring, b_ring, x_ring, y_ring, numbers, streamed, mine, slot, phase, acc,
                        second, walked, full_units, full_begin + j, first, other_len, scale2, dropout, False, N,
                        GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, DROPOUT, S, A)  # fmt: skip
                    slot, phase = next_slot(slot, phase, SLOTS)
        else:
            masked_begin, masked, full_begin, full = steps_of(item + 4, STEPS)
            row = first + gl.arange(0, 64, layout=R)
            at = (batch * heads + head).to(gl.int64) * own_len + row
            lse = gl.load(lse2 + at, mask=row < own_len, other=float("inf"))
            d = gl.load(delta + at, mask=row < own_len, other=0.0)
            dropout = (halves, dropped[1], dropped[2], batch, head) if DROPOUT else None
            if MASKED:
                for j in range(0, masked):
                    acc = _fold_keys(
                        a_ring, b_ring, x_ring, y_ring, streamed, mine, slot, phase, acc, lse, d,
                        walked, masked_units, masked_begin + j, first, other_len, scale2, dropout, True, N, GRANULE,
                        BLOCK_Q, BLOCK_K, HAS_BITS, DROPOUT, S, A)  # fmt: skip
                    slot, phase = next_slot(slot, phase, SLOTS)
            for j in range(0, full):
                acc = _fold_keys(
                    a_ring, b_ring, x_ring, y_ring, streamed, mine, slot, phase, acc, lse, d,
                    walked, full_units, full_begin + j, first, other_len, scale2, dropout, False, N, GRANULE, BLOCK_Q,
                    BLOCK_K, HAS_BITS, DROPOUT, S, A)  # fmt: skip
                slot, phase = next_slot(slot, phase, SLOTS)
        last = mine
        own_slot, own_phase = next_slot(own_slot, own_phase, BUFFERS)
        raise_flag(flag, acc, first, own_len, O)
        leave(
            acc * scale, a_ring, mine, a_box, a_boxed, a_parts, batch, head, first, scratch, own_len, GROUP, D, SPLIT, O
        )
        if BY_KEY:
            raise_flag(flag, second, first, own_len, O)
            if DROPOUT:
                second = second * dropped[2]
            leave(
                second, b_ring, mine, b_box, b_boxed, b_parts, batch, head, first, scratch, own_len, GROUP, D, SPLIT, O
            )
        entry, post_phase = posted(posts, post_phase, POSTED, 4)
    tma.store_wait(0)

    # Rows without tiles come last in the table.
    for turn in range(gl.load(counts) + gl.program_id(0), gl.load(counts + 1), gl.num_programs(0)):
        item = items + turn * (4 + 4 * members)
        base = (gl.load(item) * heads + gl.load(item + 1)).to(gl.int64) * own_len
        clear(a_out, base, gl.load(item + 2) + GROUP * 64, own_len, D, O)
        if BY_KEY:
            clear(b_out, base, gl.load(item + 2) + GROUP * 64, own_len, D, O)


@gluon.jit(do_not_specialize=["own_len", "other_len", "heads", "kv_ratio", "threshold"])
def backward(
    a_box, b_box, x_box, y_box, a_out_box, b_out_box, a_out, b_out, a_parts, b_parts, lse2, delta, flag,
    counter, full_units, masked_units, low, high, bits, masks, items, counts, scale2, scale, own_len, other_len, heads,
    kv_ratio, seed, threshold, weight,
    D: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, STEPS: gl.constexpr, BLOCK_Q: gl.constexpr,
    BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, MASKED: gl.constexpr, SPLIT: gl.constexpr, BY_KEY: gl.constexpr,
    DROPOUT: gl.constexpr, BUFFERS: gl.constexpr, SLOTS: gl.constexpr, CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr, OVERLAPPED: gl.constexpr = False,
):  # fmt: skip
    """dQ of every row from Q, dO | K, V or, BY_KEY, dK and dV of every key from K, V | Q, dO. Grid: [multiprocessors].

    `counter` is 0 at first. `heads` counts the heads of the rows that stay: query heads, or key heads.
    """
    gdc_launch_dependents()
    half: gl.constexpr = a_box.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    a_ring = gl.allocate_shared_memory(half, [BUFFERS * 2, 64, D], flat)
    b_ring = gl.allocate_shared_memory(half, [BUFFERS * 2, 64, D], flat)
    x_ring = gl.allocate_shared_memory(half, [SLOTS, N, D], flat)
    y_ring = gl.allocate_shared_memory(half, [SLOTS, N, D], flat)
    a_boxed = view(a_ring, [BUFFERS * 2, 1, 1, 64, D], a_box.layout)
    b_boxed = view(b_ring, [BUFFERS * 2, 1, 1, 64, D], b_box.layout)
    x_boxed = boxed(x_ring, x_box, SLOTS, N, GRANULE, D)
    y_boxed = boxed(y_ring, y_box, SLOTS, N, GRANULE, D)
    b: gl.constexpr = mbarrier.MBarrierLayout()
    own_full = gl.allocate_shared_memory(gl.int64, [BUFFERS * 2, 1], b)
    own_free = gl.allocate_shared_memory(gl.int64, [BUFFERS * 2, 1], b)
    x_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    x_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    y_full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    y_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], b)
    for i in gl.static_range(BUFFERS * 2):
        mbarrier.init(own_full.index(i), count=1)
        mbarrier.init(own_free.index(i), count=1)
    for i in gl.static_range(SLOTS):
        mbarrier.init(x_full.index(i), count=2 if BY_KEY else 1)  # the box, and the numbers beside it
        mbarrier.init(x_free.index(i), count=2)  # both consumers
        mbarrier.init(y_full.index(i), count=2 if BY_KEY else 1)
        mbarrier.init(y_free.index(i), count=2)
    boxes = (a_box, b_box, x_box, y_box)
    seen = (a_boxed, b_boxed, x_boxed, y_boxed)
    rings = (a_ring, b_ring, x_ring, y_ring)
    line: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    if BY_KEY:  # LSE and delta of the streamed queries
        numbers = (gl.allocate_shared_memory(gl.float32, [SLOTS, N], line),
                   gl.allocate_shared_memory(gl.float32, [SLOTS, N], line))  # fmt: skip
    else:
        numbers = (None, None)
    bars = (own_full, own_free, x_full, x_free, y_full, y_free)
    posts = new_post(POSTED, 2)
    dropped = (seed, threshold, weight) if DROPOUT else ()
    common = ((a_out_box, b_out_box), rings, numbers, (a_boxed, b_boxed), bars, posts,
              (masked_units, low, high, bits, masks), full_units, (a_out, b_out, a_parts, b_parts), lse2, delta, items,
              counts, scale2, scale, own_len, other_len, heads, kv_ratio, flag, dropped)  # fmt: skip
    if OVERLAPPED:
        gdc_wait()
    gl.warp_specialize(
        [
            (_consume, (common, 0, BUFFERS, SLOTS, N, GRANULE, STEPS, D, BLOCK_Q, BLOCK_K, HAS_BITS, MASKED, SPLIT,
                        BY_KEY, DROPOUT)),
            (_consume, (common, 1, BUFFERS, SLOTS, N, GRANULE, STEPS, D, BLOCK_Q, BLOCK_K, HAS_BITS, MASKED, SPLIT,
                        BY_KEY, DROPOUT)),
            (_produce, (boxes, seen, numbers, bars, posts, masked_units, full_units, lse2, delta, items, counts,
                        counter, other_len, heads, kv_ratio, BUFFERS, SLOTS, N, GRANULE, STEPS, D, BY_KEY)),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
