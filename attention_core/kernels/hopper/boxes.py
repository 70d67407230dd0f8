"""Tiles through the copy engine: where their rows stand, and the boxes that bring them."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .gluon_api import box_load, view


@gluon.jit
def first_row(units, step, N: gl.constexpr, GRANULE: gl.constexpr):
    """First of the N neighbouring rows of step `step`, of units of GRANULE >= N rows."""
    return gl.load(units + step // (GRANULE // N)) + step % (GRANULE // N) * N


@gluon.jit
def load_tile(box, batch, head, units, step, full, ring, slot, N: gl.constexpr, GRANULE: gl.constexpr,
              D: gl.constexpr):  # fmt: skip
    """Send the N rows of step `step` to a slot of a ring: one box, or one for each unit and 64 columns.

    A unit of GRANULE >= N neighbouring rows is GRANULE // N steps; smaller units are gathered.
    """
    if GRANULE >= N:
        box_load(box, [batch, head, first_row(units, step, N, GRANULE), 0], full, ring.index(slot))
    else:
        UNITS: gl.constexpr = N // GRANULE
        PANELS: gl.constexpr = D // 64  # swizzled memory holds 64 columns of all rows, then the next 64
        for pair in range(UNITS // 2):
            # Two positions wait for memory together; more, or two ahead, do not fit the registers of a producer.
            first = units + step * UNITS + pair * 2
            starts = gl.load(first), gl.load(first + 1)
            for u in gl.static_range(2):
                for panel in gl.static_range(PANELS):
                    place = (slot * PANELS + panel) * UNITS + pair * 2 + u
                    box_load(box, [batch, head, starts[u], panel * 64], full, ring.index(place))


@gluon.jit
def boxed(ring, box, SLOTS: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, D: gl.constexpr):
    """A ring [SLOTS, N, D] as the copy engine sees it: the same memory in boxes of four dimensions."""
    if GRANULE >= N:
        return view(ring, [SLOTS, 1, 1, N, D], box.layout)
    else:
        return view(ring, [SLOTS * (D // 64) * (N // GRANULE), 1, 1, GRANULE, 64], box.layout)


@gluon.jit
def load_own(boxes, rings, full, free, batch, head, first, slot, phase, D: gl.constexpr):
    """Send the 128 rows from `first` on of two matrices to buffer `slot` of each, 64 for either consumer."""
    a_box, b_box = boxes
    a_ring, b_ring = rings
    for g in gl.static_range(2):
        mine = slot * 2 + g
        mbarrier.wait(free.index(mine), phase ^ 1)
        mbarrier.expect(full.index(mine), 2 * 64 * D * 2)
        box_load(a_box, [batch, head, first + g * 64, 0], full.index(mine), a_ring.index(mine))
        box_load(b_box, [batch, head, first + g * 64, 0], full.index(mine), b_ring.index(mine))


@gluon.jit
def steps_of(tiles, STEPS: gl.constexpr):
    """First masked step, masked steps, first full step and full steps of an entry of the work table for one member."""
    masked_begin = gl.load(tiles) * STEPS
    masked = gl.load(tiles + 1) * STEPS
    full_begin = gl.load(tiles + 2) * STEPS
    return masked_begin, masked, full_begin, gl.load(tiles + 3) * STEPS
