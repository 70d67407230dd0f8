"""Tiles through the copy engine: where their rows stand, and the boxes that bring them."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .gluon_api import box_load, view


@gluon.jit
def load_tile(box, batch, head, units, step, full, ring, slot, N: gl.constexpr, GRANULE: gl.constexpr,
              D: gl.constexpr):  # fmt: skip
    """Send the N rows of step `step` to a slot of a ring: one box, or one for each unit and 64 columns.

    A unit of GRANULE >= N neighbouring rows is GRANULE // N steps; smaller units are gathered.
    """
    if GRANULE >= N:
        start = gl.load(units + step // (GRANULE // N)) + step % (GRANULE // N) * N
        box_load(box, [batch, head, start, 0], full, ring.index(slot))
    else:
        UNITS: gl.constexpr = N // GRANULE
        PANELS: gl.constexpr = D // 64  # swizzled memory holds 64 columns of all rows, then the next 64
        for u in range(UNITS):
            start = gl.load(units + step * UNITS + u)
            for panel in gl.static_range(PANELS):
                box_load(box, [batch, head, start, panel * 64], full, ring.index((slot * PANELS + panel) * UNITS + u))


@gluon.jit
def boxed(ring, box, SLOTS: gl.constexpr, N: gl.constexpr, GRANULE: gl.constexpr, D: gl.constexpr):
    """A ring [SLOTS, N, D] as the copy engine sees it: the same memory in boxes of four dimensions."""
    if GRANULE >= N:
        return view(ring, [SLOTS, 1, 1, N, D], box.layout)
    else:
        return view(ring, [SLOTS * (D // 64) * (N // GRANULE), 1, 1, GRANULE, 64], box.layout)
