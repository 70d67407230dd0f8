"""Exact lowering in time proportional to the key runs that come out, never to pairs or keys.

1. Each query block is a strip; the pattern says which key columns are ALL, BAND, SOME or NONE there.
2. Column runs become tile runs. Only tiles that several column runs share need a look: they are FULL,
   one band, or SOME.
3. SOME tiles are settled by evaluating the predicate, once for each distinct signature.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..columns import ALL, BAND, SOME, Columns, Ints, Scope, Strips, ragged
from ..errors import StudioError
from ..expr import Pattern
from ..layout import UNBOUNDED, BlockLayout, Runs, TileKind
from ..problem import Problem, block_shape

MAX_LINES = 2**24  # query blocks of one layout
MAX_MASK_BYTES = 2**31  # of the table of unique bit masks
CHUNK_PAIRS = 2**22  # pairs evaluated at a time while settling


def lower(
    pattern: Pattern,
    problem: Problem | None = None,
    *,
    q_len: int | None = None,
    kv_len: int | None = None,
    q_offset: int | None = None,
    heads: int = 1,
    docs: tuple[int, ...] | None = None,
    block: int | tuple[int, int] = 128,
    layer: int | None = None,
) -> BlockLayout:
    """Lower a pattern exactly for a problem and a block size, to key runs per query block.

    Give a Problem, or its fields: `q_len`, and where they differ from the defaults `kv_len`,
    `q_offset`, `heads`, `docs`. `block` is one number or `(block_q, block_k)` in tokens; `layer` is
    needed by patterns that differ by layer. Heads with equal patterns share their rows.

    Raises StudioError where the problem and the pattern do not fit, or the result would be too large.

    >>> import pattern_studio as ps
    >>> layout = lower(ps.parse("causal & window(255, 0)"), q_len=1024, block=128)
    >>> layout.tiles(), layout.tiles(TileKind.FULL), layout.pairs
    (21, 7, 229504)
    """
    if not isinstance(pattern, Pattern):
        raise StudioError(f"lower() takes a Pattern, got {type(pattern).__name__}; read text with parse()")
    if problem is None:
        if q_len is None:
            raise StudioError("lower() needs q_len, the number of query rows, or a Problem")
        problem = Problem(q_len, q_len if kv_len is None else kv_len, q_offset, heads, docs)
    shape = block_shape(block)
    if -(-problem.q_len // shape[0]) > MAX_LINES:
        raise StudioError(
            f"q_len {problem.q_len:,} at block_q {shape[0]} makes more than the {MAX_LINES:,} query blocks that are "
            "kept; use a larger block_q"
        )
    resolved = [pattern.resolve(head, layer) for head in range(problem.heads)]
    distinct = list(dict.fromkeys(resolved))
    head_group = np.array([distinct.index(p) for p in resolved], np.int32)
    parts = [_lower_group(p, problem, shape) for p in distinct]
    rows, bands, bits = _merge(parts, -(-problem.q_len // shape[0]), shape)
    return BlockLayout(problem, shape, head_group, rows, bands, bits, pattern.hash)


class _Tiles:
    """Tile runs of one group before they are merged: sorted by (line, start)."""

    def __init__(self, line: Ints, start: Ints, stop: Ints, kind: NDArray, lo: Ints, hi: Ints, mask: Ints) -> None:
        self.line, self.start, self.stop, self.kind, self.lo, self.hi, self.mask = line, start, stop, kind, lo, hi, mask


def _lower_group(pattern: Pattern, problem: Problem, block: tuple[int, int]) -> tuple[_Tiles, NDArray[np.uint8]]:
    block_q, block_k = block
    first = np.arange(0, problem.q_len, block_q)
    last = np.minimum(first + block_q, problem.q_len) - 1
    strips = Strips(
        first + problem.offset, last + problem.offset, np.zeros_like(first), np.full_like(first, problem.kv_len)
    )
    scope = Scope(problem.kv_len, problem.doc_ends, block)
    columns = pattern.columns(strips, scope)
    runs = _tile_runs(columns, strips, problem.kv_len, block_k)
    some = runs.state == SOME
    settled, bits = _settle(pattern, scope, runs.take(some), strips, problem, block)
    rest = runs.take(~some)
    kind = np.where(rest.state == ALL, TileKind.FULL, TileKind.BAND)
    none = np.zeros(len(rest), np.int64)
    tiles = _Tiles(
        *(
            np.concatenate(pair)
            for pair in zip(
                (rest.strip, rest.start, rest.stop, kind, rest.lo, rest.hi, none),
                settled,
                strict=True,
            )
        )
    )
    order = np.lexsort((tiles.start, tiles.line))
    return _Tiles(*(getattr(tiles, f)[order] for f in ("line", "start", "stop", "kind", "lo", "hi", "mask"))), bits


def _tile_runs(columns: Columns, strips: Strips, kv_len: int, block_k: int) -> Columns:
    """Column runs in tokens -> runs in tiles; a tile that several runs share gets its common value."""
    if block_k == 1:
        return columns
    # The last tile may be ragged: what reaches kv_len reaches the end of that tile.
    padded = np.where(columns.stop == kv_len, -(-kv_len // block_k) * block_k, columns.stop)
    inner, outer = -(-columns.start // block_k), padded // block_k
    whole = inner < outer
    # What does not fill a tile: a head before the first whole tile, a tail after the last one.
    head = columns.start % block_k != 0
    tail = (padded % block_k != 0) & ((padded // block_k > columns.start // block_k) | ~head)
    index = np.concatenate([np.flatnonzero(head), np.flatnonzero(tail)])
    begin = np.concatenate([columns.start[head], np.maximum(columns.start, outer * block_k)[tail]])
    end = np.concatenate([np.minimum(columns.stop, inner * block_k)[head], columns.stop[tail]])
    shared = _shared_tiles(columns.take(index), begin, end, strips, block_k, kv_len)
    body = columns.take(whole)
    parts = (
        np.concatenate(pair)
        for pair in zip(
            (body.strip, inner[whole], outer[whole], body.state, body.lo, body.hi),
            (shared.strip, shared.start, shared.stop, shared.state, shared.lo, shared.hi),
            strict=True,
        )
    )
    return Columns(*parts)


def _shared_tiles(pieces: Columns, begin: Ints, end: Ints, strips: Strips, block_k: int, kv_len: int) -> Columns:
    """The tiles that pieces `begin:end` of column runs lie in, each with the value that all its columns share."""
    tile = begin // block_k
    order = np.lexsort((begin, tile, pieces.strip))
    pieces, begin, end, tile = pieces.take(order), begin[order], end[order], tile[order]
    if not len(tile):
        return Columns(pieces.strip, tile, tile, pieces.state, pieces.lo, pieces.hi)
    heads = np.flatnonzero(np.r_[True, (pieces.strip[1:] != pieces.strip[:-1]) | (tile[1:] != tile[:-1])])
    count = np.diff(np.r_[heads, len(tile)])
    strip, at = pieces.strip[heads], tile[heads]
    left, right = at * block_k, np.minimum((at + 1) * block_k, kv_len)
    filled = np.add.reduceat(end - begin, heads)
    all_all = np.minimum.reduceat(pieces.state, heads) == ALL
    no_some = ~np.logical_or.reduceat(pieces.state == SOME, heads)
    # The one band that could describe the tile, and whether every piece agrees with it on its columns.
    lo, hi = np.maximum.reduceat(pieces.lo, heads), np.minimum.reduceat(pieces.hi, heads)
    first, last = strips.first[pieces.strip], strips.last[pieces.strip]
    lo_of, hi_of = np.repeat(lo, count), np.repeat(hi, count)
    agrees = ((pieces.lo == lo_of) | (begin - last >= lo_of)) & ((pieces.hi == hi_of) | (end - 1 - first <= hi_of))
    agrees = np.logical_and.reduceat(agrees, heads)
    # Columns that no piece names must be outside the band's reach.
    reach = np.minimum(strips.last[strip] + hi + 1, right) - np.maximum(strips.first[strip] + lo, left)
    one_band = no_some & agrees & (reach == filled) & (lo <= hi)
    state = np.where(all_all & (filled == right - left), ALL, np.where(one_band, BAND, SOME)).astype(np.uint8)
    is_band = state == BAND
    return Columns(strip, at, at + 1, state, np.where(is_band, lo, -UNBOUNDED), np.where(is_band, hi, UNBOUNDED))


def _settle(
    pattern: Pattern, scope: Scope, runs: Columns, strips: Strips, problem: Problem, block: tuple[int, int]
) -> tuple[tuple[Ints, Ints, Ints, NDArray, Ints, Ints, Ints], NDArray[np.uint8]]:
    """Decide SOME tiles exactly: EMPTY (dropped), FULL or one of the unique bit masks that are returned."""
    block_q, block_k = block
    bytes_each = -(-block_q * block_k // 8)
    owner, rank = ragged(runs.stop - runs.start)
    line, key = runs.strip[owner], runs.start[owner] + rank
    if not len(line):
        none = np.zeros(0, np.int64)
        return (none, none, none, none, none, none, none), np.zeros((0, bytes_each), np.uint8)
    row, corner = strips.first[line], key * block_k
    # Ragged ends are part of what a mask depends on.
    height = strips.height[line]
    width = np.minimum(block_k, problem.kv_len - corner)
    signature = [*pattern.signature(row, corner, block, scope), height, width]
    which, example = _classes(signature)
    if len(example) * bytes_each > MAX_MASK_BYTES:
        raise StudioError(
            f"{pattern} needs {len(example):,} different bit masks of {bytes_each:,} bytes at block {block}, more "
            f"than the {MAX_MASK_BYTES / 2**30:.0f} GiB that are kept; use a smaller block, such as ({block_q}, 1)"
        )
    packed = np.empty((len(example), bytes_each), np.uint8)
    count = np.empty(len(example), np.int64)
    step = max(1, CHUNK_PAIRS // (block_q * block_k))
    for begin in range(0, len(example), step):
        chosen = example[begin : begin + step]
        i = row[chosen][:, None, None] + np.arange(block_q)[:, None]
        j = corner[chosen][:, None, None] + np.arange(block_k)
        mask = pattern.allows(i, j, scope)
        mask = mask & (np.arange(block_q)[:, None] < height[chosen][:, None, None])
        mask = mask & (np.arange(block_k) < width[chosen][:, None, None])
        count[begin : begin + step] = mask.sum((1, 2))
        flat = mask.reshape(len(chosen), -1)
        packed[begin : begin + step] = np.packbits(flat, axis=1, bitorder="little")
    full = count == height[example] * width[example]
    bits, mask_of = np.unique(packed, axis=0, return_inverse=True)
    kind_of = np.where(count == 0, TileKind.EMPTY, np.where(full, TileKind.FULL, TileKind.BITS))
    kind, mask = kind_of[which], np.where(full, 0, mask_of.reshape(-1))[which]
    keep = kind != TileKind.EMPTY
    free = np.full(int(keep.sum()), UNBOUNDED)
    return (line[keep], key[keep], key[keep] + 1, kind[keep], -free, free, mask[keep]), bits


def _classes(signature: list[Ints]) -> tuple[Ints, Ints]:
    """Class of each tile, and one example tile of each class; equal signature, equal class."""
    which = np.zeros(len(signature[0]), np.int64)
    example = np.zeros(1, np.int64)
    for part in signature:
        part = np.broadcast_to(part, which.shape)
        low, high = int(part.min()), int(part.max())
        if low == high:
            continue
        span = high - low + 1
        if len(example) > 2**62 // span:  # keep the joint code in 64 bits
            part = np.unique(part, return_inverse=True)[1]
            low, span = 0, int(part.max()) + 1
        _, example, which = np.unique(which * span + (part - low), return_index=True, return_inverse=True)
    return which, example


def _merge(
    parts: list[tuple[_Tiles, NDArray[np.uint8]]], q_blocks: int, block: tuple[int, int]
) -> tuple[Runs, NDArray[np.int64], NDArray[np.uint8]]:
    """All groups in one CSR with shared tables of the bands and masks that are used."""
    tables = [bits for _, bits in parts]
    base = np.cumsum([0, *map(len, tables)])
    tiles = [t for t, _ in parts]
    line = np.concatenate([t.line + g * q_blocks for g, t in enumerate(tiles)])
    start, stop, kind, lo, hi = (
        np.concatenate([getattr(t, f) for t in tiles]) for f in ("start", "stop", "kind", "lo", "hi")
    )
    mask = np.concatenate([t.mask + base[g] for g, t in enumerate(tiles)])
    ref = np.zeros(len(line), np.int64)
    band, bit = kind == TileKind.BAND, kind == TileKind.BITS
    bands, which = np.unique(np.stack([lo[band], hi[band]], 1), axis=0, return_inverse=True)
    ref[band] = which.reshape(-1)
    used, which = np.unique(mask[bit], return_inverse=True)
    bits, again = np.unique(np.concatenate(tables)[used], axis=0, return_inverse=True)
    ref[bit] = again.reshape(-1)[which]
    rows = Runs.from_sorted(len(tiles) * q_blocks, line, start, stop, kind, ref)
    return rows, bands.reshape(-1, 2), bits.reshape(-1, -(-block[0] * block[1] // 8))
