"""What feeds the Hopper forward: two producer warps, one for Q and K, one for V, each in the order of the consumers.

The one with the keys claims entries of the work table and posts them (claims.py). V has a producer of its own since of
key runs a tile is dozens of boxes, and to issue them takes a warp about as long as the consumers take for the tile.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .boxes import load_tile
from .claims import claim, post, posted
from .gluon_api import box_load
from .ring import next_slot

Q_BUFFERS: gl.constexpr = gl.constexpr(2)  # the next row tile's queries come in while this one's are in use
ITEM: gl.constexpr = gl.constexpr(8)  # numbers of an entry of the work table


@gluon.jit
def _send(box, ring, full_bars, free_bars, slot, phase, j, entry, walked, kv_ratio, N: gl.constexpr,
          GRANULE: gl.constexpr, D: gl.constexpr):  # fmt: skip
    """Tile j of an entry, of K or V, to a slot of its ring: the first full tile leads, if there is one."""
    batch, head, _, _, masked_begin, masked, full_begin, full = entry
    masked_units, full_units = walked
    leads = gl.minimum(full, 1)
    there = full_bars.index(slot)
    mbarrier.wait(free_bars.index(slot), phase ^ 1)
    mbarrier.expect(there, N * D * 2)
    is_masked = (j >= leads) & (j < leads + masked)
    units = gl.where(is_masked, masked_units, full_units)
    step = gl.where(is_masked, masked_begin + j - leads, full_begin + gl.maximum(j - masked, 0))
    load_tile(box, batch, head // kv_ratio, units, step, there, ring, slot, N, GRANULE, D)


@gluon.jit
def produce_keys(boxes, rings, bars, posts, walked, items, counts, counter, kv_ratio, N: gl.constexpr,
                  GRANULE: gl.constexpr, D: gl.constexpr, SLOTS: gl.constexpr, CLAIMED: gl.constexpr):  # fmt: skip
    q_box, k_box = boxes
    q_ring, k_ring = rings
    q_full, q_free, k_full, k_free = bars
    busy = gl.load(counts)
    q_slot = 0
    q_phase = 0
    slot = 0
    phase = 0
    post_phase = 0
    turn = claim(counter, gl.program_id(0) - gl.num_programs(0), CLAIMED)
    while turn < busy:
        following = turn
        # Loaded here, not carried around the loop: Triton 3.6 drops the update of a prefetched load (a hang).
        item = items + turn * ITEM
        entry = ()
        for i in gl.static_range(ITEM):
            entry = entry + (gl.load(item + i),)
        post_phase = post(posts, post_phase, entry)
        for g in gl.static_range(2):
            b = q_slot * 2 + g
            mbarrier.wait(q_free.index(b), q_phase ^ 1)
            mbarrier.expect(q_full.index(b), 64 * D * 2)
            box_load(q_box, [entry[0], entry[1], entry[2] + g * 64, 0], q_full.index(b), q_ring.index(b))
        q_slot, q_phase = next_slot(q_slot, q_phase, Q_BUFFERS)
        for j in range(0, entry[5] + entry[7]):
            _send(k_box, k_ring, k_full, k_free, slot, phase, j, entry, walked, kv_ratio, N, GRANULE, D)
            slot, phase = next_slot(slot, phase, SLOTS)
            if j == 0:
                following = claim(counter, turn, CLAIMED)  # while the consumers have something to do
        turn = following
    post(posts, post_phase, (-1,))


@gluon.jit
def produce_values(v_box, v_ring, v_full, v_free, posts, walked, kv_ratio, N: gl.constexpr, GRANULE: gl.constexpr,
                    D: gl.constexpr, SLOTS: gl.constexpr):  # fmt: skip
    slot = 0
    phase = 0
    entry, post_phase = posted(posts, 0, ITEM, 1)
    while entry[0] >= 0:
        for j in range(0, entry[5] + entry[7]):
            _send(v_box, v_ring, v_full, v_free, slot, phase, j, entry, walked, kv_ratio, N, GRANULE, D)
            slot, phase = next_slot(slot, phase, SLOTS)
        entry, post_phase = posted(posts, post_phase, ITEM, 1)
