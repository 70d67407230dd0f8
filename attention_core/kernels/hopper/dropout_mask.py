"""Which pairs dropout keeps, in the registers of the scores: those of kernels/dropout.py and the portable kernels.

A pair's word is the first of Philox4x32 with 7 rounds (the paper and the counter are named there) on the
counter (key, row, head, batch). Gluon has no `tl.philox`, so the rounds stand here. Head and batch are
scalars and row and key lie along one side each, so that two rounds are worked once a row or key, not once
a pair, and the last two rounds lose what the first word does not need: shapes and the compiler see to it.
"""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .boxes import first_row

ROUNDS: gl.constexpr = gl.constexpr(7)
MULTIPLIER_A: gl.constexpr = gl.constexpr("0xD2511F53")
MULTIPLIER_B: gl.constexpr = gl.constexpr("0xCD9E8D57")
WEYL_A: gl.constexpr = gl.constexpr(0x9E3779B9)
WEYL_B: gl.constexpr = gl.constexpr(0xBB67AE85)


@gluon.jit
def positions(units, step, N: gl.constexpr, GRANULE: gl.constexpr, S: gl.constexpr):
    """Positions along the columns of layout S of step `step`, of one unit or gathered from several. # int32 [N]"""
    n = gl.arange(0, N, layout=gl.SliceLayout(0, S))
    if GRANULE >= N:
        return first_row(units, step, N, GRANULE) + n
    else:
        return gl.load(units + step * (N // GRANULE) + n // GRANULE) + n % GRANULE


@gluon.jit
def seed_halves(seed):
    """Low and high word of the int64 that `seed` points to. # uint32 each"""
    number = gl.load(seed).to(gl.uint64)
    return (number & 0xFFFFFFFF).to(gl.uint32), (number >> 32).to(gl.uint32)


@gluon.jit
def _product(x, FACTOR: gl.constexpr):
    """High and low word of x * FACTOR, uint32 each, in one instruction.

    As `gl.umulhi(x, FACTOR)` and `x * FACTOR` they are two, and Triton 3.9 makes 64-bit products of some.
    """
    return gl.inline_asm_elementwise(
        "{ .reg .b64 wide; mul.wide.u32 wide, $2, " + FACTOR + "; mov.b64 {$1, $0}, wide; }",
        "=r,=r,r",
        [x],
        dtype=(gl.uint32, gl.uint32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def kept(halves, threshold, batch, head, row, key):
    """Whether each pair is kept. # bool, broadcast shape of the int32 row and key

    `threshold` comes less 2^31, as the portable kernels take it: an argument is int32 for every probability.
    """
    k0, k1 = halves
    c0 = key.to(gl.uint32, bitcast=True)
    c1 = row.to(gl.uint32, bitcast=True)
    c2 = head.to(gl.uint32, bitcast=True)
    c3 = batch.to(gl.uint32, bitcast=True)
    for _ in gl.static_range(ROUNDS):
        a_high, a_low = _product(c0, MULTIPLIER_A)
        b_high, b_low = _product(c2, MULTIPLIER_B)
        c0 = b_high ^ c1 ^ k0
        c1 = b_low
        c2 = a_high ^ c3 ^ k1
        c3 = a_low
        k0 = k0 + WEYL_A
        k1 = k1 + WEYL_B
    return (c0.to(gl.int32, bitcast=True) ^ -2147483648) >= threshold
