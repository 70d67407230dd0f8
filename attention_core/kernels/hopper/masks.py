"""Which pairs a masked tile allows, in the registers of the scores."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def allowed_pairs(walked, step, first, length, N: gl.constexpr, GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr,
                  BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, S: gl.constexpr,
                  BY_KEY: gl.constexpr = False):  # fmt: skip
    """Pairs of masked step `step` with the 64 positions from `first` on that may be seen. # bool [64, N]

    The 64 are query rows and the step's N positions keys; with BY_KEY the other way round. `length` is
    that of the step's side: positions at or beyond it are never allowed. What is not allowed may hold
    anything: its score is replaced, but p = 0 times a value that is not finite is NaN (repair.py).
    """
    units, low, high, bits, masks = walked
    n = gl.arange(0, N, layout=gl.SliceLayout(0, S))
    own = first + gl.arange(0, 64, layout=gl.SliceLayout(1, S))
    if GRANULE >= N:  # one unit: its bounds are scalars
        unit = step // (GRANULE // N)
        other = gl.load(units + unit) + step % (GRANULE // N) * N + n
        lo = gl.load(low + unit) + n * 0
        hi = gl.load(high + unit) + n * 0
    else:
        unit = step * (N // GRANULE) + n // GRANULE
        other = gl.load(units + unit) + n % GRANULE
        lo = gl.load(low + unit)
        hi = gl.load(high + unit)
    # lo <= key - row <= hi as bounds on the 64: two comparisons an element, the rest is per position.
    if BY_KEY:
        first_own = other + lo
        last_own = gl.where(other < length, other + hi, -1)
    else:
        first_own = other - hi
        last_own = gl.where(other < length, other - lo, -1)
    allowed = (own[:, None] <= last_own[None, :]) & (own[:, None] >= first_own[None, :])
    if HAS_BITS:
        bytes_each: gl.constexpr = (BLOCK_Q + 7) // 8
        if BY_KEY:
            bit = (other % BLOCK_Q)[None, :]
            place = (own % BLOCK_K * bytes_each)[:, None] + bit // 8
        else:
            bit = (own % BLOCK_Q)[:, None]
            place = (other % BLOCK_K * bytes_each)[None, :] + bit // 8
        if GRANULE >= N:  # the mask's start is a scalar, and an element's place in it is an int32
            mask = gl.load(bits + unit)
            start = masks + gl.maximum(mask, 0).to(gl.int64) * (BLOCK_K * bytes_each)
            byte = gl.load(start + place, mask=(place >= 0) & (mask >= 0), other=255)
        else:
            mask = gl.load(bits + unit)
            start = mask.to(gl.int64) * (BLOCK_K * bytes_each)
            byte = gl.load(masks + (start[None, :] + place), mask=(place >= 0) & (mask >= 0)[None, :], other=255)
        allowed = allowed & (((byte >> (bit % 8)) & 1) != 0)
    return allowed
