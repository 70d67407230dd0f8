"""Which pairs a masked tile allows, in the registers of the scores."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def mask_ahead(walked, step, first, N: gl.constexpr, GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr,
               BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, S: gl.constexpr,
               BY_KEY: gl.constexpr = False):  # fmt: skip
    """What `allowed_pairs` needs from memory, to be loaded while the step's scores are on their way.

    A step of one unit: its first position, its bounds and, with bits, the words of the 64 positions from
    `first` on, int32 [64, N // 32], of which a thread has those of its rows (`triton/words.py`). For a step of several
    units that would take too many registers: nothing.
    """
    units, low, high, bits, words = walked
    if GRANULE >= N:
        unit = step // (GRANULE // N)
        start = gl.load(units + unit) + step % (GRANULE // N) * N
        lo = gl.load(low + unit)
        hi = gl.load(high + unit)
        if HAS_BITS:
            L: gl.constexpr = _worded(N, S)
            own = first + gl.arange(0, 64, layout=gl.SliceLayout(1, gl.SliceLayout(2, L)))
            word = gl.arange(0, N // 32, layout=gl.SliceLayout(0, gl.SliceLayout(2, L)))
            if BY_KEY:
                place = (own % BLOCK_K * (BLOCK_Q // 32))[:, None] + (start % BLOCK_Q // 32 + word)[None, :]
            else:
                place = (own % BLOCK_Q * (BLOCK_K // 32))[:, None] + (start % BLOCK_K // 32 + word)[None, :]
            mask = gl.load(bits + unit)
            at = words + gl.maximum(mask, 0).to(gl.int64) * (BLOCK_Q * BLOCK_K // 32)
            return start, lo, hi, gl.load(at + place, mask=(place >= 0) & (mask >= 0), other=-1)
        else:
            return start, lo, hi
    else:
        return ()


@gluon.constexpr_function
def _worded(n, layout):
    """The layout of scores [64, n] seen as [64, n // 32, 32]: the middle is in one thread's registers."""
    registers = [
        [0, 0, 1],
        [8, 0, 0],
        [0, 0, 8],
        [0, 0, 16],
        *([0, 1 << i, 0] for i in range((n // 32).bit_length() - 1)),
    ]
    lanes = [[0, 0, 2], [0, 0, 4], [1, 0, 0], [2, 0, 0], [4, 0, 0]]
    return gl.DistributedLinearLayout(registers, lanes, [[16, 0, 0], [32, 0, 0]], [], [64, n // 32, 32])


@gluon.constexpr_function
def _apart(n, layout):
    """The layout of scores [64, n] seen as [64, n // 8, 4, 2]: of the last three the middle is the lane's."""
    groups = [[0, 1 << i, 0, 0] for i in range((n // 8).bit_length() - 1)]
    lanes = [[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]]
    return gl.DistributedLinearLayout(
        [[0, 0, 0, 1], [8, 0, 0, 0], *groups], lanes, [[16, 0, 0, 0], [32, 0, 0, 0]], [], [64, n // 8, 4, 2]
    )


@gluon.jit
def _before(x, N: gl.constexpr):
    """Which of a lane's columns 8 i + b, i below N // 8, b in (0, 1), lie before x: bit 2 i + b of an int32."""
    count = gl.maximum(gl.minimum((x >> 3) * 2 + gl.minimum(x & 7, 2), N // 4), 0)
    return gl.where(count == 32, -1, (1 << (count & 31)) - 1)


@gluon.jit
def allowed_pairs(ahead, walked, step, first, length, N: gl.constexpr, GRANULE: gl.constexpr, BLOCK_Q: gl.constexpr,
                  BLOCK_K: gl.constexpr, HAS_BITS: gl.constexpr, S: gl.constexpr,
                  BY_KEY: gl.constexpr = False):  # fmt: skip
    """Pairs of masked step `step` with the 64 positions from `first` on that may be seen. # bool [64, N]

    The 64 are query rows and the step's N positions keys; with BY_KEY the other way round. `ahead` is what
    `mask_ahead` loaded, `length` that of the step's side: positions at or beyond it are never allowed. What is not
    allowed may hold anything: its score is replaced, but p = 0 times a value that is not finite is NaN (repair.py).
    In a step of one unit a band leaves each row one range of columns. Of these a thread has at most 32, two of every
    eight: a word a row says which, and an element costs the test of a bit that the compiler knows.
    """
    if GRANULE >= N:
        start, lo, hi = ahead[0], ahead[1], ahead[2]
        L: gl.constexpr = _apart(N, S)
        W: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, L))
        own = first + gl.arange(0, 64, layout=gl.SliceLayout(1, W))
        if BY_KEY:
            begin = own - hi
            last = own - lo
        else:
            begin = own + lo
            last = own + hi
        lane = 2 * gl.arange(0, 4, layout=gl.SliceLayout(0, W))
        after = _before((gl.minimum(last, length - 1) - start + 1)[:, None] - lane[None, :], N)
        word = after & ~_before((begin - start)[:, None] - lane[None, :], N)
        group = gl.arange(0, N // 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, L))))
        pair = gl.arange(0, 2, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L))))
        place = 2 * group[None, :, None, None] + pair[None, None, None, :]
        within = (word[:, None, :, None] & (1 << place)) != 0
        allowed = gl.convert_layout(gl.reshape(within, [64, N]), S, assert_trivial=True)
        if HAS_BITS:
            # Of a column's place in its word a register fixes some bits and the lane the others: shifted by the
            # lane's once, a word's bits are at places that the compiler knows.
            B: gl.constexpr = _worded(N, S)
            m = gl.arange(0, 32, layout=gl.SliceLayout(0, gl.SliceLayout(1, B)))[None, None, :]
            seen = ((ahead[3][:, :, None] >> (m & 6)) & (1 << (m & 25))) != 0
            allowed = allowed & gl.convert_layout(gl.reshape(seen, [64, N]), S, assert_trivial=True)
    else:
        n = gl.arange(0, N, layout=gl.SliceLayout(0, S))
        own = first + gl.arange(0, 64, layout=gl.SliceLayout(1, S))
        units, low, high, bits, masks = walked
        unit = step * (N // GRANULE) + n // GRANULE
        other = gl.load(units + unit) + n % GRANULE
        lo = gl.load(low + unit)
        hi = gl.load(high + unit)
        # lo <= key - row <= hi as bounds on the 64: two comparisons an element, the rest is per position.
        if BY_KEY:
            begin = other + lo
            last = gl.where(other < length, other + hi, -1)
        else:
            begin = other - hi
            last = gl.where(other < length, other - lo, -1)
        allowed = (own[:, None] <= last[None, :]) & (own[:, None] >= begin[None, :])
        if HAS_BITS:
            bytes_each: gl.constexpr = (BLOCK_Q + 7) // 8
            bit = (own % BLOCK_Q)[:, None]
            at = (other % BLOCK_K * bytes_each)[None, :] + bit // 8
            mask = gl.load(bits + unit)
            base = mask.to(gl.int64) * (BLOCK_K * bytes_each)
            byte = gl.load(masks + (base[None, :] + at), mask=(at >= 0) & (mask >= 0)[None, :], other=255)
            allowed = allowed & (((byte >> (bit % 8)) & 1) != 0)
    return allowed
