"""Which pairs a masked tile allows, in the registers of the scores."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def allowed_pairs(walked, tile, first_row, length, N: gl.constexpr, GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr,
                  BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, S: gl.constexpr):  # fmt: skip
    """Pairs of masked tile `tile` that rows `first_row` to + 63 may see. # bool [64, N]

    `length` is the number of keys; positions at or beyond it are never allowed. A key that is not
    allowed may hold anything: its score is replaced, its share of the output is p = 0 times its value
    (repair.py has what follows when that value is not finite).
    """
    units, low, high, bits, masks = walked
    n = gl.arange(0, N, layout=gl.SliceLayout(0, S))
    row = first_row + gl.arange(0, 64, layout=gl.SliceLayout(1, S))
    if GRANULE >= N:  # one unit: its bounds are scalars
        key = gl.load(units + tile) + n
        lo = gl.load(low + tile) + n * 0
        hi = gl.load(high + tile) + n * 0
    else:
        at = tile * (N // GRANULE) + n // GRANULE
        key = gl.load(units + at) + n % GRANULE
        lo = gl.load(low + at)
        hi = gl.load(high + at)
    # lo <= key - row <= hi as bounds on the row: two comparisons an element, the rest is per key.
    last = gl.where(key < length, key - lo, -1)
    allowed = (row[:, None] <= last[None, :]) & (row[:, None] >= (key - hi)[None, :])
    if HAS_BITS:
        bytes_each: gl.constexpr = (BLOCK_Q + 7) // 8
        bit = row % BLOCK_Q
        place = (key % BLOCK_K * bytes_each)[None, :] + (bit // 8)[:, None]
        if GRANULE >= N:  # the mask's start is a scalar, and an element's place in it is an int32
            mask = gl.load(bits + tile)
            start = masks + gl.maximum(mask, 0).to(gl.int64) * (BLOCK_K * bytes_each)
            byte = gl.load(start + place, mask=(place >= 0) & (mask >= 0), other=255)
        else:
            mask = gl.load(bits + tile * (N // GRANULE) + n // GRANULE)
            start = mask.to(gl.int64) * (BLOCK_K * bytes_each)
            byte = gl.load(masks + (start[None, :] + place), mask=(place >= 0) & (mask >= 0)[None, :], other=255)
        allowed = allowed & (((byte >> (bit % 8)[:, None]) & 1) != 0)
    return allowed
