"""What feeds the backward that adds: one producer warp, which claims entries and sends their keys and tiles of queries.

The next K comes while the entry before is worked, its V behind the first tile of queries (backward_adding.py).
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .boxes import first_row, steps_of
from .claims import claim, post
from .gluon_api import box_load
from .ring import next_slot
from .row_numbers import load_numbers, send_numbers

POSTED: gl.constexpr = gl.constexpr(5)  # numbers: batch, key head, first key, scratch or -1, entry


@gluon.jit
def _load_rows(box, ring, full, free, batch, head, first, slot, phase, D: gl.constexpr):
    """Send the 128 rows from `first` on of a matrix to buffer `slot` of its ring, 64 for either consumer."""
    mbarrier.wait(free.index(slot), phase ^ 1)
    mbarrier.expect(full.index(slot), 2 * 64 * D * 2)
    for g in gl.static_range(2):
        box_load(box, [batch, head, first + g * 64, 0], full.index(slot), ring.index(slot * 2 + g))


@gluon.jit
def produce(boxes, rings, numbers, bars, posts, masked_units, full_units, lse2, delta, items, counts, counter, q_len,
             kv_heads, kv_ratio, K_BUFFERS: gl.constexpr, SLOTS: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr,
             STEPS: gl.constexpr, D: gl.constexpr):  # fmt: skip
    k_box, v_box, q_box, do_box = boxes
    k_ring, v_ring, q_ring, do_ring = rings
    k_full, k_free, v_full, v_free, x_full, x_free, y_full, y_free = bars
    k_slot = 0
    k_phase = 0
    v_phase = 0
    slot = 0
    phase = 0
    post_phase = 0
    busy = gl.load(counts)
    turn = claim(counter, 0, True)
    while turn < busy:
        following = -1
        item = items + turn * (4 + 4 * kv_ratio)
        batch = gl.load(item)
        kv_head = gl.load(item + 1)
        first = gl.load(item + 2)
        post_phase = post(posts, post_phase, (batch, kv_head, first, gl.load(item + 3), turn))
        _load_rows(k_box, k_ring, k_full, k_free, batch, kv_head, first, k_slot, k_phase, D)
        k_slot, k_phase = next_slot(k_slot, k_phase, K_BUFFERS)
        for member in range(0, kv_ratio):
            tiles = item + 4 + member * 4
            masked_begin, masked, full_begin, full = steps_of(tiles, STEPS)
            head = kv_head * kv_ratio + member
            base = (batch * kv_heads * kv_ratio + head).to(gl.int64) * q_len
            for j in range(0, masked + full):
                if j < masked:
                    row = first_row(masked_units, masked_begin + j, N, GRANULE)
                else:
                    row = first_row(full_units, full_begin + j - masked, N, GRANULE)
                # Loaded before the slot is free: what the loads take is hidden behind that wait.
                loaded = load_numbers(lse2, delta, base, row, q_len, N)
                mbarrier.wait(x_free.index(slot), phase ^ 1)
                mbarrier.expect(x_full.index(slot), N * D * 2)
                box_load(q_box, [batch, head, row, 0], x_full.index(slot), q_ring.index(slot))
                mbarrier.wait(y_free.index(slot), phase ^ 1)
                mbarrier.expect(y_full.index(slot), N * D * 2)
                box_load(do_box, [batch, head, row, 0], y_full.index(slot), do_ring.index(slot))
                send_numbers(loaded, numbers, x_full, y_full, slot)
                slot, phase = next_slot(slot, phase, SLOTS)
                if following < 0:
                    following = claim(counter, turn, True)  # while the consumers have something to do
                    # Behind the first tile, for which there is a slot before the entry before this one is over.
                    _load_rows(v_box, v_ring, v_full, v_free, batch, kv_head, first, 0, v_phase, D)
                    v_phase = v_phase ^ 1
        turn = following
    post(posts, post_phase, (-1,))
