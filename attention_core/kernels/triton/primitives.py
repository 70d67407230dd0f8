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
def group_of(head_group, batch, head, heads, SHARED: tl.constexpr, BY_BATCH: tl.constexpr):
    """Group of lists of a head, in a table [heads or 1] or, by batch, [batch, heads or 1]. # scalar"""
    if BY_BATCH:
        return tl.load(head_group + (batch if SHARED else batch * heads + head))
    return 0 if SHARED else tl.load(head_group + head)


@triton.jit
def job_at(jobs, group, n_jobs, job):
    """An entry of the work table: line, part, parts, scratch slot; line -1 for none. # int32 each"""
    entry = jobs + (group * n_jobs + job) * 4
    return tl.load(entry), tl.load(entry + 1), tl.load(entry + 2), tl.load(entry + 3)


@triton.jit
def steps_of(pointers, owner, part, parts, STEPS: tl.constexpr):
    """First and last + 1 step of a line's part, STEPS steps a tile. # int32 each"""
    begin, end = tl.load(pointers + owner), tl.load(pointers + owner + 1)
    count = end - begin
    end = begin + count * (part + 1) // parts
    begin = begin + count * part // parts
    return begin * STEPS, end * STEPS


@triton.jit
def masked_keys(units, low, high, bits, masks, step, row, real, first_row, last_row, kv_len,
                N: tl.constexpr, GRANULE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
                HAS_BITS: tl.constexpr):  # fmt: skip
    """Keys of a masked tile, which some row of this program may see, and which pairs. # [N], [N], [BM, N]"""
    key = unit_positions(units, step, N, GRANULE)
    lo, hi = per_unit(low, step, N, GRANULE), per_unit(high, step, N, GRANULE)
    # A key that no row may see is not read: whatever it holds stays out.
    seen = (key < kv_len) & (lo <= hi) & (key - lo >= first_row) & (key - hi <= last_row)
    distance = key[None, :] - row[:, None]
    allowed = (distance >= lo[None, :]) & (distance <= hi[None, :]) & seen[None, :]
    if HAS_BITS:
        if masks.dtype.element_ty == tl.int32:
            start = unit_start(units, step, N, GRANULE)
            octets: tl.constexpr = (BLOCK_Q + 7) // 8
            mask_id = tl.load(bits + step // (GRANULE // N))
            allowed &= word_allowed(masks, mask_id, row % BLOCK_Q, start % BLOCK_K, octets * 8, BLOCK_K // 32, N)
        else:
            mask_id = per_unit(bits, step, N, GRANULE)
            allowed &= bit_allowed(masks, mask_id[None, :], key[None, :], row[:, None], BLOCK_Q, BLOCK_K)
        allowed &= real[:, None]
        seen = tl.max(allowed.to(tl.int32), 0) > 0
    return key, seen, allowed


@triton.jit
def dropout_weights(seed, batch, head, row, key, threshold, weight):
    """`weight` where a pair is kept, 0 where it is dropped, as kernels/dropout.py says. # broadcast of row and key

    `threshold` comes less 2^31: an argument is int32 for every probability, and no program is compiled twice.
    """
    word, _, _, _ = tl.philox(tl.load(seed), key, row, head.to(tl.int32), batch.to(tl.int32), 7)
    return tl.where((word.to(tl.int32, bitcast=True) ^ -2147483648) >= threshold, weight, 0.0)


@triton.jit
def word_allowed(words, mask, own, start, ROWS: tl.constexpr, WORDS: tl.constexpr, N: tl.constexpr):
    """Whether one unit's mask, of [masks, ROWS, WORDS] (words.py), allows (own, start + n); a negative one does.

    `own` and `start` are counted within their blocks, `start` a multiple of 32. # bool [own, N]
    """
    n = tl.arange(0, N)
    first = words + tl.maximum(mask, 0).to(tl.int64) * (ROWS * WORDS) + (own * WORDS + start // 32)
    allowed = own[:, None] + n[None, :] < 0
    for w in tl.static_range(N // 32):
        word = tl.load(first + w, mask=own * 0 + mask >= 0, other=-1)
        bit = (word[:, None] >> (n % 32)[None, :]) & 1 != 0
        allowed |= bit & (n // 32 == w)[None, :]
    return allowed


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
