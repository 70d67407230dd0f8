"""What the forward and backward programs share: tile positions, masks, and safe row loads."""

# ruff: noqa: N803 - upper-case arguments are compile-time constants, as is the custom in Triton

import triton
import triton.language as tl


@triton.jit
def unit_start(units, tile, TILE: tl.constexpr, GRANULE: tl.constexpr):
    """First position of a tile whose positions are neighbours (GRANULE >= TILE). # int32"""
    return tl.load(units + tile // (GRANULE // TILE)) + tile % (GRANULE // TILE) * TILE


@triton.jit
def unit_positions(units, tile, TILE: tl.constexpr, GRANULE: tl.constexpr):
    """Positions of one gathered tile. # int32 [TILE]"""
    n = tl.arange(0, TILE)
    if GRANULE >= TILE:  # one load, and the compiler sees neighbouring addresses
        return unit_start(units, tile, TILE, GRANULE) + n
    return tl.load(units + tile * (TILE // GRANULE) + n // GRANULE) + n % GRANULE


@triton.jit
def per_unit(values, tile, TILE: tl.constexpr, GRANULE: tl.constexpr):
    """A unit's value for each of its positions. # [TILE]"""
    n = tl.arange(0, TILE)
    if GRANULE >= TILE:
        return tl.load(values + tile // (GRANULE // TILE) + n * 0)
    return tl.load(values + tile * (TILE // GRANULE) + n // GRANULE)


@triton.jit
def bit_allowed(masks, bits, key, row, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
    """Whether the bit mask of a unit allows (row, key); units without a mask allow all. # bool, broadcast shape"""
    bytes_each: tl.constexpr = (BLOCK_Q + 7) // 8
    bit = row % BLOCK_Q
    at = (bits.to(tl.int64) * BLOCK_K + key % BLOCK_K) * bytes_each + bit // 8
    byte = tl.load(masks + at, mask=bits >= 0, other=255)
    return (byte >> (bit % 8)) & 1 != 0


@triton.jit
def load_tile(box, batch, head, position, N: tl.constexpr, PADDED: tl.constexpr):
    """N neighbouring rows from `position` on through a tensor descriptor; rows past the end are 0. # [N, PADDED]"""
    return box.load([batch, head, position, 0]).reshape([N, PADDED])


@triton.jit
def load_rows(base, position, stride, valid, WIDTH: tl.constexpr, PADDED: tl.constexpr, CHECK: tl.constexpr):
    """Gathered rows of a [length, WIDTH] matrix; rows that are not valid are 0 and are not read. # [N, PADDED]"""
    d = tl.arange(0, PADDED)
    at = base + position.to(tl.int64)[:, None] * stride + d[None, :]
    if CHECK and PADDED > WIDTH:
        return tl.load(at, mask=valid[:, None] & (d < WIDTH)[None, :], other=0.0)
    if CHECK:
        return tl.load(at, mask=valid[:, None], other=0.0)
    if PADDED > WIDTH:
        return tl.load(at, mask=(d < WIDTH)[None, :], other=0.0)
    return tl.load(at)
