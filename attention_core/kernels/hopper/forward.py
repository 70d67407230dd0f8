"""Forward on Hopper: two producer warps, two warpgroups of 64 rows each, one softmax over all tiles of a row.

A program stays on its multiprocessor and works entries of the work table (schedule.py, claims.py). The producers
(forward_feed.py) bring Q, K and V through the copy engine into rings of shared memory. Each consumer issues Q.K of
tile j together with P.V of tile j - 1; the exponentials of tile j overlap that P.V and the other consumer's products.
P stays in registers, O leaves through its own Q buffer.

A row's first full tile leads, then come its masked tiles, then its other full ones. With FROZEN the maximum
of the first is the reference of all later ones, masked ones too: no maximum and no rescaling there. fp32 sums
and bf16 P have the exponents for it unless a later score exceeds the reference by 2^100; such rows (and rows
whose output is not finite) are marked with lse = +inf, and repair.py computes them again. A row tile without
a full tile, whose rows may have no key in the first, follows the running maximum.
"""

# ruff: noqa: N803, SIM102 - upper-case arguments are compile-time constants, as is the custom in Triton, and
# conditions on them stand alone, so that they are decided before the program is compiled

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents

from .boxes import boxed
from .claims import new_post, posted
from .dropout_mask import kept, positions, seed_halves
from .forward_feed import ITEM, Q_BUFFERS, produce_keys, produce_values
from .gluon_api import box_store, view
from .masks import allowed_pairs, mask_ahead
from .ring import await_turn, lane_sums, next_slot, pass_turn, pinned

LN2: gl.constexpr = gl.constexpr(0.6931471805599453)
OVERFLOW: gl.constexpr = gl.constexpr(1.2676506e30)  # 2^100


@gluon.jit
def _drop(p, halves, threshold, here, key, S: gl.constexpr):
    """p with zeros where a pair is dropped; what is kept gets its weight with the row's other factors, at the end."""
    batch, head, first = here
    row = first + gl.arange(0, 64, layout=gl.SliceLayout(1, S))
    return gl.where(kept(halves, threshold, batch, head, row[:, None], key[None, :]), p, 0.0)


@gluon.jit
def _consume(
    common, GROUP: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, D: gl.constexpr, K_SLOTS: gl.constexpr,
    V_SLOTS: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr,
    MASKED: gl.constexpr, SPLIT: gl.constexpr, TURNS: gl.constexpr, AHEAD: gl.constexpr, FROZEN: gl.constexpr,
    DROPOUT: gl.constexpr,
):  # fmt: skip
    out_box, rings, q_boxed, bars, posts, walked, results, items, counts, scale, q_len, kv_len, heads, dropout = common
    q_ring, k_ring, v_ring = rings
    q_full, q_free, k_full, k_free, v_full, v_free = bars
    out, lse, part_out, part_lse = results
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])  # noqa: E741
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)
    S_ROW: gl.constexpr = gl.SliceLayout(1, S)
    O_ROW: gl.constexpr = gl.SliceLayout(1, O)
    half: gl.constexpr = q_ring.dtype
    q_slot = 0
    q_phase = 0
    k_slot = 0
    k_phase = 0
    v_slot = 0
    v_phase = 0
    begun = 0
    last_buffer = 0
    zero = gl.zeros([64, N], gl.float32, S)
    if DROPOUT:
        seed, threshold, weight, full_units = dropout
        halves = seed_halves(seed)
    if TURNS:
        if GROUP == 1:
            pass_turn(GROUP, True)  # the other goes first
    entry, post_phase = posted(posts, 0, ITEM, 4)
    if AHEAD:
        some = entry[0] >= 0
        mbarrier.wait(q_full.index(GROUP), 0, pred=some)
        mbarrier.wait(k_full.index(0), 0, pred=some)
        scores = warpgroup_mma(q_ring.index(GROUP), k_ring.index(0).permute([1, 0]), zero, use_acc=False, is_async=True)
    while entry[0] >= 0:
        batch, head, row, scratch, masked_begin, masked, full_begin, full = entry
        row = row + GROUP * 64
        tiles = masked + full
        buffer = q_slot * 2 + GROUP
        q = q_ring.index(buffer)
        # The first tile: nothing to fold it into.
        if not AHEAD:
            mbarrier.wait(q_full.index(buffer), q_phase)
            mbarrier.wait(k_full.index(k_slot), k_phase)
            scores = warpgroup_mma(q, k_ring.index(k_slot).permute([1, 0]), zero, use_acc=False, is_async=True)
        if MASKED:
            leads = gl.minimum(full, 1)
            step_of = gl.where(full > 0, 0, masked_begin)  # of a full tile what is loaded is not used
            mask = mask_ahead(walked, step_of, row, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
        s = warpgroup_mma_wait(0, deps=[scores])  # [64, N]
        mbarrier.arrive(k_free.index(k_slot))
        k_slot, k_phase = next_slot(k_slot, k_phase, K_SLOTS)
        if MASKED:
            if full == 0:
                allowed = allowed_pairs(mask, walked, masked_begin, row, kv_len, N, GRANULE, BLOCK_Q, BLOCK_K,
                                        HAS_BITS, S)  # fmt: skip
                s = gl.where(allowed, s, -float("inf"))
        m = gl.max(s, 1) * scale  # [64]; scale > 0
        # A row without a key yet has -inf - -inf; its reference is 0 until a key comes.
        reference = gl.where(m == -float("inf"), 0.0, m) if MASKED else m
        p = gl.exp2(s * scale - reference[:, None])
        total = lane_sums(p, N)  # [64, 4]
        T_ROW: gl.constexpr = gl.SliceLayout(1, total.type.layout)
        if DROPOUT:
            here = batch, head, row
            if MASKED:
                if full == 0:
                    key = positions(walked[0], masked_begin, N, GRANULE, S)
                else:
                    key = positions(full_units, full_begin, N, GRANULE, S)
            else:
                key = positions(full_units, full_begin, N, GRANULE, S)
            p = _drop(p, halves, threshold, here, key, S)
        p_half = gl.convert_layout(p.to(half), P)
        tma.store_wait(0)
        mbarrier.arrive(q_free.index(last_buffer), pred=begun > 0)  # the previous rows' O has left its Q buffer
        acc = gl.zeros([64, D], gl.float32, O)

        PARTS: gl.constexpr = (
            2 if MASKED and FROZEN else 1
        )  # loops against the frozen reference, the last of full tiles
        begin = 1
        if MASKED:
            first_full = leads + masked  # of those after the first
            begin = gl.where(full > 0, 1, tiles) if FROZEN else first_full
            for j in range(1, begin):
                mbarrier.wait(k_full.index(k_slot), k_phase)
                await_turn(GROUP, TURNS)
                scores = warpgroup_mma(q, k_ring.index(k_slot).permute([1, 0]), zero, use_acc=False, is_async=True)
                mbarrier.wait(v_full.index(v_slot), v_phase)
                sums = warpgroup_mma(p_half, v_ring.index(v_slot), acc, is_async=True)
                pass_turn(GROUP, TURNS)
                step = masked_begin + j - leads
                mask = mask_ahead(walked, step, row, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
                s = warpgroup_mma_wait(1, deps=[scores])
                mbarrier.arrive(k_free.index(k_slot))
                k_slot, k_phase = next_slot(k_slot, k_phase, K_SLOTS)
                allowed = allowed_pairs(mask, walked, step, row, kv_len, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
                s = gl.where(allowed, s, -float("inf"))
                m_new = gl.maximum(m, gl.max(s, 1) * scale)
                reference = gl.where(m_new == -float("inf"), 0.0, m_new)
                fade = gl.exp2(m - reference)
                m = m_new
                p = gl.exp2(s * scale - reference[:, None])
                total = total * gl.convert_layout(fade, T_ROW)[:, None] + pinned(lane_sums(p, N))
                if DROPOUT:
                    p = _drop(p, halves, threshold, here, positions(walked[0], step, N, GRANULE, S), S)
                acc, p_half = warpgroup_mma_wait(0, deps=[sums, p_half])
                mbarrier.arrive(v_free.index(v_slot))
                v_slot, v_phase = next_slot(v_slot, v_phase, V_SLOTS)
                acc = acc * gl.convert_layout(fade, O_ROW)[:, None]
                p_half = gl.convert_layout(p.to(half), P)
        for part in gl.static_range(PARTS):
            end = first_full if part + 1 < PARTS else tiles
            if AHEAD:
                if DROPOUT:
                    # The same buffer, told from the next one. Else ptxas 12.8 shares the descriptors of q between this
                    # loop and the one above, computes them on the way into that one only, and rows that pass it by
                    # multiply whatever the registers point to: wrong scores, or an illegal access.
                    following, _ = next_slot(q_slot, q_phase, Q_BUFFERS)
                    q = q_ring.index((1 - following) * 2 + GROUP)
            for j in range(begin, end):
                mbarrier.wait(k_full.index(k_slot), k_phase)
                await_turn(GROUP, TURNS)
                scores = warpgroup_mma(q, k_ring.index(k_slot).permute([1, 0]), zero, use_acc=False, is_async=True)
                mbarrier.wait(v_full.index(v_slot), v_phase)
                sums = warpgroup_mma(p_half, v_ring.index(v_slot), acc, is_async=True)
                pass_turn(GROUP, TURNS)
                if part + 1 < PARTS:
                    step = masked_begin + j - 1
                    mask = mask_ahead(walked, step, row, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
                s = warpgroup_mma_wait(1, deps=[scores])
                mbarrier.arrive(k_free.index(k_slot))
                k_slot, k_phase = next_slot(k_slot, k_phase, K_SLOTS)
                if part + 1 < PARTS:
                    allowed = allowed_pairs(mask, walked, step, row, kv_len, N, GRANULE, BLOCK_Q, BLOCK_K, HAS_BITS, S)
                    s = gl.where(allowed, s, -float("inf"))
                if not FROZEN:
                    m_new = gl.maximum(m, gl.max(s, 1) * scale)  # finite: a full tile has a key for every row
                    fade = gl.exp2(m - m_new)
                    m = m_new
                    reference = m
                    total = total * gl.convert_layout(fade, T_ROW)[:, None]
                p = gl.exp2(s * scale - reference[:, None])
                total = total + pinned(lane_sums(p, N))
                if DROPOUT:
                    if part + 1 < PARTS:
                        key = positions(walked[0], step, N, GRANULE, S)
                    else:
                        key = positions(full_units, full_begin + j - masked, N, GRANULE, S)
                    p = _drop(p, halves, threshold, here, key, S)
                acc, p_half = warpgroup_mma_wait(0, deps=[sums, p_half])
                mbarrier.arrive(v_free.index(v_slot))
                v_slot, v_phase = next_slot(v_slot, v_phase, V_SLOTS)
                if not FROZEN:
                    acc = acc * gl.convert_layout(fade, O_ROW)[:, None]
                p_half = gl.convert_layout(p.to(half), P)
            begin = gl.maximum(begin, end)

        # The last P.V, and behind it the next rows' first Q.K.
        begun = 1
        last_buffer = buffer
        q_slot, q_phase = next_slot(q_slot, q_phase, Q_BUFFERS)
        mbarrier.wait(v_full.index(v_slot), v_phase)
        sums = warpgroup_mma(p_half, v_ring.index(v_slot), acc, is_async=True)
        if AHEAD:
            entry, post_phase = posted(posts, post_phase, ITEM, 4)
            more = entry[0] >= 0
            mbarrier.wait(q_full.index(q_slot * 2 + GROUP), q_phase, pred=more)
            mbarrier.wait(k_full.index(k_slot), k_phase, pred=more)
            scores = warpgroup_mma(q_ring.index(q_slot * 2 + GROUP), k_ring.index(k_slot).permute([1, 0]), zero,
                                   use_acc=False, is_async=True)  # unread at the end  # fmt: skip
        total_row = gl.convert_layout(gl.sum(total, 1), S_ROW)
        some_key = total_row > 0
        row_lse = (reference + gl.log2(gl.where(some_key, total_row, 1.0))) * LN2
        row_lse = gl.where(total_row == 0, -float("inf"), row_lse)
        inverse = gl.convert_layout(1.0 / gl.where(total_row == 0, 1.0, total_row), O_ROW)
        if DROPOUT:
            inverse = inverse * weight
        if AHEAD:
            acc, p_half = warpgroup_mma_wait(1, deps=[sums, p_half])
        else:
            acc, p_half = warpgroup_mma_wait(0, deps=[sums, p_half])
        mbarrier.arrive(v_free.index(v_slot))
        v_slot, v_phase = next_slot(v_slot, v_phase, V_SLOTS)
        # 0 * x is NaN where x is not finite, and so is the sum of a row with such an x.
        finite = gl.convert_layout(gl.sum(acc * 0.0, 1), S_ROW) == 0
        row_lse = gl.where(finite & (total_row < OVERFLOW), row_lse, float("inf"))
        at = gl.arange(0, 64, layout=S_ROW)
        real = row + at < q_len
        ones = gl.full([64], 1, gl.int32, S_ROW)  # one number for all rows: whether `repair` has anything to do
        gl.store(counts + 2 + ones * 0, ones, mask=real & (row_lse == float("inf")))
        lse_at = (batch * heads + head).to(gl.int64) * q_len + row + at
        if SPLIT:
            if scratch >= 0:
                place = scratch.to(gl.int64) + GROUP * 64
                gl.store(part_lse + place + at, row_lse, mask=real)
                r = gl.arange(0, 64, layout=O_ROW)
                c = gl.arange(0, D, layout=gl.SliceLayout(0, O))
                gl.store(part_out + place * D + (r[:, None] * D + c[None, :]), acc * inverse[:, None],
                         mask=(row + r < q_len)[:, None] & (c >= 0)[None, :])  # fmt: skip
            else:
                gl.store(lse + lse_at, row_lse, mask=real)
                q.store((acc * inverse[:, None]).to(half))
                fence_async_shared()
                box_store(out_box, [batch, head, row, 0], q_boxed.index(buffer))
        else:
            gl.store(lse + lse_at, row_lse, mask=real)
            q.store((acc * inverse[:, None]).to(half))
            fence_async_shared()
            box_store(out_box, [batch, head, row, 0], q_boxed.index(buffer))  # rows past the end stay
        if not AHEAD:
            entry, post_phase = posted(posts, post_phase, ITEM, 4)
    if AHEAD:
        warpgroup_mma_wait(0, deps=[scores])
    tma.store_wait(0)

    # Rows without tiles come last in the table.
    for turn in range(gl.load(counts) + gl.program_id(0), gl.load(counts + 1), gl.num_programs(0)):
        item = items + turn * ITEM
        base = (gl.load(item) * heads + gl.load(item + 1)).to(gl.int64) * q_len
        first = gl.load(item + 2) + GROUP * 64
        at = gl.arange(0, 64, layout=S_ROW)
        gl.store(lse + base + first + at, gl.full([64], -float("inf"), gl.float32, S_ROW), mask=first + at < q_len)
        r = gl.arange(0, 64, layout=O_ROW)
        c = gl.arange(0, D, layout=gl.SliceLayout(0, O))
        gl.store(out + (base + first) * D + (r[:, None] * D + c[None, :]), gl.zeros([64, D], half, O),
                 mask=(first + r < q_len)[:, None] & (c >= 0)[None, :])  # fmt: skip


@gluon.jit(do_not_specialize=["q_len", "kv_len", "heads", "kv_ratio", "threshold"])
def forward(
    q_box, k_box, v_box, out_box, out, lse, part_out, part_lse,
    full_units, masked_units, low, high, bits, masks, items, counts, counter, scale, q_len, kv_len, heads, kv_ratio,
    seed, threshold, weight,
    D: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_K: gl.constexpr,
    HAS_BITS: gl.constexpr, MASKED: gl.constexpr, SPLIT: gl.constexpr, K_SLOTS: gl.constexpr, V_SLOTS: gl.constexpr,
    TURNS: gl.constexpr, AHEAD: gl.constexpr, FROZEN: gl.constexpr, DROPOUT: gl.constexpr,
    CLAIMED: gl.constexpr, CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """out and lse of every row, in 128-row tiles. Grid: [multiprocessors]. With CLAIMED `counter` is 0."""
    gdc_launch_dependents()
    half: gl.constexpr = q_box.dtype
    flat: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    q_ring = gl.allocate_shared_memory(half, [Q_BUFFERS * 2, 64, D], flat)
    k_ring = gl.allocate_shared_memory(half, [K_SLOTS, N, D], flat)
    v_ring = gl.allocate_shared_memory(half, [V_SLOTS, N, D], flat)
    # The copy engine sees the same memory as boxes of four dimensions.
    q_boxed = view(q_ring, [Q_BUFFERS * 2, 1, 1, 64, D], q_box.layout)
    k_boxed = boxed(k_ring, k_box, K_SLOTS, N, GRANULE, D)
    v_boxed = boxed(v_ring, v_box, V_SLOTS, N, GRANULE, D)
    b: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [Q_BUFFERS * 2, 1], b)
    q_free = gl.allocate_shared_memory(gl.int64, [Q_BUFFERS * 2, 1], b)
    k_full = gl.allocate_shared_memory(gl.int64, [K_SLOTS, 1], b)
    k_free = gl.allocate_shared_memory(gl.int64, [K_SLOTS, 1], b)
    v_full = gl.allocate_shared_memory(gl.int64, [V_SLOTS, 1], b)
    v_free = gl.allocate_shared_memory(gl.int64, [V_SLOTS, 1], b)
    for i in gl.static_range(Q_BUFFERS * 2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_free.index(i), count=1)
    for i in gl.static_range(K_SLOTS):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)  # both consumers
    for i in gl.static_range(V_SLOTS):
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_free.index(i), count=2)
    rings = (q_ring, k_ring, v_ring)
    bars = (q_full, q_free, k_full, k_free, v_full, v_free)
    walked = (masked_units, low, high, bits, masks)
    sent = (masked_units, full_units)
    results = (out, lse, part_out, part_lse)
    dropout = (seed, threshold, weight, full_units) if DROPOUT else ()
    posts = new_post(ITEM, 3)
    common = (out_box, rings, q_boxed, bars, posts, walked, results, items, counts, scale, q_len, kv_len, heads,
              dropout)  # fmt: skip
    gl.warp_specialize(
        [
            (_consume, (common, 0, N, GRANULE, D, K_SLOTS, V_SLOTS, BLOCK_Q, BLOCK_K, HAS_BITS, MASKED, SPLIT, TURNS,
                        AHEAD, FROZEN, DROPOUT)),
            (_consume, (common, 1, N, GRANULE, D, K_SLOTS, V_SLOTS, BLOCK_Q, BLOCK_K, HAS_BITS, MASKED, SPLIT, TURNS,
                        AHEAD, FROZEN, DROPOUT)),
            (produce_keys, ((q_box, k_box), (q_boxed, k_boxed), (q_full, q_free, k_full, k_free), posts, sent, items,
                             counts, counter, kv_ratio, N, GRANULE, D, K_SLOTS, CLAIMED)),
            (produce_values, (v_box, v_boxed, v_full, v_free, posts, sent, kv_ratio, N, GRANULE, D, V_SLOTS)),
        ],
        [4, 1, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
